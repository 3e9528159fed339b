"""bookkeeping: checkpoint versions, tokens and failed attempts are each counted once.

Verifies the store each time it is read. Checkpoint versions are 1, 2, 3... without a gap, and there are at
least as many as were acknowledged (ack `turn`). Every acknowledged decision (ack `decided`) has its tokens
counted once, as many as the model charged (probe `answered`). The failed attempts of a turn are numbered 0,
1, 2..., the numbering continues after a crash, every acknowledged attempt is present, and there are no more
attempts than requests (probe `asked`). What one read found, every later read finds. Cannot see numbers that
no table stores.

Smallest history that breaks it: ack decided turn 1, end without tokens of turn 1.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from chaoskit.model import Ack, Born, Event, History, Invariant, NothingToJudge, Probe, Violation

TABLES = {"checkpoints": "versions", "usage": "usage", "errors": "errors"}  # and the kind of violation


def check(history: History) -> Iterator[Violation]:
    due = _Due()
    before: dict[str, Any] | None = None
    for event in history.events:
        due.note(event)
        if isinstance(event, Probe) and "usage" in event.data:
            found = event.data
            yield from _versions(found, due)
            yield from _usage(found["usage"], due)
            yield from _errors(found["errors"], due)
            if before is not None:
                yield from _kept(before, found)
            before = found
    if before is None:
        raise NothingToJudge


class _Due:
    """What the store must contain by now."""

    def __init__(self) -> None:
        self.checkpoints = 0
        self.tokens: dict[int, int | None] = {}  # by decided turn; None: nobody reported the charge
        self.attempts: Counter[tuple[int, int]] = Counter()
        self.requests: Counter[int] = Counter()
        # Charges of this life that no decision was acknowledged for yet. In order: a target whose disk
        # fails acknowledges several decisions late.
        self._charges: deque[int] = deque()

    def note(self, event: Event) -> None:
        if isinstance(event, Born):
            self._charges.clear()
        elif isinstance(event, Probe) and event.name == "answered":
            self._charges.append(event.data["tokens"])
        elif isinstance(event, Probe) and event.name == "asked":
            self.requests[event.data["turn"]] += 1
        elif isinstance(event, Ack) and event.name == "decided":
            self.tokens[event.data["turn"]] = self._charges.popleft() if self._charges else None
        elif isinstance(event, Ack) and event.name == "turn":
            self.checkpoints += 1
        elif isinstance(event, Ack) and event.name == "failed-attempt":
            self.attempts[event.data["turn"], event.data["attempt"]] += 1


def _versions(found: dict[str, Any], due: _Due) -> Iterator[Violation]:
    highest, count = found["versions"]
    versions = found.get("checkpoints")
    if (highest or 0) != count:
        yield Violation("versions", f"there are {count} checkpoints, but the last has version {highest}")
    elif versions is not None and sorted(versions) != list(range(1, count + 1)):
        yield Violation("versions", f"the checkpoint versions are {versions}, not 1 to {count}")
    elif count < due.checkpoints:
        acknowledged = f"{due.checkpoints} checkpoints were acknowledged"
        yield Violation("versions", f"{acknowledged}, but {count} are stored")


def _usage(usage: list[tuple[int, int]], due: _Due) -> Iterator[Violation]:
    for turn, times in Counter(turn for turn, _ in usage).items():
        if times > 1:
            yield Violation("usage", f"the tokens of turn {turn} are counted {times} times")
    counted = dict(usage)
    for turn, tokens in due.tokens.items():
        if turn not in counted:
            yield Violation("usage", f"turn {turn} was decided, but its tokens are not counted")
        elif tokens is not None and counted[turn] != tokens:
            yield Violation("usage", f"turn {turn} cost {tokens} tokens, but {counted[turn]} are counted")


def _errors(errors: list[tuple[int, int]], due: _Due) -> Iterator[Violation]:
    last: dict[int, int] = {}
    for turn, attempt in errors:
        if attempt != last.get(turn, -1) + 1:
            before = f"attempt {last[turn]}" if turn in last else "no attempt"
            yield Violation("attempts", f"turn {turn}: attempt {attempt} follows {before}")
        last[turn] = attempt
    for turn, attempt in due.attempts - Counter((turn, attempt) for turn, attempt in errors):
        yield Violation("errors", f"turn {turn}: attempt {attempt} was acknowledged, but is not stored")
    for turn, times in Counter(turn for turn, _ in errors).items():
        if times > due.requests[turn] > 0:
            made = due.requests[turn]
            yield Violation("attempts", f"turn {turn} has {times} failed attempts, but only {made} were made")


def _kept(before: dict[str, Any], now: dict[str, Any]) -> Iterator[Violation]:
    earlier, count = before["versions"][1], now["versions"][1]
    if count < earlier:
        yield Violation("versions", f"there were {earlier} checkpoints, but only {count} are left")
    for table, kind in TABLES.items():
        rows, rest = _rows(before, table), _rows(now, table)
        for row in rows - rest:
            yield Violation(kind, f"{row} was in {table} when the store was last read, but is gone now")


def _rows(found: dict[str, Any], table: str) -> Counter[str]:
    return Counter(str(list(row) if isinstance(row, tuple) else row) for row in found.get(table, ()))


INVARIANT = Invariant(
    name="bookkeeping",
    summary="checkpoint versions, tokens and failed attempts are each counted exactly once",
    check=check,
)
