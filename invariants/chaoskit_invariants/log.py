"""prefix-log: the event log is append-only, has no gap from seq 1 on, and keeps what was acknowledged.

Verifies the log each time it is read: complete lines of JSON, seq 1, 2, 3...; it starts with everything
seen in the previous read; it reaches at least the last acknowledged seq. Cannot see a line that was
written, never acknowledged, and lost before the log was read: that is not a loss.

Smallest history that breaks it: ack turn with log_seq 3, crashed, recovered with two lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from chaoskit.model import Ack, History, Invariant, NothingToJudge, Probe, Violation


def check(history: History) -> Iterator[Violation]:
    if not any("log" in probe.data for probe in history.of(Probe)):
        raise NothingToJudge
    acknowledged = 0
    before: list[str] = []
    for event in history.events:
        if isinstance(event, Ack):
            acknowledged = event.data.get("log_seq", acknowledged)
        elif isinstance(event, Probe) and "log" in event.data:
            now = event.data["log"]
            yield from _whole(now)
            yield from _grown(before, now, acknowledged)
            before = now


def _whole(lines: Sequence[str]) -> Iterator[Violation]:
    for number, line in enumerate(lines, 1):
        seq = _seq(line)
        if seq is None:
            yield Violation("damaged", f"line {number} of the log is not a complete event: {line[:80]!r}")
        elif seq != number:
            yield Violation("gap", f"line {number} of the log has seq {seq}")


@lru_cache(maxsize=10_000)  # the runs of one campaign share most of their lines
def _seq(line: str) -> Any:
    try:
        return json.loads(line)["seq"] if line.endswith("\n") else None
    except (ValueError, KeyError, TypeError):
        return None


def _grown(before: list[str], now: list[str], acknowledged: int) -> Iterator[Violation]:
    if now[: len(before)] != before:
        yield Violation("rewritten", "lines of the log were changed or removed since they were last read")
    if len(now) < acknowledged:
        yield Violation("lost", f"seq {acknowledged} was acknowledged, but the log ends at {len(now)}")


INVARIANT = Invariant(
    name="prefix-log",
    summary="the event log is complete, in order, and never loses or rewrites a line",
    check=check,
)
