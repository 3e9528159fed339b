"""Fuzz: a fresh workload for each case, with crashes biased towards places that were crashed rarely.

    case n --> workload with its own seed --> run without faults
                   --> one crash --> one more, in the life after it --> and one more

Every run of this chain is judged, including the run without faults: a new workload is also a new order of
events. A chain ends with the first run that does not hold. A second crash is drawn from the points that
the life after the first one passed, so every planned fault is expected to fire.

Crashes are counted per Place, which means the same in every workload. Under `rare` bias, the more often a
place was hit, the less likely it is drawn, and half of the later crashes strike a recovery.

The seed alone determines the campaign, whatever the number of jobs or shards. Cases with equal number
modulo LANES form a lane, and a shard has whole lanes. The bias of a case uses only hits of its own lane, in
finished rounds: a round is ROUND cases, and no more than that are in flight at once.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from chaoskit.faults.kill import Kill
from chaoskit.faults.kind import kind
from chaoskit.model import Doubt, Fault, Firing, PersistPoint, Schedule, Verdict
from chaoskit.search.baseline import judge_undisturbed, strays
from chaoskit.search.outcome import Outcome, Phase, Place
from chaoskit.search.plan import Seen, Shard
from chaoskit.search.rig import Rig
from chaoskit.search.work import WINDOW, Case, WorkItem

Bias = Literal["uniform", "rare"]
ROUND = WINDOW + 1
LANES = 16  # the maximum number of shards
DEPTHS = (1, 1, 2, 2, 3)  # crashes per chain
RECOVERY_SHARE = 0.5  # of later crashes, under bias
CHANCE = 0.25  # share of uniform draws under bias: a place that is hit often may still hide a bug
STRAYED = Doubt(
    "strayed", "before its crash the run differed from the run without faults: the target is not repeatable"
)


# --- the plan: pure ------------------------------------------------------------------------------


def seed_of(campaign: int, number: int) -> int:
    """Short, because it is printed and typed."""
    digest = hashlib.blake2b(f"{campaign}/{number}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big")


class Hits:
    """Counts crashes per place. What a case may use of them does not depend on jobs or shards."""

    def __init__(self) -> None:
        self._rounds: defaultdict[tuple[int, int], Counter[Place]] = defaultdict(Counter)
        self._known: defaultdict[int, Counter[Place]] = defaultdict(Counter)  # per lane
        self._folded: Counter[int] = Counter()  # per lane: the number of rounds included in _known

    def add(self, number: int, places: Sequence[Place]) -> None:
        self._rounds[number % LANES, number // ROUND].update(places)

    def known_to(self, number: int) -> Counter[Place]:
        """The hits of the case's lane, without the case's own round and the round before it."""
        lane = number % LANES
        while self._folded[lane] < number // ROUND - 1:
            finished = self._rounds.pop((lane, self._folded[lane]), Counter())
            self._known[lane] = self._known[lane] + finished
            self._folded[lane] += 1
        return self._known[lane]


class Fuzz:
    """A plan of `runs` runs; None: no limit."""

    rounds, exhaustive, recoveries_only, alone, limit = 1, False, False, None, None

    def __init__(self, seed: int, runs: int | None) -> None:
        self._seed = seed
        self.most = runs
        self._hits = Hits()

    def items(self, round_number: int, seen: Seen, shard: Shard) -> Iterator[WorkItem]:
        del round_number, seen, shard
        return cases(self._seed, self.most, self._hits)

    def owns(self, shard: Shard, number: int, item: WorkItem) -> bool:
        del item
        part, parts = shard
        return number % LANES % parts == part

    def order(self, shard: Shard, number: int, each: int) -> tuple[int, ...]:
        del shard
        return number, each

    def learn(self, item: WorkItem, outcomes: Sequence[Outcome]) -> None:
        assert isinstance(item, Case)
        self._hits.add(item.number, [o.place for o in outcomes if o.place and not o.missed])


def cases(campaign: int, runs: int | None, hits: Hits) -> Iterator[Case]:
    number = planned = 0
    while runs is None or planned < runs:
        seed = seed_of(campaign, number)
        crashes = random.Random(f"{seed}/crashes").choice(DEPTHS)
        if runs is not None:
            crashes = min(crashes, runs - planned)
        yield Case(number=number, seed=seed, crashes=crashes, hits=hits.known_to(number))
        planned += crashes
        number += 1


def places(firings: Sequence[Firing], recovery: int, *, first: bool) -> list[Place]:
    """The place of each firing of a life; the first `recovery` firings belong to recovery."""
    found, before = [], "start"
    for number, firing in enumerate(firings):
        phase: Phase = "first life" if first else "recovery" if number < recovery else "later"
        found.append(Place(phase, firing.when, firing.point.name, before))
        before = firing.point.name
    return found


def draw(
    rng: random.Random, where: Mapping[int, Place], recovery: int, hits: Mapping[Place, int], bias: Bias
) -> int:
    """The number of the firing to crash at; `where` has the places of the candidates."""
    if bias == "uniform" or rng.random() < CHANCE:
        return rng.choice(list(where))
    early = {number: place for number, place in where.items() if number < recovery}
    among = early if early and rng.random() < RECOVERY_SHARE else where
    groups: dict[Place, list[int]] = {}
    for number, place in among.items():
        groups.setdefault(place, []).append(number)
    weights = [1 / (1 + hits.get(place, 0)) for place in groups]
    return rng.choice(rng.choices(list(groups.values()), weights)[0])


# --- one case ------------------------------------------------------------------------------------


class Fuzzer:
    """Executes cases on a rig."""

    def __init__(self, rig: Rig, fault: str, bias: Bias) -> None:
        self._rig = rig
        self._kind = kind(fault)
        self._bias = bias
        self._reported: set[PersistPoint] = set()

    def examine(self, case: Case) -> tuple[Outcome, ...]:
        """The outcome of the run without faults, then of each crashed run."""
        workload = self._rig.workload(case.seed)
        undisturbed, workload = judge_undisturbed(self._rig, *self._rig.run(Schedule(), workload), workload)
        outcomes: list[Outcome] = []
        last, recovery = undisturbed, 0
        rng = random.Random(f"{case.seed}/faults")
        while len(outcomes) < case.crashes and last.judgement.verdict is Verdict.HOLDS:
            drawn = self._draw(rng, last, recovery, case.hits)
            if drawn is None:
                break
            fault, place = drawn
            run, directory = self._rig.run(Schedule((*last.schedule.faults, fault)), workload)
            if isinstance(run.schedule.faults[0], Kill) and strays(run, workload):
                run = msgspec.structs.replace(run, doubts=(*run.doubts, STRAYED))
            last = self._rig.judge_run(run, directory, workload)
            recovery = last.recovery
            outcomes.append(msgspec.structs.replace(last, place=place, last_trace=()))
        return (msgspec.structs.replace(undisturbed, last_trace=self._news(undisturbed)), *outcomes)

    def _draw(
        self, rng: random.Random, last: Outcome, recovery: int, hits: Mapping[Place, int]
    ) -> tuple[Fault, Place] | None:
        firings = last.last_trace
        every = places(firings, recovery, first=not last.schedule.faults)
        where = {n: every[n] for n, f in enumerate(firings) if self._kind.at(f)}
        if not where:
            return None
        number = draw(rng, where, recovery, hits, self._bias)
        return rng.choice(self._kind.at(firings[number])), where[number]

    def _news(self, undisturbed: Outcome) -> tuple[Firing, ...]:
        """The points that this process has not reported yet; most have been."""
        fresh = tuple(f for f in undisturbed.last_trace if f.point not in self._reported)
        self._reported |= {firing.point for firing in fresh}
        return fresh
