"""status: the derived status always agrees with the log, the boot and the time.

Verifies each reported status (probe `status`) by deriving it again, with independent rules, from the lines
that the log had at that point. Those lines are still there at the end, because the log is append-only.
Cannot see a status that was never requested.

Smallest history that breaks it: probe status `running` in boot B, end with a log in which a run of boot A
was started before that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from chaoskit.model import History, Invariant, NothingToJudge, Probe, Violation, last

ENDS = {"run.completed", "run.failed", "run.cancelled"}


def check(history: History) -> Iterator[Violation]:
    probes = list(history.of(Probe, "status"))
    end = last(history.of(Probe, "end"))
    if not probes or end is None:
        raise NothingToJudge
    events = [json.loads(line) for line in end.data["log"]]
    for probe in probes:
        wanted = expected(events[: probe.data["lines"]], probe.data["boot"], probe.data["now"])
        if probe.data["status"] != wanted:
            yield Violation("wrong", f"the status is {probe.data['status']}, but the log implies {wanted}")


def expected(events: list[dict[str, Any]], boot: str, now: float) -> str:
    starts = [n for n, event in enumerate(events) if event["kind"] == "run.started"]
    if not starts:
        return "idle"
    started, later = events[starts[-1]], events[starts[-1] + 1 :]
    ours = [event for event in later if event.get("run_id") == started["run_id"]]
    kinds = [event["kind"] for event in ours]
    interruption = next((event for event in ours if event["kind"] == "run.interrupted"), None)
    if ENDS & set(kinds):
        return "idle"
    by_restart = interruption is None or interruption["reason"] == "process_restart"
    if started.get("boot_id") != boot and by_restart:
        return "interrupted_startup"
    waits = [event for event in ours if event["kind"] in ("run.waiting", "run.resumed")]
    if waits and waits[-1]["kind"] == "run.waiting":
        good = interruption is None and _can_resume(waits[-1], events, now)
        return "waiting" if good else "interrupted_waiting"
    return "idle" if interruption else "running"


def _can_resume(wait: dict[str, Any], events: list[dict[str, Any]], now: float) -> bool:
    about = [event for event in events if event.get("token_id") == wait["resume_token_id"]]
    if [event["kind"] for event in about] != ["token.minted"]:
        return False
    return now < _seconds(about[0]["expires_at"]) and now < _seconds(wait["deadline_at"])


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


INVARIANT = Invariant(
    name="status", summary="the derived status follows from the log, the boot and the time", check=check
)
