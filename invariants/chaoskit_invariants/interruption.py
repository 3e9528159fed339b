"""single-interruption: a run that a crash ended has one `run.interrupted`; any other run has none.

Verifies that each run that was acknowledged or is mentioned in the final log has a start there, and after
it exactly one end: completed, failed, cancelled or interrupted. A crash ended the run if its own life had
not recorded its end: the lines that the next life found (probe `found`) show that. Such a run is
interrupted, or completed if the store already had its answer. A run whose life did not end is interrupted
only if it waited.

Without `found`, an end that was recorded as failed or cancelled needs a reason: an operation that failed, a
request that was cancelled, or the same end without a crash. Cannot see a run that was neither acknowledged
nor logged.

Smallest history that breaks it: ack accepted run A, crashed, end with a log in which A is interrupted twice
(or never, or cancelled).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from chaoskit.model import (
    Ack,
    Born,
    Crashed,
    Fail,
    History,
    Invariant,
    NothingToJudge,
    Probe,
    Violation,
    last,
)

INTERRUPTED = "run.interrupted"
ENDS = ("run.completed", "run.failed", "run.cancelled")  # all except the interruption
BY_A_RESTART = (None, "process_restart")  # older logs have no reason
Line = tuple[int, dict[str, Any]]  # with its number in the log, from 1


def check(history: History) -> Iterator[Violation]:
    end = last(history.of(Probe, "end"))
    if end is None:
        raise NothingToJudge
    lines = list(_events(end.data["log"]))
    runs = [ack.data["run"] for ack in history.of(Ack, "accepted")]
    runs += [event["run_id"] for _, event in lines if "run_id" in event]
    restarted = len(list(history.of(Born))) > 1
    if not runs or not (restarted or any(event["kind"] == INTERRUPTED for _, event in lines)):
        raise NothingToJudge
    lives = _Lives(history, end.life, lines)
    for run in dict.fromkeys(runs):
        own = [(number, event) for number, event in lines if event.get("run_id") == run]
        found = list(_once(run, [event["kind"] for _, event in own]))
        yield from found or _earned(run, own, lives, lines)


def _events(log: Iterable[str]) -> Iterator[Line]:
    for number, line in enumerate(log, 1):
        event = _event(line)
        if event is not None:
            yield number, event


@lru_cache(maxsize=10_000)  # the runs of one campaign share most of their lines
def _event(line: str) -> dict[str, Any] | None:
    """A line that is not an event is left to `prefix-log`."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "kind" in event else None


def _once(run: str, kinds: list[str]) -> Iterator[Violation]:
    """Check that there is one end, after a start.

    A restart may infer an interruption from the log before it learns from the store how the run had ended.
    """
    interrupted, ended = kinds.count(INTERRUPTED), sum(map(kinds.count, ENDS))
    if interrupted > 1:
        yield Violation("repeated", f"{run} has {interrupted} interruption records instead of one")
    elif interrupted and ended and kinds.index(INTERRUPTED) > _first_end(kinds):
        yield Violation("contradicted", f"{run} is recorded both as ended and as interrupted")
    elif ended > 1:
        yield Violation("ended-twice", f"{run} has {ended} records of its end instead of one")
    elif not interrupted and not ended:
        yield Violation("missing", f"{run} ended, but the log has no record of it")
    elif "run.started" not in kinds[: kinds.index(next(k for k in kinds if k in (INTERRUPTED, *ENDS)))]:
        yield Violation("unstarted", f"{run} has a record of its end, but no record of its start before it")


def _first_end(kinds: list[str]) -> int:
    return next(place for place, kind in enumerate(kinds) if kind in ENDS)


def _earned(run: str, own: list[Line], lives: _Lives, lines: list[Line]) -> Iterator[Violation]:
    """Check that the one end is the right one."""
    number, end = next((n, event) for n, event in own if event["kind"] in (INTERRUPTED, *ENDS))
    start = next(event for _, event in own if event["kind"] == "run.started")
    life = lives.of_run(start)
    if life is None:
        return
    if end["kind"] == INTERRUPTED:
        waited = any(event["kind"] == "run.waiting" and n < number for n, event in own)
        by_a_restart = end.get("reason") in BY_A_RESTART
        if not by_a_restart and not waited:
            yield Violation("unearned", f"{run} is recorded as {end['reason']}, but it did not wait")
        elif by_a_restart and (life == lives.last or lives.of_line(number) == life):
            yield Violation("unearned", f"{run} is recorded as interrupted, but no crash had ended it")
    elif life in lives.crashed and not lives.ended_itself(life, number, end, lines):
        yield Violation(
            "misrecorded", f"a crash ended {run}, but it is recorded as {end['kind'].removeprefix('run.')}"
        )


class _Lives:
    """What each life did, as far as the history shows it."""

    def __init__(self, history: History, last_life: int, lines: list[Line]) -> None:
        self.last = last_life
        self.crashed = {crash.life for crash in history.of(Crashed)}
        self._history = history
        self._requests = {ack.data["run"]: ack.data["request"] for ack in history.of(Ack, "accepted")}
        self._runs = {ack.data["run"]: ack.life for ack in history.of(Ack, "accepted")}
        starts = (event for _, event in lines if event["kind"] == "run.started" and "boot_id" in event)
        self._boots = {e["boot_id"]: self._runs[e["run_id"]] for e in starts if e["run_id"] in self._runs}
        found = {probe.life: probe.data["lines"] for probe in history.of(Probe, "found")}
        self._found = {0: 0} | found if found else {}

    def of_run(self, start: dict[str, Any]) -> int | None:
        """The life of the run: the start of an interrupted run may have been logged by a later one."""
        return self._runs.get(start["run_id"], self._boots.get(start.get("boot_id")))

    def of_line(self, number: int) -> int | None:
        """The life that wrote the line: the last one that found fewer lines. None: nothing is known."""
        return max((life for life, lines in self._found.items() if lines < number), default=None)

    def ended_itself(self, life: int, number: int, end: dict[str, Any], lines: list[Line]) -> bool:
        """Whether the run may have ended before the crash, in the way that is recorded."""
        writer = self.of_line(number)
        if writer == life:
            return True
        if end["kind"] == "run.completed":
            return writer is None or self._was_answered(end["run_id"], writer)
        cancelled = writer is None and any(
            event["kind"] == "request.cancelled" and event["request_id"] == self._requests.get(end["run_id"])
            for _, event in lines
        )
        failed = any(fail.life == life for fail in self._history.of(Fail))
        return cancelled or failed or end["kind"] in self._ends_without_a_crash()

    def _was_answered(self, run: str, life: int) -> bool:
        """Whether the store had the run's answer when the life that recorded its end looked."""
        looks = (p for p in self._history.of(Probe) if p.life >= life and "answers" in p.data)
        answers: dict[str, str | None] = next((probe.data["answers"] for probe in looks), {})
        return run not in self._requests or answers.get(self._requests[run]) is not None

    def _ends_without_a_crash(self) -> set[str]:
        expected = next(self._history.expected(Probe, "end"), None)
        return {event["kind"] for _, event in _events(expected.data["log"] if expected else ())}


INVARIANT = Invariant(
    name="single-interruption",
    summary="each run that a crash ended has exactly one interruption record",
    check=check,
)
