"""Plans: turn observed points into work. Pure: the same seed gives the same items.

A schedule can only name points that are known to be reached, so plans grow in rounds. Round one is
drawn from the run without faults; a schedule with a second crash extends an executed one by a point
that its last life passed. Every planned fault is therefore expected to fire, and one that does not
puts a doubt on the run.

Shards. Every shard plans the same rounds. It runs all of the earlier rounds, because the last is planned
from them, but only its own part of the last round; it counts only its own part of each. The shards of a
campaign therefore add up to exactly the campaign, whatever the plan.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Protocol

import msgspec

from chaoskit.disk.ops import Profile
from chaoskit.disk.power_states import spread
from chaoskit.faults.kill import Kill
from chaoskit.faults.kind import StateSource, kind
from chaoskit.model import Fault, Firing, Schedule
from chaoskit.search.outcome import Outcome
from chaoskit.search.work import CHUNK, JudgeRecovery, JudgeStates, RunSchedule, WorkItem

Shard = tuple[int, int]  # (index, number of shards)
Traces = Mapping[Schedule, Sequence[Firing]]  # the points that the last life of each schedule passed
MOST_ROUNDS = 2
ENOUGH_OF_A_RECOVERY = 12  # states, below which little would be learnt
IN_RECOVERIES = 8  # one in this many power-loss states is one of a recovery
RECOVERIES = 8  # first kills; the distinct recoveries from them are crashed again


class Seen:
    """The traces observed in finished rounds."""

    def __init__(self, baseline: Sequence[Firing], *, recoveries_only: bool) -> None:
        self.traces: dict[Schedule, Sequence[Firing]] = {Schedule(): baseline}
        self.origins: dict[Schedule, str] = {}  # what the last life of each schedule started from
        self._recoveries_only = recoveries_only

    def note(self, outcome: Outcome) -> None:
        extent = outcome.recovery if self._recoveries_only else None
        self.traces[outcome.schedule] = outcome.last_trace[:extent]
        self.origins[outcome.schedule] = outcome.origin


class Plan(Protocol):
    @property
    def rounds(self) -> int: ...

    @property
    def exhaustive(self) -> bool:
        """Whether the plan covers every possible state, unless it is cut short."""
        ...

    @property
    def recoveries_only(self) -> bool:
        """Whether later rounds use only the recovery part of each life."""
        ...

    @property
    def alone(self) -> tuple[str, str] | None:
        """Tier and claim, if its runs have no crash and test only that claim."""
        ...

    @property
    def limit(self) -> int | None:
        """The number of runs after which an exhaustive plan is cut short; None: no limit."""
        ...

    @property
    def most(self) -> int | None:
        """An upper bound on its runs, if it has one and its items cannot be counted in advance."""
        ...

    def items(self, round_number: int, seen: Seen, shard: Shard) -> Iterable[WorkItem]:
        """The work of one round (from 1); a sequence if it can be counted in advance."""
        ...

    def owns(self, shard: Shard, number: int, item: WorkItem) -> bool:
        """Whether this shard counts the item with this number in its round."""
        ...

    def order(self, shard: Shard, number: int, each: int) -> tuple[int, ...]:
        """The place of an outcome in the whole round; the same in every shard."""
        ...

    def learn(self, item: WorkItem, outcomes: Sequence[Outcome]) -> None:
        """Feed back the outcomes of an item before more items are requested."""
        ...


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults that most plans share."""

    @property
    def rounds(self) -> int:
        return 1

    @property
    def exhaustive(self) -> bool:
        return False

    @property
    def recoveries_only(self) -> bool:
        return True

    @property
    def alone(self) -> tuple[str, str] | None:
        return None

    @property
    def limit(self) -> int | None:
        return None

    @property
    def most(self) -> int | None:
        return None

    def owns(self, shard: Shard, number: int, item: WorkItem) -> bool:
        del item
        part, parts = shard
        return number % parts == part

    def order(self, shard: Shard, number: int, each: int) -> tuple[int, ...]:
        del shard
        return number, each

    def learn(self, item: WorkItem, outcomes: Sequence[Outcome]) -> None:
        """Nothing: the next round needs only Seen."""


def _runs(schedules: Iterable[Schedule]) -> list[WorkItem]:
    return [RunSchedule(schedule) for schedule in schedules]


class Sweep(_Plan, frozen=True, kw_only=True):
    """Every fault at every point; then every fault at every point of each distinct recovery.

    Two recoveries that start from the same content, after the same acknowledgements and effects, and pass
    the same points count as one: crashing both at every point would test the same thing twice.
    """

    fault: str = "kill"
    depth: int | None = None  # 1: do not crash recoveries; None: if the kind of fault allows it
    limit: int | None = None

    @property
    def rounds(self) -> int:
        return min(self.depth or MOST_ROUNDS, kind(self.fault).sweep_rounds)

    @property
    def exhaustive(self) -> bool:
        return True

    def items(self, round_number: int, seen: Seen, shard: Shard) -> Sequence[WorkItem]:
        del shard
        return _runs(self.schedules(round_number, seen))

    def schedules(self, round_number: int, seen: Seen) -> Iterator[Schedule]:
        for parent in [Schedule()] if round_number == 1 else different(seen):
            for firing in seen.traces[parent]:
                for fault in kind(self.fault).at(firing):
                    yield Schedule((*parent.faults, fault))


def different(seen: Seen) -> list[Schedule]:
    """One schedule for each distinct recovery; those that pass other points than all before come first."""
    first: dict[tuple[tuple[str, str], ...], Schedule] = {}
    every: dict[tuple[str, tuple[tuple[str, str], ...]], Schedule] = {}
    for schedule, firings in seen.traces.items():
        passed = tuple((firing.point.name, firing.when) for firing in firings)
        if schedule.faults and passed:
            first.setdefault(passed, schedule)
            every.setdefault((seen.origins.get(schedule, ""), passed), schedule)
    return list(dict.fromkeys([*first.values(), *every.values()]))


class Sample(_Plan, frozen=True, kw_only=True):
    """`runs` schedules drawn from the seed: one crash, then two, then three, about a third each.

    Later crashes are biased towards the beginning of a life, where recovery happens.
    """

    seed: int
    runs: int
    fault: str = "kill"

    @property
    def rounds(self) -> int:
        return 3

    @property
    def recoveries_only(self) -> bool:
        return False

    def items(self, round_number: int, seen: Seen, shard: Shard) -> Sequence[WorkItem]:
        del shard
        return _runs(self.schedules(round_number, seen.traces))

    def schedules(self, round_number: int, traces: Traces) -> Iterator[Schedule]:
        rng = random.Random(f"{self.seed}/{round_number}")
        parents = [s for s in traces if len(s.faults) == round_number - 1 and traces[s]]
        done: set[Schedule] = set()
        share = self._share(round_number, sum(bool(schedule.faults) for schedule in traces))
        # Few distinct schedules may exist; a bounded number of draws keeps this finite.
        for _ in range(20 * share):
            if len(done) == share or not parents:
                return
            schedule = self._draw(rng, rng.choice(parents), traces)
            if schedule and schedule not in done:
                done.add(schedule)
                yield schedule

    def _draw(self, rng: random.Random, parent: Schedule, traces: Traces) -> Schedule | None:
        firings = traces[parent]
        fraction = rng.random() if not parent.faults else rng.random() ** 2
        possible = kind(self.fault).at(firings[int(fraction * len(firings))])
        return Schedule((*parent.faults, rng.choice(possible))) if possible else None

    def _share(self, round_number: int, done: int) -> int:
        """Later rounds make up for the schedules that an earlier round could not find."""
        rounds_left = self.rounds - round_number + 1
        return -(-(self.runs - done) // rounds_left)


class RebuiltStates(_Plan, frozen=True, kw_only=True):
    """The crash states of one recording, chunk by chunk, until there are no more."""

    source: StateSource

    @property
    def exhaustive(self) -> bool:
        """Unless `most` is reached; the states of a power loss are always a selection of very many."""
        return not kind(self.source.fault).selects

    @property
    def most(self) -> int | None:
        return self.source.budget

    def items(self, round_number: int, seen: Seen, shard: Shard) -> Iterator[WorkItem]:
        del round_number, seen
        return (JudgeStates(self.source, shard, chunk) for chunk in count())

    def owns(self, shard: Shard, number: int, item: WorkItem) -> bool:
        del shard, number, item
        return True  # an item names the states of one shard only

    def order(self, shard: Shard, number: int, each: int) -> tuple[int, ...]:
        part, parts = shard
        return (part + parts * (number * CHUNK + each),)


class StatesOfRecoveries(_Plan, frozen=True, kw_only=True):
    """Crash states of lives that recover from a kill: `source.budget` of each of a few kills."""

    source: StateSource
    recoveries: int = RECOVERIES

    def items(self, round_number: int, seen: Seen, shard: Shard) -> Sequence[WorkItem]:
        del round_number, shard
        # Between operations only: the trace of a write that was cut short cannot be continued.
        firings = [f for f in seen.traces[Schedule()] if f.when == "before" and f.point.op]
        kills = (Schedule((Kill(f.point, f.when),)) for f in spread(firings, self.recoveries))
        return [JudgeRecovery(self.source, kill) for kill in kills]


def power_in_recoveries(profile: Profile, budget: int, seed: int) -> StatesOfRecoveries:
    """A part of the budget: the power fails while a process recovers from a kill, or works after that."""
    each = max(ENOUGH_OF_A_RECOVERY, budget // IN_RECOVERIES // RECOVERIES)
    return StatesOfRecoveries(source=StateSource(fault="power", profile=profile, budget=each, seed=seed))


class SpreadFaults(_Plan, frozen=True, kw_only=True):
    """About `runs` faults of one tier, spread evenly over the run."""

    fault: str
    tier: str
    runs: int

    def items(self, round_number: int, seen: Seen, shard: Shard) -> Sequence[WorkItem]:
        del round_number, shard
        possible = [self._at(firing) for firing in seen.traces[Schedule()]]
        there = [faults for faults in possible if faults]
        each = max(map(len, there), default=1)
        chosen = spread(there, max(1, self.runs // each))
        return _runs(Schedule((fault,)) for faults in chosen for fault in faults)

    def _at(self, firing: Firing) -> list[Fault]:
        return [fault for fault in kind(self.fault).at(firing) if fault.tier == self.tier]


class Recoveries(_Plan, frozen=True, kw_only=True):
    """A few kills spread over the run, then about `runs` second kills spread over their recoveries."""

    runs: int

    @property
    def rounds(self) -> int:
        return 2

    def items(self, round_number: int, seen: Seen, shard: Shard) -> Sequence[WorkItem]:
        del shard
        if round_number == 1:
            firings = seen.traces[Schedule()]
            return _runs(Schedule((Kill(f.point, f.when),)) for f in spread(firings, RECOVERIES))
        return _runs(spread(list(self._second(seen)), self.runs))

    @staticmethod
    def _second(seen: Seen) -> Iterator[Schedule]:
        for schedule in different(seen):
            for firing in seen.traces[schedule]:
                yield Schedule((*schedule.faults, Kill(firing.point, firing.when)))


class Watch(_Plan, frozen=True, kw_only=True):
    """Runs without a crash: the workload itself disturbs the target, and one claim is judged."""

    tier: str
    claim: str
    runs: int = 1

    @property
    def alone(self) -> tuple[str, str] | None:
        return self.tier, self.claim

    def items(self, round_number: int, seen: Seen, shard: Shard) -> Sequence[WorkItem]:
        del round_number, seen, shard
        return _runs(Schedule() for _ in range(self.runs))
