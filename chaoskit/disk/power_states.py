"""power_states: the power-loss states of a whole trace, the most revealing first.

An acknowledgement's position is the number of operations done when it was given. Positions right
after a sync or an acknowledgement come first: there the program has just claimed that something is
durable. At each position, the recipe generators of `power` run in order, the random ones last. If the
budget does not cover all positions, the examined ones are spread evenly over the trace.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from copy import deepcopy
from itertools import chain, islice
from typing import TypeVar

from chaoskit.disk.image import Image
from chaoskit.disk.ops import SYNC_KINDS, Profile, Trace
from chaoskit.disk.power import (
    RecipeGenerator,
    apart,
    model_at,
    pairs,
    reordered,
    singles,
    subsets,
    torn,
    under_way,
    whole,
)
from chaoskit.disk.recipe import Candidate, Model

T = TypeVar("T")
Generators = tuple[RecipeGenerator, ...]
LogicalKey = Callable[[Image], Hashable]
BASIC_GENERATORS: Generators = (whole, apart, singles, reordered, torn)
DEEP_GENERATORS: Generators = (pairs, subsets)
MORE_SUBSETS = 5  # rounds of further subsets, while there is budget
STALE = 3000  # stop after this many duplicate states in a row: new ones are unlikely
DEFERRED = 10_000  # similar states that are kept for the end


class PowerState:
    __slots__ = ("acknowledged", "candidate")

    def __init__(self, candidate: Candidate, acknowledged: int) -> None:
        self.candidate = candidate
        self.acknowledged = acknowledged  # number of acknowledgements before the crash

    @property
    def image(self) -> Image:
        return self.candidate.image


def power_states(
    trace: Trace,
    acks: Sequence[int],
    profile: Profile,
    budget: int,
    *,
    seed: int = 0,
    logical_key: LogicalKey | None = None,
) -> Iterator[PowerState]:
    """At most `budget` states, distinct by (content, acknowledgements given). States whose logical key
    repeats under the same acknowledgements come last. If the trace has several lives, the power fails in
    the last one."""
    fresh = _distinct(_all(trace, sorted(acks), profile, budget, seed))
    if logical_key is not None:
        fresh = _similar_last(islice(fresh, budget + budget // 2), logical_key)
    return islice(fresh, budget)


def _all(trace: Trace, acks: Sequence[int], profile: Profile, budget: int, seed: int) -> Iterator[PowerState]:
    first, others = telling_positions(trace, acks)
    everywhere: Sequence[int] = range(trace.base, len(trace.ops) + 1)
    acked = sorted({at for at in acks if at >= trace.base})
    start = model_at(trace, trace.base, profile)  # earlier lives are gone through once
    left_out: list[tuple[Generators, Sequence[int]]] = []
    rounds: tuple[tuple[Generators, Sequence[int], int], ...] = (
        ((whole,), acked, 4),
        ((whole, apart), first, 5),
        ((singles, reordered, torn), first, 12),
        (BASIC_GENERATORS, others, 16),
        (DEEP_GENERATORS, everywhere, 40),
    )
    for generators, positions, each in rounds:
        chosen = spread(positions, budget // each)
        yield from _round(trace, start, acks, profile, seed, generators, chosen)
        left_out.append((generators, sorted(set(positions).difference(chosen))))
    for generators, skipped in left_out:
        yield from _round(trace, start, acks, profile, seed, generators, skipped)
    for again in range(1, MORE_SUBSETS):
        yield from _round(trace, start, acks, profile, seed + again, (subsets,), everywhere)


def telling_positions(trace: Trace, acks: Sequence[int]) -> tuple[list[int], list[int]]:
    claimed = {at + 1 for at, op in enumerate(trace.ops) if op.kind in SYNC_KINDS or op.durable}
    claimed |= set(acks)
    everywhere = range(trace.base, len(trace.ops) + 1)
    return sorted(claimed & set(everywhere)), [at for at in everywhere if at not in claimed]


def spread(positions: Sequence[T], count: int) -> Sequence[T]:
    """At most `count` positions, evenly spread, including the last, where most is pending."""
    if len(positions) <= count:
        return positions
    count = max(1, count)
    return [positions[-1 - i * len(positions) // count] for i in range(count)][::-1]


def _round(
    trace: Trace,
    start: Model,
    acks: Sequence[int],
    profile: Profile,
    seed: int,
    generators: Generators,
    positions: Sequence[int],
) -> Iterator[PowerState]:
    """One pass over the trace: the model is advanced, never rebuilt."""
    model = deepcopy(start)
    for at in positions:
        while model.at < at:
            model.advance(trace.ops[model.at])
        acknowledged = bisect_right(acks, at)
        for candidate in _candidates(model, at, profile, generators, seed):
            yield PowerState(candidate, acknowledged)
        if torn in generators and at < len(trace.ops) and trace.ops[at].durable:
            model.begin(trace.ops[at])
            for candidate in _candidates(model, at, profile, (under_way,), seed):
                yield PowerState(candidate, acknowledged)
            model.finish(trace.ops[at])


def _candidates(
    model: Model, at: int, profile: Profile, generators: Generators, seed: int
) -> Iterator[Candidate]:
    rng = random.Random(f"{seed}/{at}")
    for recipe in chain.from_iterable(generate(model, rng) for generate in generators):
        yield Candidate(at, profile, recipe, model.build(recipe))


def states_at(trace: Trace, at: int, profile: Profile, seed: int = 0) -> Iterator[Candidate]:
    """The distinct states of one position, the most revealing first."""
    model = model_at(trace, at, profile)
    seen: set[int] = set()
    for candidate in _candidates(model, at, profile, (*BASIC_GENERATORS, *DEEP_GENERATORS), seed):
        if candidate.image.digest not in seen:
            seen.add(candidate.image.digest)
            yield candidate


def _distinct(found: Iterator[PowerState]) -> Iterator[PowerState]:
    seen: set[tuple[int, int]] = set()
    stale = 0
    for state in found:
        key = (state.image.digest, state.acknowledged)
        stale += 1
        if key not in seen:
            stale = 0
            seen.add(key)
            yield state
        elif stale > STALE:
            return


def _similar_last(found: Iterator[PowerState], logical_key: LogicalKey) -> Iterator[PowerState]:
    seen: set[tuple[Hashable, int]] = set()
    deferred: list[PowerState] = []
    for state in found:
        key = (logical_key(state.image), state.acknowledged)
        if key not in seen:
            seen.add(key)
            yield state
        elif len(deferred) < DEFERRED:
            deferred.append(state)
    yield from deferred
