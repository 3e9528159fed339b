"""bookkeeping: versions, tokens and attempts are each counted once.

Verifies the store each time it is read: checkpoint versions are 1, 2, 3... without a gap; no turn has its
tokens counted twice; the failed attempts of a turn are numbered 0, 1, 2..., the numbering continues after a
crash, and every acknowledged attempt is present. Cannot see numbers that no table stores.

Smallest history that breaks it: ack failed-attempt 0, crashed, end with attempts 0 and 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from chaoskit.model import Ack, History, Invariant, NothingToJudge, Probe, Violation


def check(history: History) -> Iterator[Violation]:
    looks = 0
    acknowledged = 0
    for event in history.events:
        if isinstance(event, Ack) and event.name == "failed-attempt":
            acknowledged += 1
        elif isinstance(event, Probe) and "usage" in event.data:
            looks += 1
            yield from _judge(event.data, acknowledged)
    if not looks:
        raise NothingToJudge


def _judge(found: dict[str, Any], acknowledged: int) -> Iterator[Violation]:
    highest, count = found["versions"]
    if (highest or 0) != count:
        yield Violation("versions", f"there are {count} checkpoints, but the last has version {highest}")
    turns = Counter(turn for turn, _ in found["usage"])
    for turn, times in turns.items():
        if times > 1:
            yield Violation("usage", f"the tokens of turn {turn} are counted {times} times")
    if len(found["errors"]) < acknowledged:
        stored = len(found["errors"])
        yield Violation("errors", f"{acknowledged} failed attempts were acknowledged, {stored} are stored")
    yield from _attempts(found["errors"])


def _attempts(errors: list[tuple[int, int]]) -> Iterator[Violation]:
    last: dict[int, int] = {}
    for turn, attempt in errors:
        if attempt != last.get(turn, -1) + 1:
            yield Violation(
                "attempts", f"turn {turn}: attempt {attempt} follows attempt {last.get(turn, 'none')}"
            )
        last[turn] = attempt


INVARIANT = Invariant(
    name="bookkeeping",
    summary="checkpoint versions, tokens and failed attempts are each counted exactly once",
    check=check,
)
