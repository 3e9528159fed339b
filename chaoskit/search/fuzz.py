"""Fuzz: a fresh workload for each case, and crashes where there have been few.

    case n --> workload of its own seed --> run without faults
                   --> one crash --> one more, in the life after it --> and one more

Every run of this chain is judged, the one without faults as well: a new workload is also a new order of
events. A chain ends with the first run that does not hold. A second crash is drawn from what the life
after the first was seen to pass, so that every planned fault is expected to fire.

A *place* is a point without its number, with the point before it and the stage that its life is in: it
means the same in every workload, so that one can count where crashes have struck. Under `rare` bias a
place is drawn the less often, the more often it was hit, and half of the later crashes strike a recovery.

One seed, one campaign, whatever the number of jobs: a case may know what the rounds before the last one
have hit, which are over by then, and nothing else.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from chaoskit.model import Fault, Firing, Kill, PersistPoint, Schedule, Verdict
from chaoskit.search.plan import faults_at
from chaoskit.search.rig import Bench, Outcome, judge_undisturbed, strays

Bias = Literal["uniform", "rare"]
Stage = Literal["first life", "recovery", "later"]
ROUND = 32  # cases; no more of them are under way at the same time
DEPTHS = (1, 1, 2, 2, 3)  # how many crashes a chain has
RECOVERY_SHARE = 0.5  # of later crashes, under bias
CHANCE = 0.25  # of the draws are uniform under bias, too: what is hit often may still hide something
STRAYED = "the run went another way before its crash than without one: the target is not repeatable"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    seed: int  # of its workload
    crashes: int  # in the last run of its chain
    hits: Mapping[str, int]  # per place, as far as this case may know


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a case."""

    number: int
    undisturbed: Outcome
    outcomes: tuple[Outcome, ...]


# --- the plan: pure ------------------------------------------------------------------------------


def seed_of(campaign: int, number: int) -> int:
    """Short, because it is printed and typed."""
    digest = hashlib.blake2b(f"{campaign}/{number}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big")


class Hits:
    """Where crashes have struck, told in such a way that the number of jobs does not matter."""

    def __init__(self) -> None:
        self._rounds: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._known: Counter[str] = Counter()
        self._told = 0  # rounds that are in it

    def add(self, number: int, places: Sequence[str]) -> None:
        self._rounds[number // ROUND].update(places)

    def known_to(self, number: int) -> Counter[str]:
        """Those of all rounds but the case's own and the one before it."""
        while self._told < number // ROUND - 1:
            self._known = self._known + self._rounds.pop(self._told, Counter())
            self._told += 1
        return self._known


def cases(campaign: int, runs: int | None, hits: Hits) -> Iterator[Case]:
    """For ever, or until there are so many runs."""
    number = planned = 0
    while runs is None or planned < runs:
        seed = seed_of(campaign, number)
        crashes = random.Random(f"{seed}/crashes").choice(DEPTHS)
        if runs is not None:
            crashes = min(crashes, runs - planned)
        yield Case(number=number, seed=seed, crashes=crashes, hits=hits.known_to(number))
        planned += crashes
        number += 1


def places(firings: Sequence[Firing], recovery: int, *, first: bool) -> list[str]:
    """Of each firing in its life; the first `recovery` of them belong to recovery."""
    found, before = [], "start"
    for number, firing in enumerate(firings):
        stage: Stage = "first life" if first else "recovery" if number < recovery else "later"
        found.append(f"{stage}: {firing.when} {firing.point.name}, after {before}")
        before = firing.point.name
    return found


def draw(
    rng: random.Random, where: Mapping[int, str], recovery: int, hits: Mapping[str, int], bias: Bias
) -> int:
    """The number of the firing to strike at; `where` has the places of those that can be struck."""
    if bias == "uniform" or rng.random() < CHANCE:
        return rng.choice(list(where))
    early = {number: place for number, place in where.items() if number < recovery}
    among = early if early and rng.random() < RECOVERY_SHARE else where
    groups: dict[str, list[int]] = {}
    for number, place in among.items():
        groups.setdefault(place, []).append(number)
    weights = [1 / (1 + hits.get(place, 0)) for place in groups]
    return rng.choice(rng.choices(list(groups.values()), weights)[0])


# --- one case ------------------------------------------------------------------------------------


class Fuzzer:
    """Examines cases on a bench."""

    def __init__(self, bench: Bench, fault: str, bias: Bias) -> None:
        self._bench = bench
        self._fault = fault
        self._bias = bias
        self._told: set[PersistPoint] = set()

    def examine(self, case: Case) -> Examined:
        workload = self._bench.workload(case.seed)
        undisturbed, workload = judge_undisturbed(
            self._bench, *self._bench.run(Schedule(), workload), workload
        )
        outcomes: list[Outcome] = []
        last, recovery = undisturbed, 0
        rng = random.Random(f"{case.seed}/faults")
        while len(outcomes) < case.crashes and last.judgement.verdict is Verdict.HOLDS:
            drawn = self._draw(rng, last, recovery, case.hits)
            if drawn is None:
                break
            fault, place = drawn
            run, directory = self._bench.run(Schedule((*last.schedule.faults, fault)), workload)
            if isinstance(run.schedule.faults[0], Kill) and strays(run, workload):
                run = msgspec.structs.replace(run, doubts=(*run.doubts, STRAYED))
            last = self._bench.judge_run(run, directory, workload)
            recovery = last.recovery
            outcomes.append(msgspec.structs.replace(last, place=place, last_trace=()))
        return Examined(
            number=case.number,
            undisturbed=msgspec.structs.replace(undisturbed, last_trace=self._news(undisturbed)),
            outcomes=tuple(outcomes),
        )

    def _draw(
        self, rng: random.Random, last: Outcome, recovery: int, hits: Mapping[str, int]
    ) -> tuple[Fault, str] | None:
        firings = last.last_trace
        every = places(firings, recovery, first=not last.schedule.faults)
        where = {n: every[n] for n, f in enumerate(firings) if faults_at(f, self._fault)}
        if not where:
            return None
        number = draw(rng, where, recovery, hits, self._bias)
        return rng.choice(faults_at(firings[number], self._fault)), where[number]

    def _news(self, undisturbed: Outcome) -> tuple[Firing, ...]:
        """Of the points that it passed, those that this process has not told yet: most are known."""
        fresh = tuple(f for f in undisturbed.last_trace if f.point not in self._told)
        self._told |= {firing.point for firing in fresh}
        return fresh
