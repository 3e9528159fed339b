"""single-interruption: a run that a crash ended has one `run.interrupted`, any other run has none.

Verifies that each run that was acknowledged or is mentioned in the final log has exactly one end there:
completed, failed, cancelled or interrupted. Cannot see a run that was neither acknowledged nor logged.

Smallest history that breaks it: ack accepted run A, crashed, end with a log in which A is interrupted twice
(or never).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache

from chaoskit.model import Ack, Born, History, Invariant, NothingToJudge, Probe, Violation, last

ENDS = ("run.completed", "run.failed", "run.cancelled")  # all except the interruption


def check(history: History) -> Iterator[Violation]:
    end = last(history.of(Probe, "end"))
    if end is None or len(list(history.of(Born))) < 2:
        raise NothingToJudge
    events = [event for line in end.data["log"] if (event := _event(line))]
    runs = [ack.data["run"] for ack in history.of(Ack, "accepted")]
    runs += [event["run_id"] for event in events if "run_id" in event]
    if not runs:
        raise NothingToJudge
    for run in dict.fromkeys(runs):
        kinds = [event["kind"] for event in events if event.get("run_id") == run]
        yield from _judge(run, kinds.count("run.interrupted"), sum(map(kinds.count, ENDS)))


@lru_cache(maxsize=10_000)  # the runs of one campaign share most of their lines
def _event(line: str) -> dict[str, str] | None:
    """A line that is not an event is left to `prefix-log`."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "kind" in event else None


def _judge(run: str, interrupted: int, ended: int) -> Iterator[Violation]:
    if interrupted > 1:
        yield Violation("repeated", f"{run} has {interrupted} interruption records instead of one")
    elif interrupted and ended:
        yield Violation("contradicted", f"{run} is recorded both as ended and as interrupted")
    elif ended > 1:
        yield Violation("ended-twice", f"{run} has {ended} records of its end instead of one")
    elif not interrupted and not ended:
        yield Violation("missing", f"{run} ended, but the log has no record of it")


INVARIANT = Invariant(
    name="single-interruption",
    summary="each run that a crash ended has exactly one interruption record",
    check=check,
)
