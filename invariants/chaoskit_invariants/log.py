"""prefix-log: the event log is append-only, has no gap from seq 1 on, and keeps what was acknowledged.

Verifies the log each time it is read: complete lines of JSON, seq 1, 2, 3...; it starts with everything
seen in the previous read; it reaches at least the highest acknowledged seq, and the line there is about the
run, the turn or the request that was acknowledged with it. Cannot see a line that was written, never
acknowledged, and lost before the log was read: that is not a loss.

Smallest history that breaks it: ack turn with log_seq 3, crashed, recovered with two lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from chaoskit.model import Ack, History, Invariant, NothingToJudge, Probe, Violation

# What an acknowledgement names, and what the line calls it.
NAMES = {"run": "run_id", "turn": "turn", "request": "request_id"}


def check(history: History) -> Iterator[Violation]:
    if not any("log" in probe.data for probe in history.of(Probe)):
        raise NothingToJudge
    acknowledged: dict[int, Ack] = {}
    before: list[str] = []
    for event in history.events:
        if isinstance(event, Ack) and "log_seq" in event.data:
            acknowledged[event.data["log_seq"]] = event
        elif isinstance(event, Probe) and "log" in event.data:
            now = event.data["log"]
            yield from _whole(now)
            yield from _grown(before, now)
            yield from _kept(acknowledged, now)
            before = now


def _whole(lines: Sequence[str]) -> Iterator[Violation]:
    for number, line in enumerate(lines, 1):
        seq = _event(line).get("seq")
        if type(seq) is not int:
            yield Violation("damaged", f"line {number} of the log is not a complete event: {line[:80]!r}")
        elif seq != number:
            yield Violation("gap", f"line {number} of the log has seq {seq}")


@lru_cache(maxsize=10_000)  # the runs of one campaign share most of their lines
def _event(line: str) -> dict[str, Any]:
    """The event of a complete line; empty if it is not one."""
    try:
        event = json.loads(line) if line.endswith("\n") else None
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _grown(before: list[str], now: list[str]) -> Iterator[Violation]:
    if now[: len(before)] != before:
        yield Violation("rewritten", "lines of the log have been changed or removed since the last read")


def _kept(acknowledged: dict[int, Ack], now: list[str]) -> Iterator[Violation]:
    newest = max(acknowledged, default=0)
    if len(now) < newest:
        yield Violation("lost", f"seq {newest} was acknowledged, but the log ends at {len(now)}")
    for seq, ack in acknowledged.items():
        event = _event(now[seq - 1]) if 0 < seq <= len(now) else {}
        for name, field in NAMES.items():
            if name in ack.data and field in event and ack.data[name] != event[field]:
                found = f"{field} {event[field]}"
                yield Violation(
                    "rewritten", f"seq {seq} was acknowledged for {name} {ack.data[name]}, but has {found}"
                )


INVARIANT = Invariant(
    name="prefix-log",
    summary="the event log is complete, in order, and never loses or rewrites a line",
    check=check,
)
