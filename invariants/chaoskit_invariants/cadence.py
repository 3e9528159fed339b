"""cadence: checkpoints are written at least as often as configured.

Verifies each life against the configured cadence (probe `cadence`): between two checkpoints (ack `turn`) no
more turns are decided (ack `decided`) than it allows, one or `turns`; with a checkpoint after each call, no
two calls end (ack `finished`, `surfaced`). Cannot see a cadence in seconds, an unnecessary checkpoint, or
calls that only read: they are not acknowledged.

Smallest history that breaks it: cadence per turn, ack decided turn 1, ack decided turn 2.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaoskit.model import Ack, Born, History, Invariant, NothingToJudge, Probe, Violation

ENDS_OF_CALLS = ("finished", "surfaced")


def check(history: History) -> Iterator[Violation]:
    turns_allowed: int | None = None
    each_call = False
    turns = calls = judged = 0
    for event in history.events:
        if isinstance(event, Probe) and event.name == "cadence":
            each_call = event.data["kind"] == "call"
            turns_allowed = event.data["turns"] if event.data["kind"] == "periodic" else 1
        elif isinstance(event, Born) or (isinstance(event, Ack) and event.name == "turn"):
            turns = calls = 0
        elif isinstance(event, Ack) and event.name == "decided" and turns_allowed is not None:
            turns, judged = turns + 1, judged + 1
            if turns > turns_allowed:
                yield Violation(
                    "turns", f"{turns} turns without a checkpoint, at most {turns_allowed} allowed"
                )
        elif isinstance(event, Ack) and event.name in ENDS_OF_CALLS and each_call:
            calls, judged = calls + 1, judged + 1
            if calls > 1:
                yield Violation("calls", f"{calls} calls without a checkpoint, at most 1 allowed")
    if not judged:
        raise NothingToJudge


INVARIANT = Invariant(
    name="cadence", summary="a checkpoint is written at least as often as configured", check=check
)
