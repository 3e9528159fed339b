"""A model that plays a script in this process: no network, no key, no randomness.

The nth entry of the script says what happens after the user's nth message:

    {"steps": [[{"tool": "pay", "args": {"cents": 5}, "noise": "memo"}], ...], "answer": "Paid."}

One step is one turn. After the last step the model answers with "answer", followed by the tools' results,
so the answer changes when a result is lost or repeated.

The next step is determined by the conversation alone, so a new process continues where the last one
stopped. The *wording* depends on `fickle`:

- without it, the same conversation gets exactly the same answer;
- with it, no two answers are alike: different call ids, different wording, the keys of the arguments in a
  different order, and, where the script allows it ("noise" names it), an argument without meaning. Give
  each process its own `fickle`, and a decision that was requested twice becomes visible.

`failures` maps a turn (counted from 1 over the whole conversation) to the errors that precede its answer.
An error without a status hits a stream after half of the text. `count` says how often a turn was requested
before. The default counter is lost when the process ends; a scenario that needs it to survive passes a
counter that lives outside the process.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec

from reference_agent.messages import Message, ToolCall
from reference_agent.providers.base import (
    Answer,
    ModelError,
    TextDelta,
    ToolSpec,
    Usage,
    can_pass,
    estimated_tokens,
)

Script = Sequence[Mapping[str, Any]]
Failures = Mapping[int, Sequence[ModelError]]
CountAsks = Callable[[int], int]

OPENINGS = ("Done.", "Here you are.", "As you wished.", "That is settled.", "Very well.")
INTENTS = ("Let me see to that.", "One moment.", "I will do this now.", "Working on it.")


class Place(msgspec.Struct, frozen=True):
    """The position of a conversation in the script: its nth entry, and the messages since."""

    number: int
    entry: Mapping[str, Any]
    since: Sequence[Message]

    @property
    def turn(self) -> int:
        return sum(message.role == "assistant" for message in self.since)

    @property
    def step(self) -> Sequence[Mapping[str, Any]] | None:
        steps: Sequence[Sequence[Mapping[str, Any]]] = self.entry["steps"]
        return steps[self.turn] if self.turn < len(steps) else None

    def message(self) -> Message:
        """The next message, exactly as scripted."""
        if self.step is not None:
            calls = [
                ToolCall(f"call_{self.number}_{self.turn}_{n}", step["tool"], step["args"])
                for n, step in enumerate(self.step)
            ]
            return Message("assistant", "", tuple(calls))
        results = [message.content for message in self.since if message.role == "tool"]
        return Message("assistant", f"{self.entry['answer']} [{'; '.join(results)}]")


class ScriptedProvider:
    name = "scripted"

    def __init__(
        self,
        script: Script,
        *,
        model: str = "scripted-1",
        fickle: str | None = None,
        failures: Failures | None = None,
        count: CountAsks | None = None,
    ) -> None:
        self.model = model
        self._script = script
        self._fickle = fickle
        self._failures = failures or {}
        self._count = count or counting()
        self._answers = 0

    async def complete(
        self, conversation: Sequence[Message], *, system: str, tools: Sequence[ToolSpec]
    ) -> Answer:
        failure = self._next_failure(conversation)
        if failure is not None:
            raise failure
        return self._answer(conversation, system, tools)

    async def stream(
        self, conversation: Sequence[Message], *, system: str, tools: Sequence[ToolSpec]
    ) -> AsyncIterator[TextDelta | Answer]:
        failure = self._next_failure(conversation)
        if failure is not None and failure.status is not None:
            raise failure  # refused before the first word
        answer = self._answer(conversation, system, tools)
        pieces = in_pieces(answer.message.content)
        for piece in pieces if failure is None else pieces[: (len(pieces) + 1) // 2]:
            yield TextDelta(piece)
        if failure is not None:
            raise failure
        yield answer

    def _next_failure(self, conversation: Sequence[Message]) -> ModelError | None:
        turn = 1 + sum(message.role == "assistant" for message in conversation)
        asked_before = self._count(turn)
        failures = self._failures.get(turn, ())
        if asked_before >= len(failures):
            return None
        return failures[asked_before].with_traceback(None)

    def _answer(self, conversation: Sequence[Message], system: str, tools: Sequence[ToolSpec]) -> Answer:
        place = self._place(conversation)
        message = place.message()
        if self._fickle is not None:
            message = self._reworded(message, [step.get("noise") for step in place.step or ()])
        return Answer(message, usage_of(conversation, system, tools, message))

    def _place(self, conversation: Sequence[Message]) -> Place:
        asked = [n for n, message in enumerate(conversation) if message.role == "user"]
        if not 1 <= len(asked) <= len(self._script):
            raise ModelError(
                f"expected 1 to {len(self._script)} user messages, as many as the script has"
                f" entries; found {len(asked)}",
                retryable=False,
            )
        return Place(len(asked), self._script[len(asked) - 1], conversation[asked[-1] + 1 :])

    def _reworded(self, message: Message, noise: Sequence[str | None]) -> Message:
        """Express the same intent in wording never used before: the mark is unique by (process, n)."""
        self._answers += 1
        mark = digest(f"{self._fickle}/{self._answers}")
        chance = random.Random(mark)
        if not message.calls:
            text = f"{chance.choice(OPENINGS)} {message.content} ({mark})"
            return Message("assistant", text)
        calls = [
            ToolCall(f"call_{mark}_{n}", call.name, reordered(call.args, chance, noise[n], mark))
            for n, call in enumerate(message.calls)
        ]
        return Message("assistant", f"{chance.choice(INTENTS)} ({mark})", tuple(calls))


def reordered(args: Mapping[str, Any], chance: random.Random, noise: str | None, mark: str) -> dict[str, Any]:
    changed: dict[str, Any] = shuffled(args, chance)
    return changed if noise is None else {noise: f"noise {mark}", **changed}


def shuffled(value: Any, chance: random.Random) -> Any:
    """An equal JSON value with its keys in a different order at every depth."""
    if isinstance(value, Mapping):
        keys = chance.sample(list(value), len(value))
        return {key: shuffled(value[key], chance) for key in keys}
    if isinstance(value, list):
        return [shuffled(item, chance) for item in value]
    return value


def usage_of(
    conversation: Sequence[Message], system: str, tools: Sequence[ToolSpec], answer: Message
) -> Usage:
    """Computed from the texts: the same text costs the same in every process."""
    read = [system, *(text for message in conversation for text in texts_of(message))]
    read.append(msgspec.json.encode(tools).decode())
    return Usage(estimated_tokens(*read), estimated_tokens(*texts_of(answer)))


def texts_of(message: Message) -> list[str]:
    calls = [f"{call.name} {msgspec.json.encode(call.args).decode()}" for call in message.calls]
    return [message.content, *calls]


def in_pieces(text: str) -> list[str]:
    """Words, each with the space that follows it; joined, they are the text."""
    return [piece for piece in text.replace(" ", " \0").split("\0") if piece]


def counting() -> CountAsks:
    asked: Counter[int] = Counter()

    def count(turn: int) -> int:
        asked[turn] += 1
        return asked[turn] - 1

    return count


def failures_from(plain: Mapping[int | str, Sequence[Mapping[str, Any]]]) -> Failures:
    """Build failures from a workload's plain data: {turn: [{"status": 429, "retry_after": 2}, {}, ...]}.

    A failure without a status is a broken connection, which is always retryable.
    """
    return {int(turn): [failure_from(each) for each in failures] for turn, failures in plain.items()}


def failure_from(plain: Mapping[str, Any]) -> ModelError:
    status = plain.get("status")
    found = "the connection broke" if status is None else f"found HTTP status {status}"
    return ModelError(
        f"expected an answer from the scripted model, {found}",
        retryable=status is None or can_pass(status),
        retry_after=plain.get("retry_after"),
        status=status,
    )


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
