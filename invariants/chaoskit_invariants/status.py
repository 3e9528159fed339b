"""status: the derived status always agrees with the log, the boot and the time.

Verifies each reported status (probe `status`) by deriving it again, with independent rules, from the lines
that the log had at that point. Those lines are still there at the end, because the log is append-only. A
status that the log itself reports (line `status.derived`) is derived again from the lines before it.
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
    events = [json.loads(line) for line in end.data["log"]] if end else []
    if end is None or not (probes or any(event["kind"] == "status.derived" for event in events)):
        raise NothingToJudge
    for probe in probes:
        lines, found = probe.data["lines"], probe.data["status"]
        if lines > len(events):
            yield Violation("lost", f"a status was derived from {lines} lines, but {len(events)} are left")
            continue
        wanted = expected(events[:lines], probe.data["boot"], probe.data["now"])
        if found != wanted:
            yield Violation("wrong", f"the status is {found}, but the log implies {wanted}")
    yield from recorded(events)


def recorded(events: list[dict[str, Any]]) -> Iterator[Violation]:
    boot: str | None = None
    for number, event in enumerate(events):
        if event["kind"] == "boot.seen":
            boot = event["boot_id"]
        elif event["kind"] == "status.derived" and boot is not None:
            time = _seconds(event["ts"])  # whole seconds: it was derived within the one that follows
            wanted = [expected(events[:number], boot, now) for now in (time, time + 1)]
            if event["status"] not in wanted:
                found = f"{event['status']}, but the lines before it imply {wanted[0]}"
                yield Violation("wrong", f"line {number + 1} of the log has the status {found}")


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
    token = about[0]
    other = any(token.get(name) not in (None, wait.get(name)) for name in ("run_id", "wait_kind"))
    limits = (token.get("expires_at"), wait.get("deadline_at"))
    return not other and all(limit is None or now < _seconds(limit) for limit in limits)


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


INVARIANT = Invariant(
    name="status", summary="the derived status follows from the log, the boot and the time", check=check
)
