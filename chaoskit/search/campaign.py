"""A campaign: one scenario under the faults that were asked for, on several cores; one Result.

kill     schedules of the plan, run into for real; a fuzz draws a new workload for each few of them
disk     one error at every operation, run into for real
power    one recording, every state that a loss of power could have left, rebuilt and recovered
         from; what does not hold is made as small as it gets, and run into for real
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import count, islice
from typing import TypeVar

import msgspec

from chaoskit import registry
from chaoskit.model import Firing, Schedule
from chaoskit.search.confirm import confirm_all
from chaoskit.search.execution import Pool
from chaoskit.search.fuzz import Hits, cases as fuzz_cases
from chaoskit.search.plan import Plan, Sample, Sweep
from chaoskit.search.result import Counter, Result
from chaoskit.search.rig import CannotTest, Outcome, judge_undisturbed, open_bench, undisturbed
from chaoskit.settings import Settings

__all__ = ["CannotTest", "Result", "Settings", "points", "replay", "run_campaign"]

T = TypeVar("T")


class SoFar(msgspec.Struct, frozen=True):
    """How far a campaign has come."""

    runs: int
    planned: int | None  # so far; None: nobody knows
    covered: int  # places at which a fault struck
    findings: int
    seconds: float


Progress = Callable[[SoFar], None]


def run_campaign(settings: Settings, progress: Progress = lambda _so_far: None) -> Result:
    """Raises CannotTest when the target does not even survive being left alone."""
    settings = registry.resolved(settings)
    clock = _Clock(settings.seconds, progress)
    counter: Counter | None = None
    for fault in settings.faults:
        part = msgspec.structs.replace(settings, faults=(fault,))
        with open_bench(part) as (bench, workspace):
            counter = counter or Counter(settings, [i.name for i in bench.invariants])
            baseline, workload = undisturbed(bench)
            counter.add(baseline)
            recording = bench.record(workload) if fault == "power" else None
            with closing(Pool(part, workspace, bench, workload, recording)) as pool:
                for outcome in _outcomes(fault, part, pool, baseline, clock):
                    counter.add(outcome)
                    clock.tell(counter)
                    if settings.until_violation and counter.findings:
                        break
            if recording:
                confirm_all(counter, bench, recording, workload)
    assert counter is not None, "settings always name a fault"
    return counter.result(clock.seconds)


def _outcomes(
    fault: str, settings: Settings, pool: Pool, baseline: Outcome, clock: _Clock
) -> Iterator[Outcome]:
    if fault == "power":
        clock.plan(settings.power_states)
        return pool.states(settings.profile, clock.while_time(count()))
    if settings.fuzzes:
        return _fuzz_outcomes(settings, pool, clock)
    return _planned_outcomes(plan_of(fault, settings), settings, pool, baseline, clock)


def _planned_outcomes(
    plan: Plan, settings: Settings, pool: Pool, baseline: Outcome, clock: _Clock
) -> Iterator[Outcome]:
    seen: dict[Schedule, tuple[Firing, ...]] = {Schedule(): baseline.last_trace}
    part, parts = settings.shard
    for number in range(1, plan.rounds() + 1):
        schedules = list(plan.schedules(number, seen))[part::parts]
        clock.plan(len(schedules))
        for outcome in pool.outcomes(clock.while_time(schedules)):
            seen[outcome.schedule] = outcome.last_trace[: plan.extent(outcome.recovery)]
            yield outcome


def _fuzz_outcomes(settings: Settings, pool: Pool, clock: _Clock) -> Iterator[Outcome]:
    hits = Hits()
    part, parts = settings.shard
    cases = fuzz_cases(settings.seed, settings.fuzz_runs, hits)
    clock.plan(settings.fuzz_runs)
    for examined in pool.cases(clock.while_time(islice(cases, part, None, parts))):
        hits.add(examined.number, [o.place for o in examined.outcomes if not o.missed])
        yield examined.undisturbed
        yield from examined.outcomes


def plan_of(fault: str, settings: Settings) -> Plan:
    if settings.plan == "sample":
        return Sample(settings.seed, settings.sample_runs, fault)
    return Sweep(fault)


class _Clock:
    """Stops in time, and tells how far it has come."""

    def __init__(self, limit: float | None, progress: Progress) -> None:
        self._started = time.monotonic()
        self._limit = limit
        self._progress = progress
        self._planned: int | None = 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def while_time(self, tasks: Iterable[T]) -> Iterator[T]:
        for task in tasks:
            if self._limit is not None and self.seconds > self._limit:
                return
            yield task

    def plan(self, runs: int | None) -> None:
        known = runs is not None and self._planned is not None
        self._planned = (self._planned or 0) + (runs or 0) if known else None

    def tell(self, counter: Counter) -> None:
        done = (counter.runs, self._planned, counter.covered, counter.findings, self.seconds)
        self._progress(SoFar(*done))


# --- less than a campaign ------------------------------------------------------------------------


def replay(settings: Settings, schedule: Schedule) -> Result:
    """One schedule, really carried out, judged as it was in its campaign."""
    started = time.monotonic()
    settings = registry.resolved(settings)
    with open_bench(settings) as (bench, _):
        counter = Counter(settings, [i.name for i in bench.invariants], whole=False)
        if schedule.faults:
            baseline, workload = undisturbed(bench)
            counter.add(baseline)
            counter.add(bench.judge(schedule, workload))
        else:  # what is wrong is wrong without any
            workload = bench.workload()
            run, directory = bench.run(schedule, workload)
            counter.add(judge_undisturbed(bench, run, directory, workload)[0])
    return counter.result(time.monotonic() - started)


def points(settings: Settings) -> tuple[Firing, ...]:
    """Where the target persists when nothing happens to it."""
    with open_bench(settings) as (bench, _):
        return undisturbed(bench)[0].last_trace
