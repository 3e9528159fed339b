"""Fuzz: a fresh workload for each case, with crashes biased towards places that were crashed rarely.

    case n --> workload with its own seed --> run without faults
                   --> one fault --> one more, in the life after it or in the same --> and one more

Every run of this chain is judged, including the run without faults: a new workload is also a new order of
events. A chain ends with the first run that does not hold. A later fault is drawn from the points that a life
of the run before passed, so every planned fault is expected to fire.

Each fault is of one of the requested kinds. After an error that the target survived, the next fault strikes
the next life, or it is a crash later in the same life (`faults.compound`). A power loss also forgets what
earlier lives had not synced.

Faults are counted per Place, which means the same in every workload. Under `rare` bias, the more often a
place was hit, the less likely it is drawn, half of the later crashes strike a recovery, and one case in four
uses a workload again that had reached new places.

The seed alone determines the campaign, whatever the number of jobs or shards. Cases with equal number
modulo LANES form a lane, and a shard has whole lanes. A case uses only what its own lane learned in finished
rounds: a round is ROUND cases, and no more than that are in flight at once.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from chaoskit.faults.compound import Compound
from chaoskit.faults.kill import NUMBERS
from chaoskit.faults.kind import FaultKind, ends_life
from chaoskit.model import Doubt, Event, Fail, Fault, Firing, Invoke, Ok, PersistPoint, Run, Schedule, Verdict
from chaoskit.search.baseline import judge_undisturbed, strays
from chaoskit.search.outcome import Outcome, Phase, Place, positions, recovery_of
from chaoskit.search.plan import Seen, Shard
from chaoskit.search.rig import Rig
from chaoskit.search.work import WINDOW, Case, WorkItem
from chaoskit.settings import Settings

Bias = Literal["uniform", "rare"]
Drawn = tuple[Schedule, Place]
ROUND = WINDOW + 1
LANES = 16  # the maximum number of shards
DEPTHS = (1, 1, 2, 2, 3)  # crashes per chain
MIXED_DEPTHS = (1, 2, 2, 3, 3)  # ... of several kinds: which follows which matters
RECOVERY_SHARE = 0.5  # of later crashes, under bias
CHANCE = 0.25  # share of uniform draws under bias: a place that is hit often may still hide a bug
AGAIN = 0.25  # share of cases, under bias, with a workload that had reached new places
KEPT = 32  # of these workloads, the latest
SAME_LIFE = 0.5  # share of crashes after an error that strike the same life
STRAYED = Doubt(
    "strayed", "before its crash the run differed from the run without faults: the target is not repeatable"
)


# --- the plan: pure ------------------------------------------------------------------------------


def seed_of(campaign: int, number: int) -> int:
    """Short, because it is printed and typed."""
    digest = hashlib.blake2b(f"{campaign}/{number}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big")


class Hits:
    """Counts faults per place, and keeps the workloads that reached new places. What a case may use of this
    does not depend on jobs or shards."""

    def __init__(self) -> None:
        self._rounds: defaultdict[tuple[int, int], list[tuple[int, Sequence[Place]]]] = defaultdict(list)
        self._known: defaultdict[int, Counter[Place]] = defaultdict(Counter)  # per lane
        self._kept: defaultdict[int, list[int]] = defaultdict(list)  # per lane: seeds
        self._folded: Counter[int] = Counter()  # per lane: the number of rounds included in these two

    def add(self, number: int, places: Sequence[Place], seed: int = 0) -> None:
        self._rounds[number % LANES, number // ROUND].append((seed, places))

    def known_to(self, number: int) -> Counter[Place]:
        """The hits of the case's lane, without the case's own round and the round before it."""
        lane = number % LANES
        while self._folded[lane] < number // ROUND - 1:
            self._fold(lane, self._rounds.pop((lane, self._folded[lane]), []))
            self._folded[lane] += 1
        return self._known[lane]

    def kept_for(self, number: int) -> Sequence[int]:
        """The seeds of the workloads that reached places that were new to the lane, of the same rounds."""
        self.known_to(number)
        return self._kept[number % LANES]

    def _fold(self, lane: int, finished: Iterable[tuple[int, Sequence[Place]]]) -> None:
        known = self._known[lane].copy()  # cases in flight have the one before
        for seed, places in finished:
            if any(place not in known for place in places):
                others = (other for other in self._kept[lane] if other != seed)
                self._kept[lane] = [*others, seed][-KEPT:]
            known.update(places)
        self._known[lane] = known


class Fuzz:
    """A plan of `runs` runs; None: no limit."""

    rounds, exhaustive, recoveries_only, alone, limit = 1, False, False, None, None

    def __init__(
        self, seed: int, runs: int | None, bias: Bias = "rare", depths: Sequence[int] = DEPTHS
    ) -> None:
        self._seed = seed
        self._bias: Bias = bias
        self._depths = depths
        self.most = runs
        self._hits = Hits()

    def items(self, round_number: int, seen: Seen, shard: Shard) -> Iterator[WorkItem]:
        del round_number, seen, shard
        return cases(self._seed, self.most, self._hits, self._bias, self._depths)

    def owns(self, shard: Shard, number: int, item: WorkItem) -> bool:
        del item
        part, parts = shard
        return number % LANES % parts == part

    def order(self, shard: Shard, number: int, each: int) -> tuple[int, ...]:
        del shard
        return number, each

    def learn(self, item: WorkItem, outcomes: Sequence[Outcome]) -> None:
        assert isinstance(item, Case)
        self._hits.add(item.number, [o.place for o in outcomes if o.place and not o.missed], item.seed)


def cases(
    campaign: int, runs: int | None, hits: Hits, bias: Bias = "rare", depths: Sequence[int] = DEPTHS
) -> Iterator[Case]:
    number = planned = 0
    while runs is None or planned < runs:
        seed, draws = _workload(campaign, number, hits.kept_for(number) if bias == "rare" else ())
        # Not of the workload that is used: a shard does not know those of other lanes, but counts their runs.
        crashes = random.Random(f"{seed_of(campaign, number)}/crashes").choice(depths)
        if runs is not None:
            crashes = min(crashes, runs - planned)
        yield Case(number=number, seed=seed, draws=draws, crashes=crashes, hits=hits.known_to(number))
        planned += crashes
        number += 1


def _workload(campaign: int, number: int, kept: Sequence[int]) -> tuple[int, str]:
    """The seed of its workload, and that of its crashes, which differ when a workload is used again."""
    rng = random.Random(f"{campaign}/{number}/again")
    if kept and rng.random() < AGAIN:
        seed = rng.choice(kept)
        return seed, f"{seed}/{number}"
    seed = seed_of(campaign, number)
    return seed, str(seed)


def places(
    firings: Sequence[Firing],
    recovery: int,
    *,
    first: bool,
    kind: str = "kill",
    under_way: Sequence[str] | None = None,
) -> list[Place]:
    """The place of each firing of a life; the first `recovery` firings belong to recovery."""
    found, before = [], "start"
    for number, firing in enumerate(firings):
        phase: Phase = "first life" if first else "recovery" if number < recovery else "later"
        operation = under_way[number] if under_way else ""
        name = NUMBERS.sub("#", firing.point.name)
        found.append(Place(phase, firing.when, name, before, operation, kind))
        before = name
    return found


def operations_under_way(events: Iterable[Event], life: int, trace: Sequence[Firing]) -> list[str]:
    """For each firing, the name of the latest operation that was invoked by then and had not returned."""
    left = [e for e in events if isinstance(e, Invoke | Ok | Fail) and e.life == life][::-1]
    open_now: dict[int, str] = {}
    found = []
    for at in positions(trace):
        while left and left[-1].at <= at:
            event = left.pop()
            if isinstance(event, Invoke):
                open_now[event.op] = event.name
            else:
                open_now.pop(event.op, None)
        found.append(next(reversed(open_now.values()), ""))
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

    def __init__(self, rig: Rig, settings: Settings) -> None:
        self._rig = rig
        self._kinds = settings.kinds
        self._crashes = [kind for kind in self._kinds if not kind.survivable]
        self._profile = settings.profile
        self._bias: Bias = settings.bias or "rare"
        self._reported: set[PersistPoint] = set()

    def examine(self, case: Case) -> tuple[Outcome, ...]:
        """The outcome of the run without faults, then of each crashed run."""
        workload = self._rig.workload(case.seed)
        run, directory = self._rig.run(Schedule(), workload)
        undisturbed, workload = judge_undisturbed(self._rig, run, directory, workload)
        outcomes: list[Outcome] = []
        last = undisturbed
        rng = random.Random(f"{case.draws}/faults")
        while len(outcomes) < case.crashes and last.judgement.verdict is Verdict.HOLDS:
            drawn = self._next(rng, run, case.hits)
            if drawn is None:
                break
            schedule, place = drawn
            run, directory = self._rig.run(schedule, workload)
            if ends_life(schedule.faults[0].parts[0]) and strays(run, workload):
                run = msgspec.structs.replace(run, doubts=(*run.doubts, STRAYED))
            last = self._rig.judge_run(run, directory, workload)
            outcomes.append(msgspec.structs.replace(last, place=place, last_trace=()))
        return (msgspec.structs.replace(undisturbed, last_trace=self._news(undisturbed)), *outcomes)

    def _next(self, rng: random.Random, run: Run, hits: Mapping[Place, int]) -> Drawn | None:
        """The schedule of the run with another fault: in its last life or, if that of the life before it did
        not end that life, there."""
        survived = bool(run.schedule.faults) and not ends_life(run.schedule.faults[-1])
        ways = [self._in_next_life]
        if survived and self._crashes:
            ways = [self._in_same_life, *ways] if rng.random() < SAME_LIFE else [*ways, self._in_same_life]
        return next(filter(None, (way(rng, run, hits) for way in ways)), None)

    def _in_next_life(self, rng: random.Random, run: Run, hits: Mapping[Place, int]) -> Drawn | None:
        faults = run.schedule.faults
        life = len(faults)
        drawn = self._draw(rng, run, life, self._kinds, range(len(run.traces[life])), hits)
        return (Schedule((*faults, drawn[0])), drawn[1]) if drawn else None

    def _in_same_life(self, rng: random.Random, run: Run, hits: Mapping[Place, int]) -> Drawn | None:
        *earlier, latest = run.schedule.faults
        life = len(earlier)
        drawn = self._draw(rng, run, life, self._crashes, _after(latest, run.traces[life]), hits)
        return (Schedule((*earlier, Compound(latest, drawn[0]))), drawn[1]) if drawn else None

    def _draw(
        self,
        rng: random.Random,
        run: Run,
        life: int,
        kinds: Sequence[FaultKind],
        among: Collection[int],
        hits: Mapping[Place, int],
    ) -> tuple[Fault, Place] | None:
        """A fault at one of these firings of a life, of any of the kinds that is possible there."""
        firings, recovery = run.traces[life], recovery_of(run, life)
        under_way = operations_under_way(run.history.events, life, firings)
        for kind in rng.sample(kinds, len(kinds)) if len(kinds) > 1 else kinds:
            every = places(firings, recovery, first=life == 0, kind=kind.name, under_way=under_way)
            where = {n: every[n] for n in among if _possible(kind, firings[n])}
            if not where:
                continue
            number = draw(rng, where, recovery if life else 0, hits, self._bias)
            fault = self._fault(rng, kind, run, life, firings[number])
            if fault:
                return fault, where[number]
        return None

    def _fault(
        self, rng: random.Random, kind: FaultKind, run: Run, life: int, firing: Firing
    ) -> Fault | None:
        if kind.draw:
            return kind.draw(self._rig.recorded(run, life), firing.point, self._profile, rng)
        return rng.choice(kind.at(firing))

    def _news(self, undisturbed: Outcome) -> tuple[Firing, ...]:
        """The points that this process has not reported yet; most have been."""
        fresh = tuple(f for f in undisturbed.last_trace if f.point not in self._reported)
        self._reported |= {firing.point for firing in fresh}
        return fresh


def _possible(kind: FaultKind, firing: Firing) -> bool:
    if kind.draw:
        return firing.when == "before" and firing.point.op is not None
    return bool(kind.at(firing))


def _after(fault: Fault, trace: Sequence[Firing]) -> range:
    """The firings of a life after the fault that it survived. The operation at which a disk error struck is
    left out: what it refused has no number."""
    op = fault.point.op
    if op is None:
        here = [number for number, firing in enumerate(trace) if firing.point == fault.point]
    else:
        here = [number for number, firing in enumerate(trace) if (firing.point.op or 0) <= op]
    return range(here[-1] + 1 if here else 0, len(trace))
