"""What surrounds the agent in a generated workload: its model, its tools and its hooks, which misbehave.

Runs inside the target's process. Nothing here remembers anything across a crash: what has to be counted over
several lives (attempts of a tool, requests to the model) is counted by the World.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from chaoskit.inside import Life
from chaoskit_scenarios.whole.values import real, shown
from reference_agent.messages import Message, ToolCall
from reference_agent.providers.base import Answer, ModelError, TextDelta, ToolSpec, Usage, can_pass
from reference_agent.terminal.notes import Notes
from reference_agent.turn import hooks
from reference_agent.turn.hooks import HookRegistry
from reference_agent.turn.tools import Args, Tool, Toolbox

Json = dict[str, Any]
FINAL_TURN = "all done"


class CutOff(ModelError):
    """The answer was longer than the service allows."""


class Model:
    """Answers according to the script of the user's last words; reports all it is asked and answers."""

    name = "scripted"
    model = "scripted-1"

    def __init__(self, life: Life, session: str, boot: int, mark: str) -> None:
        self._life = life
        self._session = session
        self._boot = boot
        self._scripts = {shown(real(words)): script for words, script in life.workload["scripts"].items()}
        self._wire = life.workload.get("http") and life.workload["wire"]
        self._mark = mark if life.workload["fickle"] else ""
        self._answers = 0

    async def complete(
        self, conversation: Sequence[Message], *, system: str, tools: Sequence[ToolSpec]
    ) -> Answer:
        del system, tools
        now = asyncio.get_running_loop().time()
        said = [facts_of(message) for message in conversation]
        self._life.probe("asked", session=self._session, boot=self._boot, time=now, said=said)
        asked = max(n for n, message in enumerate(conversation) if message.role == "user")
        since = conversation[asked + 1 :]
        turn = sum(message.role == "assistant" for message in since)
        script = self._scripts.get(shown(conversation[asked].content), CANARY)
        await self._fail(shown(conversation[asked].content), turn, script)
        message = self._decision(script, turn, asked, since)
        tokens = 20 + 5 * len(conversation)
        self._life.probe("replied", session=self._session, tokens=tokens, reply=facts_of(message))
        return Answer(message, Usage(tokens - 10, 10))

    async def _fail(self, words: str, turn: int, script: Json) -> None:
        failures = script["failures"].get(str(turn), ())
        if not failures:
            return
        times = self._life.call("model", "ask", session=self._session, words=words, turn=turn)["times"]
        if times > len(failures):
            return
        failure = failures[times - 1]
        status, later = failure["status"], failure["retry_after"]
        if self._wire and not isinstance(status, int):
            later = None  # there is no response that could say so
        self._life.probe(
            "model-failed", session=self._session, words=words, turn=turn, status=status, retry_after=later
        )
        if status == "bug":
            raise KeyError("choices")
        if status == "cancel":
            raise asyncio.CancelledError
        if status == "length":
            raise CutOff("HTTP length", retryable=False)
        passes = status is None or can_pass(status)
        raise ModelError(f"HTTP {status}", retryable=passes, retry_after=later, status=status)

    def _decision(self, script: Json, turn: int, asked: int, since: Sequence[Message]) -> Message:
        self._answers += 1
        mark = f"{self._mark}.{self._answers}" if self._mark else ""
        if turn >= len(script["steps"]):
            results = [message.content for message in since if message.role == "tool"]
            return Message("assistant", real(script["answer"]) + f"{mark} [{'; '.join(results)}]")
        calls: list[ToolCall] = []
        for number, call in enumerate(script["steps"][turn]):
            name = call.get("id")
            # The protocol wants each call of an answer to have an id of its own.
            if name is None or (self._wire and (not name or name in {each.id for each in calls})):
                name = f"call_{asked}_{turn}_{number}{mark}"
            args = in_some_order(real(call["args"]), turn + number)
            calls.append(ToolCall(name, call["tool"], args))
        return Message("assistant", mark, tuple(calls))

    async def _stream(self, answer: Answer) -> AsyncIterator[TextDelta | Answer]:
        yield answer

    def stream(
        self, conversation: Sequence[Message], *, system: str, tools: Sequence[ToolSpec]
    ) -> AsyncIterator[TextDelta | Answer]:
        raise NotImplementedError  # nobody watches


def in_some_order(args: Json, number: int) -> Json:
    """Models do not always write the same arguments in the same order."""
    return dict(reversed(args.items())) if number % 2 else args


CANARY: Json = {"steps": [], "answer": "still here", "failures": {}}


def facts_of(message: Message) -> Json:
    """What the specification compares of a message."""
    found: Json = {"role": message.role, "text": shown(message.content)}
    if message.calls:
        found["calls"] = [[shown(call.id), call.name, label(call.args)] for call in message.calls]
    if message.call_id is not None:
        found["call"] = shown(message.call_id)
    return found


def label(args: Any) -> str | None:
    n = args.get("n") if isinstance(args, dict) else None
    return n if isinstance(n, str) else None


# --- tools


class Tools:
    def __init__(self, life: Life, session: str, boot: int, without: Sequence[str]) -> None:
        self._life = life
        self._session = session
        self._boot = boot
        self._without = without
        self.notes = Notes()

    def toolbox(self) -> Toolbox:
        jot = self.notes.tools()
        note = jot.find("note")
        assert note is not None
        tools = [
            Tool(name="lookup", run=self._reading),
            Tool(name="fail", run=self._reading),
            Tool(name="pay", run=self._acting("payments"), mutating=True, repeatable=True),
            Tool(
                name="mail", run=self._acting("mail"), mutating=True, verify=self._was_mailed, deadline=60.0
            ),
            Tool(name="post", run=self._acting("board"), mutating=True),
            Tool(name="note", run=self._acting("board"), mutating=True, when_unknown="fail"),
            Tool(name="tip", run=self._acting("payments"), mutating=True, repeatable=True, key=self._own_key),
            Tool(name="approve", mutating=True, waits_for="approval", deadline=600.0, key=by_id),
            Tool(name="jot", run=self._jotting(note), mutating=True, verify=note.verify, key=by_id),
        ]
        return Toolbox(tool for tool in tools if tool.name not in self._without)

    def _own_key(self, args: Args, call_id: str) -> str:
        if "raise" in args.get("verify", ()):  # of a tool without `verify`: its key raises instead
            raise LookupError("no key")
        return call_id

    def _jotting(self, note: Tool) -> Any:
        async def jot(args: Args, key: str) -> str:
            written: str = await note.run({"text": str(args.get("n"))}, key)
            return written

        return jot

    def _acting(self, service: str) -> Any:
        async def act(args: Args, key: str) -> Any:
            return await self._act(service, args, key)

        return act

    async def _reading(self, args: Args, _key: str) -> Any:
        how = self._how(args, "how", f"read {args.get('n')}")
        return await misbehave(how.removeprefix("act "), f"read {args.get('n')}")

    async def _act(self, service: str, args: Args, key: str) -> Any:
        how = self._how(args, "how", key)
        if not how.startswith("act "):
            await misbehave(how, "")
        facts = {"session": self._session, "n": label(args), "boot": self._boot}
        receipt = self._life.call(service, "act", key=key, **facts)["receipt"]
        return await misbehave(how.removeprefix("act ") if how.startswith("act ") else "", f"done, {receipt}")

    async def _was_mailed(self, args: Args, key: str) -> Any:
        how = self._how(args, "verify", f"verify {key}")
        await misbehave(how, "")
        found = self._life.call("mail", "happened", key=key)
        return f"done, {found['receipt']}" if found else None

    def _how(self, args: Args, name: str, what: str) -> str:
        """How it behaves this time; attempts are counted over all lives."""
        ways = args.get(name)
        if not isinstance(ways, list) or not ways:
            return ""
        times = self._life.call("model", "ask", what=f"{self._session} {what}")["times"]
        return str(ways[times - 1]) if times <= len(ways) else ""


def by_id(_args: Args, call_id: str) -> str:
    return call_id


async def misbehave(how: str, result: str) -> Any:
    if how == "slow":
        await asyncio.sleep(2)
    elif how == "raise":
        raise ValueError("no")
    elif how == "hang":
        await asyncio.Event().wait()
    elif how == "cancel":
        raise asyncio.CancelledError
    odd: dict[str, Any] = {
        "none": None,
        "dict": {"a": 1},
        "surrogate": f"{result} \ud800",
        "nul": f"{result} \0",
        "number": 7,
    }
    return odd.get(how, result)


# --- hooks


def install(registry: HookRegistry, life: Life, session: str, rules: Sequence[Json]) -> None:
    for rule in rules:
        registry.register(getattr(hooks, rule["on"]), Handler(life, session, rule), tool=rule.get("tool"))


class Handler:
    def __init__(self, life: Life, session: str, rule: Json) -> None:
        self._life = life
        self._session = session
        self._rule = rule
        self._fired = 0

    async def __call__(self, event: Any) -> Any:
        rule = self._rule
        place, self._fired = self._fired, self._fired + 1
        if not rule["from"] <= place < rule["from"] + rule["times"]:
            return None
        does = rule["do"]
        self._life.probe("hook", session=self._session, on=rule["on"], do=does)
        if does == "wait":
            await asyncio.sleep(3)
        elif does == "touch":  # it only watches, and hides what is secret: in its own copy
            event.args["n"] = "secret"
        elif does == "raise":
            raise ValueError("a hook's bug")
        elif does == "cancel":
            raise asyncio.CancelledError
        decisions: dict[str, Any] = {
            "deny": lambda: hooks.Deny("not allowed"),
            "change": lambda: hooks.ModifyArgs({**event.args, "changed": True}),
            "stop": lambda: hooks.Stop("enough"),
            "say": lambda: hooks.AppendContext("by the way"),
            "odd": lambda: {"a": 1},
        }
        return decisions[does]() if does in decisions else None
