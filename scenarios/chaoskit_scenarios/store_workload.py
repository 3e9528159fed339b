"""The workload of a store under certification, drawn from the seed. Pure.

Two workloads. The *usual* one is short, because every crash state of it is judged: about thirty changes of
a few sessions whose names contain or resemble one another, sizes from nothing to a million characters, a
deletion. No state is saved twice: adapters may derive a version's id from the number in it. The *long* one
reaches what happens rarely: the 64th and the 128th save, compaction, automatic checkpoints, many sessions. Of
its crash states only the distinctive ones are judged.

Drawn with `random`, not with Hypothesis: a token must mean the same workload under any version of it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

Step = dict[str, Any]
# Prefixes of one another, equal once punctuation or case is ignored, and not ASCII.
NAMES = ("a", "ab", "a-b", "a_b", "é")
MORE_NAMES = ("A", "a.b", "a b", "0", "b")
CHANGES = 30
LONG = 130  # changes of the long workload, which crosses 64 and 128
SESSIONS_OF_LONG = 24
SIZES = (0, 3, 40, 40, 200, 900, 5_000, 20_000)
LARGE = 1_000_000  # one of them
LONG_SIZES = (0, 3, 20, 40, 80, 200)
BULKY = 300_000  # several in a row: SQLite's log then passes its limit of 1000 pages


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What the adapter allows."""

    kinds: tuple[str, ...]  # save, append, or both
    deletes: bool
    changes: int = CHANGES
    largest: int = LARGE
    names: tuple[str, ...] = ()  # empty: those of this module


def usual(seed: int, shape: Shape) -> list[Step]:
    rng = random.Random(seed)
    names = shape.names or NAMES[: max(2, min(len(NAMES), shape.changes // 5))]
    sizes = [rng.choice(SIZES) for _ in range(shape.changes)]
    sizes[max(0, shape.changes - 3)] = LARGE  # late: every look after it reads it again
    steps = list(_changes(rng, shape, sizes, _sessions(rng, names, shape.changes)))
    if shape.deletes:
        _delete(steps, shape.changes * 2 // 3)
    return steps


def long(seed: int, shape: Shape) -> list[Step]:
    rng = random.Random(f"long/{seed}")
    count = LONG if shape.changes >= CHANGES else min(LONG, 4 * shape.changes)
    many = (*NAMES, *MORE_NAMES, *(f"user-{n}" for n in range(SESSIONS_OF_LONG - 10)))
    names = shape.names or many[: max(2, min(len(many), count // 3))]
    sizes = [rng.choice(LONG_SIZES) for _ in range(count)]
    for place in range(count // 2, min(count, count // 2 + 14)):
        sizes[place] = BULKY
    steps = list(_changes(rng, shape, sizes, _sessions(rng, names, count)))
    if shape.deletes:
        _delete(steps, count * 3 // 4)
    return steps


def _sessions(rng: random.Random, names: Sequence[str], count: int) -> list[str]:
    """Every name at least once where there is room; the first ones more often."""
    weights = [len(names) - place for place in range(len(names))]
    chosen = [*names, *rng.choices(names, weights, k=max(0, count - len(names)))][:count]
    rng.shuffle(chosen)
    return chosen


def _changes(
    rng: random.Random, shape: Shape, sizes: Sequence[int], sessions: Sequence[str]
) -> Iterator[Step]:
    for n, (size, session) in enumerate(zip(sizes, sessions, strict=True), 1):
        do = rng.choice(shape.kinds) if len(shape.kinds) > 1 else shape.kinds[0]
        yield {"do": do, "session": session, "n": n, "size": min(size, shape.largest)}


def _delete(steps: list[Step], place: int) -> None:
    """The session that has most to delete by then."""
    place = max(1, place)
    there = Counter(step["session"] for step in steps[:place])
    ((session, _),) = there.most_common(1)
    steps.insert(place, {"do": "delete", "session": session})
