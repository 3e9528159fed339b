"""cadence: checkpoints are written at least as often as configured.

Verifies each life against the configured cadence (probe `cadence`). Between two checkpoints (ack `turn`) no
more turns are decided (ack `decided`) than the cadence allows: one, or `turns`. The last checkpoint is
written before the answer is acknowledged (ack `answer`) or the work ends (probe `end`). If the cadence is a
checkpoint after each call, no two calls end (ack `finished`, `surfaced`) between two checkpoints. Cannot
see a cadence in seconds, an unnecessary checkpoint, or calls that only read, which are not acknowledged.
Nor a checkpoint that is missing after an interrupted turn: it may have been written but not acknowledged.

Smallest history that breaks it: cadence per turn, ack decided turn 1, ack decided turn 2.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaoskit.model import Ack, Born, Event, History, Invariant, NothingToJudge, Probe, Violation

ENDS_OF_CALLS = ("finished", "surfaced")


def check(history: History) -> Iterator[Violation]:
    life = _Life()
    for event in history.events:
        yield from life.note(event)
    if not life.judged:
        raise NothingToJudge


class _Life:
    """What happened since the last checkpoint of this life."""

    def __init__(self) -> None:
        self.judged = 0
        self._turns_allowed: int | None = None
        self._each_call = False
        self._turns = self._calls = 0

    def note(self, event: Event) -> Iterator[Violation]:
        if isinstance(event, Born):
            self._turns = self._calls = 0
        elif isinstance(event, Probe) and event.name == "cadence":
            self._each_call = event.data["kind"] == "call"
            self._turns_allowed = event.data["turns"] if event.data["kind"] == "periodic" else 1
        elif isinstance(event, Probe) and event.name == "end":
            yield from self._end()
        elif isinstance(event, Ack):
            yield from self._ack(event.name)

    def _ack(self, name: str) -> Iterator[Violation]:
        if name == "turn":
            self._turns = self._calls = 0
        elif name == "answer":
            yield from self._end()
        elif name == "decided" and self._turns_allowed is not None:
            self._turns, self.judged = self._turns + 1, self.judged + 1
            if self._turns > self._turns_allowed:
                yield self._late()
        elif name in ENDS_OF_CALLS and self._each_call:
            self._calls, self.judged = self._calls + 1, self.judged + 1
            if self._calls > 1:
                yield Violation("calls", f"{self._calls} calls without a checkpoint; at most 1 is allowed")

    def _end(self) -> Iterator[Violation]:
        """The last turn is complete: its checkpoint is due."""
        if self._turns_allowed is not None and self._turns >= self._turns_allowed:
            yield self._late()
        self._turns = self._calls = 0  # reported once

    def _late(self) -> Violation:
        allowed = self._turns_allowed
        return Violation("turns", f"{self._turns} turns without a checkpoint; one is due after {allowed}")


INVARIANT = Invariant(
    name="cadence", summary="a checkpoint is written at least as often as configured", check=check
)
