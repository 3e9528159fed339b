"""model-calls: the model is not asked again for a durable decision, and sees the same messages as before.

Verifies each request to the model (probe `asked`). It is not for a turn whose decision was acknowledged
(ack `decided`), was acted upon by the life that asked for it (an effect was applied after it), or was
received (probe `answered`) in the same life: that decision would be paid for twice and might differ. The
request never contains a tool call without a result, because providers permanently reject such a
conversation. Every message is as it was when the model was last asked, even after a round trip through the
store: within a life all of them, across a crash those that a checkpoint holds (ack `turn`).

Cannot see a decision that was made and lost before it was durable: the model may be asked for it again. Nor
a message that the model had not seen before the crash.

Smallest history that breaks it: ack decided turn 1, crashed, asked turn 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaoskit.model import Ack, Born, Effect, Event, History, Invariant, NothingToJudge, Probe, Violation


def check(history: History) -> Iterator[Violation]:
    if not any(history.of(Probe, "asked")):
        raise NothingToJudge
    yield from _decisions(history)
    yield from _conversations(history)


def _decisions(history: History) -> Iterator[Violation]:
    decided = _Decided()
    for event in history.events:
        if isinstance(event, Probe) and event.name == "asked":
            turn, orphans = event.data["turn"], event.data["orphans"]
            if turn in decided.why:
                yield Violation("repeated", f"turn {turn} {decided.why[turn]}, but the model was asked again")
            if orphans:
                yield Violation("orphan", f"the model was asked while {orphans[0]} had no result")
        decided.note(event)


class _Decided:
    """The turns that the model must not be asked for, and why."""

    def __init__(self) -> None:
        self.why: dict[int, str] = {}
        self._answered: set[int] = set()  # in this life, and perhaps not durable
        self._turn: int | None = None  # the last one asked for in this life

    def note(self, event: Event) -> None:
        if isinstance(event, Born):
            for turn in self._answered:
                self.why.pop(turn, None)
            self._answered.clear()
            self._turn = None  # what is done before the first request may belong to an earlier turn
        elif isinstance(event, Probe) and event.name == "asked":
            self._turn = event.data["turn"]
        elif isinstance(event, Probe) and event.name == "answered":
            if event.data["turn"] not in self.why:
                self._answered.add(event.data["turn"])
                self.why[event.data["turn"]] = "was answered"
        elif isinstance(event, Ack) and event.name == "decided":
            self._settle(event.data["turn"], "was decided")
        elif isinstance(event, Effect) and event.applied and self._turn is not None:
            self._settle(self._turn, "was acted upon")

    def _settle(self, turn: int, why: str) -> None:
        self._answered.discard(turn)
        self.why[turn] = why


def _conversations(history: History) -> Iterator[Violation]:
    told: list[str] = []
    last_told: list[str] = []  # the whole list, including messages rolled back since
    acknowledged = 0
    for event in history.events:
        if isinstance(event, Born):
            del told[acknowledged:]  # the rest may have been rolled back
        elif isinstance(event, Ack) and event.name == "turn":
            acknowledged = max(acknowledged, event.data["messages"])
        elif isinstance(event, Probe) and event.name == "asked":
            said = [*last_told[: event.data.get("after", 0)], *event.data.get("said", [])]
            yield from _same(told, said)
            told, last_told = list(said), said


def _same(before: list[str], now: list[str]) -> Iterator[Violation]:
    for number, (was, found) in enumerate(zip(before, now, strict=False), 1):
        if was != found:
            yield Violation("changed", f"message {number} was {was} and is now {found}")
            return
    if len(now) < len(before):
        yield Violation("forgotten", f"the model was sent {len(before)} messages, then only {len(now)}")


INVARIANT = Invariant(
    name="model-calls",
    summary="no decision is paid for twice, no call lacks its result, no message changes between requests",
    check=check,
)
