"""A history, arranged for the rules: one Facts per session, every event with its place in the history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from chaoskit.model import Ack, Crashed, Effect, Event, History, Invoke, Ok, Probe, Struck

Json = dict[str, Any]
SHARED = ("later", "sweep", "twin", "neighbour", "crowd")  # concern every session of the process
ENDS = ("answered", "failed", "cancelled")


class Operation(msgspec.Struct):
    """What a client asked, and its answer: None if it never got one."""

    name: str
    args: Json
    life: int
    began: int
    ended: float = float("inf")
    result: Json | None = None

    def overlaps(self, other: Operation) -> bool:
        return self.life == other.life and self.began < other.ended and other.began < self.ended

    @property
    def refused(self) -> str | None:
        return self.result.get("refused") if self.result else None

    @property
    def state(self) -> str | None:
        return self.result.get("state") if self.result else None

    def __str__(self) -> str:
        about = self.args.get("request") or self.args.get("session") or ""
        return f"{self.name} {about}".strip()


class Ask(msgspec.Struct):
    """A request to the model: the conversation it was shown, and what came of it."""

    place: int
    life: int
    boot: int
    time: float
    said: list[Json]
    reply: Json | None = None
    tokens: int = 0
    failure: Json | None = None
    decided: bool = False  # the decision was acknowledged as durable

    @property
    def asked(self) -> int:
        """Where in the conversation the user spoke last."""
        return max(n for n, message in enumerate(self.said) if message["role"] == "user")

    @property
    def words(self) -> str:
        return str(self.said[self.asked]["text"])

    @property
    def turn(self) -> int:
        return sum(message["role"] == "assistant" for message in self.said[self.asked :])


class Facts(msgspec.Struct):
    """What is known of one session."""

    session: str
    given: Json
    operations: list[Operation] = []
    asks: list[Ask] = []
    acks: list[tuple[int, Ack]] = []
    hooks: list[tuple[int, Json]] = []
    effects: list[tuple[int, Effect]] = []
    boots: list[tuple[int, Json]] = []  # of the process, not of the session
    process: list[Operation] = []  # operations that concern all sessions
    struck: frozenset[int] = frozenset()  # lives in which the disk or a service failed
    crashes: list[int] = []
    end: Probe | None = None
    end_place: int = 0

    def boot_at(self, place: int) -> Json:
        return next((boot for at, boot in reversed(self.boots) if at <= place), {"options": {}})

    def named(self, *names: str) -> Iterator[Operation]:
        return (each for each in self.operations if each.name in names)


def facts_of(history: History) -> list[Facts]:
    given = next(history.of(Probe, "given"), None)
    if given is None:
        return []
    found = {name: Facts(name, given.data) for name in given.data["sessions"]}
    struck = frozenset(strike.life for strike in history.of(Struck))
    shared: list[tuple[int, Json]] = []
    process: list[Operation] = []
    crashes: list[int] = []
    under_way: dict[tuple[int, int], Operation] = {}
    for place, event in enumerate(history.events):
        if isinstance(event, Invoke):
            operation = Operation(event.name, event.args, event.life, place)
            under_way[event.life, event.op] = operation
            session = found.get(event.args.get("session", ""))
            if session:
                session.operations.append(operation)
            if not session or event.name in SHARED:
                process.append(operation)
        elif isinstance(event, Ok):
            operation = under_way[event.life, event.op]
            operation.ended, operation.result = place, event.result or {}
        elif isinstance(event, Crashed):
            crashes.append(place)
        elif isinstance(event, Probe) and event.name == "boot":
            shared.append((place, event.data))
        else:
            _note(found, place, event)
    for facts in found.values():
        facts.struck, facts.boots, facts.process, facts.crashes = struck, shared, process, crashes
    return list(found.values())


def _note(found: dict[str, Facts], place: int, event: Event) -> None:
    data = event.args if isinstance(event, Effect) else event.data if isinstance(event, Ack | Probe) else {}
    facts = found.get(data.get("session") or data.get("of") or "")
    if facts is None:
        return
    if isinstance(event, Effect):
        facts.effects.append((place, event))
    elif isinstance(event, Ack):
        facts.acks.append((place, event))
        if event.name == "decided" and facts.asks:
            facts.asks[-1].decided = True
    elif isinstance(event, Probe):
        _note_probe(facts, place, event)


def _note_probe(facts: Facts, place: int, probe: Probe) -> None:
    data = probe.data
    if probe.name == "asked":
        facts.asks.append(Ask(place, probe.life, data["boot"], data["time"], data["said"]))
    elif probe.name == "replied":
        facts.asks[-1].reply, facts.asks[-1].tokens = data["reply"], data["tokens"]
    elif probe.name == "model-failed":
        facts.asks[-1].failure = data
    elif probe.name == "hook":
        facts.hooks.append((place, data))
    elif probe.name == "session":
        facts.end, facts.end_place = probe, place


class Segment(msgspec.Struct, frozen=True):
    """The part of a conversation that belongs to one request: its words, and what follows them."""

    words: str
    messages: tuple[Json, ...]

    @property
    def answer(self) -> str | None:
        last = self.messages[-1]
        return last["text"] if last["role"] == "assistant" and not last.get("calls") else None


def segments(conversation: list[Json]) -> list[Segment]:
    starts = [n for n, message in enumerate(conversation) if message["role"] == "user"]
    ends = [*starts[1:], len(conversation)][: len(starts)]
    return [
        Segment(conversation[start]["text"], tuple(conversation[start:end]))
        for start, end in zip(starts, ends, strict=True)
    ]
