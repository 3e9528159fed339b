"""Difference: where two runs part that should be the same, and the likely cause. Pure.

The cause is guessed from the difference itself: two numbers that look like the present time, two random ids,
the same operations in another order. What does not look like any of these is only shown.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from chaoskit.disk.ops import Op, Trace
from chaoskit.model import Run
from chaoskit.recording import labels

CLOCK = (
    "a wall clock: take the time from a clock that the caller can set, or put the clock under the seed"
    ' (`clock = "seeded"` in the adapter)'
)
ID = (
    "a random id from a source that does not follow the seed (random, uuid4, os.urandom and names of"
    " temporary files do): derive it from these"
)
NUMBER = "a process id, a counter or an address: derive it from what is stored"
ORDER = "the same operations in another order: threads or tasks that run at once; let one of them write"
UNCLEAR = (
    "a wall clock, a thread or a random id in a file name or in the order of writes: derive it from the seed,"
    " or let one thread write"
)
MOST = 60  # bytes around a difference
# Seconds, milli-, micro- or nanoseconds since 1970 between 2014 and 2033, or a date.
_TIME = re.compile(
    r"(?<!\d)1[4-9]\d{8}(\d{3}){0,3}(?!\d)|20\d\d[-_]?[01]\d[-_]?[0-3]\d([-_T]?\d{6})?(?!\d)"
    r"|[0-2]?\d:[0-5]\d:[0-5]\d"
)
_ID = re.compile(r"(?<![0-9a-z])(?=[0-9a-f-]*[a-f])[0-9a-f]{6,}(-[0-9a-f]{4,})*(?![0-9a-z])", re.IGNORECASE)
_WORD = re.compile(r"[\w:-]+")


def of_runs(one: Run, other: Run) -> str:
    for mine, theirs in itertools.zip_longest(one.traces[0], other.traces[0]):
        if mine != theirs:
            names = [str(firing.point) if firing else "nothing" for firing in (mine, theirs)]
            cause = cause_of(*names)
            if cause is UNCLEAR and _same_in_another_order(one.traces[0], other.traces[0]):
                cause = ORDER
            return f"one run passes {names[0]} where the other passes {names[1]} ({cause})"
    for event, its in itertools.zip_longest(one.history.events, other.history.events):
        if event != its:
            texts = repr(event), repr(its)
            return "one run reports {} where the other reports {} ({})".format(
                *_around_the_difference(*texts), cause_of(*texts)
            )
    return UNCLEAR


def of_traces(one: Trace, other: Trace) -> str:
    """Empty if both did the same, byte for byte."""
    mine, theirs = _named(one), _named(other)
    for (a, name), (b, other_name) in itertools.zip_longest(mine, theirs, fillvalue=(None, "nothing")):
        if a is None or b is None or (name, a.offset, a.length) != (other_name, b.offset, b.length):
            texts = _described(a, name), _described(b, other_name)
            cause = cause_of(*texts)
            if cause is UNCLEAR and _same_in_another_order([n for _, n in mine], [n for _, n in theirs]):
                cause = ORDER
            return f"one run does {texts[0]} where the other does {texts[1]} ({cause})"
        if a.data != b.data:
            texts = _around_the_difference(repr(a.data)[2:-1], repr(b.data)[2:-1])
            return f"{name} writes {texts[0]!r} in one run and {texts[1]!r} in the other ({cause_of(*texts)})"
    return ""


def cause_of(one: str, other: str) -> str:
    """From the first words in which two texts differ, with what surrounds them."""
    for pattern, cause in ((_TIME, CLOCK), (_ID, ID)):
        found = [{match.group() for match in pattern.finditer(text)} for text in (one, other)]
        if found[0] - found[1] and found[1] - found[0]:
            return cause
    for mine, theirs in zip(_WORD.findall(one), _WORD.findall(other), strict=False):
        if mine != theirs:
            same_but_digits = re.sub(r"\d+", "0", mine) == re.sub(r"\d+", "0", theirs)
            return NUMBER if same_but_digits else UNCLEAR
    return UNCLEAR


def _same_in_another_order(one: Sequence[object], other: Sequence[object]) -> bool:
    return sorted(map(str, one)) == sorted(map(str, other))


def _named(trace: Trace) -> list[tuple[Op | None, str]]:
    return list(zip(trace.ops, labels(trace), strict=True))


def _described(op: Op | None, name: str) -> str:
    if op is None or op.kind != "write":
        return name
    start = repr(op.data[:MOST])[2:-1]
    return f"{name} ({op.length} bytes at {op.offset}: {start!r})"


def _around_the_difference(one: str, other: str) -> tuple[str, str]:
    """The parts of two texts around the place where they differ."""
    pairs = enumerate(zip(one, other, strict=False))
    same = next((n for n, (mine, its) in pairs if mine != its), min(len(one), len(other)))
    start = max(0, same - MOST // 2)
    return one[start : start + MOST], other[start : start + MOST]
