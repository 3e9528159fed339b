"""A campaign: one scenario under the faults that were asked for, on several cores; one Result.

kill     schedules of the plan, run into for real
disk     one error at every operation, run into for real
power    one recording, every state that a loss of power could have left, rebuilt and recovered
         from; what does not hold is made as small as it gets, and run into for real
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import count
from typing import TypeVar

import msgspec

from chaoskit import registry
from chaoskit.bench import Bench, CannotTest, Outcome, open_bench, undisturbed
from chaoskit.disk import hint
from chaoskit.disk.image import Image
from chaoskit.model import Event, Finding, Firing, PowerLoss, Run, Schedule
from chaoskit.oracle import judge
from chaoskit.plan import Plan, Sample, Sweep
from chaoskit.pool import Pool
from chaoskit.recording import CrashState, Recording, candidate_of, points as disk_points, state_of
from chaoskit.result import Counter, Result, Witness
from chaoskit.settings import Settings

__all__ = ["CannotTest", "Result", "Settings", "points", "replay", "run_campaign"]

Progress = Callable[[int, int | None], None]  # (runs done, runs planned so far)
T = TypeVar("T")


def run_campaign(settings: Settings, progress: Progress = lambda _done, _planned: None) -> Result:
    """Raises CannotTest when the target does not even survive being left alone."""
    started = time.monotonic()
    settings = registry.resolved(settings)
    clock = _Clock(started, settings.seconds, progress)
    counter: Counter | None = None
    for fault in settings.faults:
        part = msgspec.structs.replace(settings, faults=(fault,))
        with open_bench(part) as (bench, workspace):
            counter = counter or Counter(settings, [i.name for i in bench.invariants])
            baseline = undisturbed(bench)
            counter.add_undisturbed(
                judge(baseline, bench.invariants), (firing.point for firing in baseline.traces[0])
            )
            recording = bench.record() if fault == "power" else None
            events = baseline.history.events
            with closing(Pool(part, workspace, bench, events, recording)) as pool:
                for outcome in _outcomes(fault, part, pool, baseline, clock):
                    counter.add(outcome)
            if recording:
                _confirm_all(counter, bench, recording, events)
    assert counter is not None, "settings always name a fault"
    return counter.result(time.monotonic() - started)


def _outcomes(
    fault: str, settings: Settings, pool: Pool, baseline: Run, clock: _Clock
) -> Iterator[Outcome]:
    if fault == "power":
        return clock.counted(pool.states(clock.while_time(count())), settings.power_states)
    return _planned_outcomes(plan_of(fault, settings), settings, pool, baseline, clock)


def _planned_outcomes(
    plan: Plan, settings: Settings, pool: Pool, baseline: Run, clock: _Clock
) -> Iterator[Outcome]:
    seen: dict[Schedule, tuple[Firing, ...]] = {Schedule(): baseline.traces[0]}
    part, parts = settings.shard
    for number in range(1, plan.rounds() + 1):
        schedules = list(plan.schedules(number, seen))[part::parts]
        found = pool.outcomes(clock.while_time(schedules))
        for outcome in clock.counted(found, len(schedules)):
            seen[outcome.schedule] = outcome.last_trace[: plan.extent(outcome.recovery)]
            yield outcome


def plan_of(fault: str, settings: Settings) -> Plan:
    if settings.plan == "sample":
        return Sample(settings.seed, settings.sample_runs, fault)
    return Sweep(fault)


class _Clock:
    """Stops in time, and tells how far it has come."""

    def __init__(self, started: float, seconds: float | None, progress: Progress) -> None:
        self._started = started
        self._seconds = seconds
        self._progress = progress
        self._done = self._planned = 0

    def while_time(self, tasks: Iterable[T]) -> Iterator[T]:
        for task in tasks:
            if self._seconds is not None and time.monotonic() - self._started > self._seconds:
                return
            yield task

    def counted(self, outcomes: Iterator[Outcome], planned: int) -> Iterator[Outcome]:
        self._planned += planned
        self._progress(self._done, self._planned)
        for outcome in outcomes:
            self._done += 1
            self._progress(self._done, self._planned)
            yield outcome


# --- from a rebuilt state to a finding that stands -----------------------------------------------


def _confirm_all(
    counter: Counter, bench: Bench, recording: Recording, baseline: tuple[Event, ...]
) -> None:
    for witness in counter.unconfirmed():
        smallest = _minimise(witness, bench, recording, baseline)
        confirmed = None
        for schedule in dict.fromkeys([smallest, witness.schedule]):
            confirmed = confirmed or _met_for_real(witness, schedule, counter, bench, baseline)
        if confirmed:
            lines = _hint(recording, confirmed.schedule)
            confirmed = msgspec.structs.replace(confirmed, hint=lines)
        counter.confirm(witness, confirmed)


def _minimise(
    witness: Witness, bench: Bench, recording: Recording, baseline: tuple[Event, ...]
) -> Schedule:
    """The same failure with as little lost as possible."""
    (fault,) = witness.schedule.faults
    assert isinstance(fault, PowerLoss)
    candidate = candidate_of(recording.trace, fault)

    def still_bad(image: Image) -> bool:
        state = CrashState(candidate.at, image, fault)
        found = bench.judge_state(recording, state, baseline).judgement.findings
        return any(finding.signature == witness.finding.signature for finding in found)

    smallest = hint.minimise(recording.trace, candidate, still_bad)
    return Schedule((state_of(smallest, disk_points(recording.trace)).fault,))


def _met_for_real(
    witness: Witness,
    schedule: Schedule,
    counter: Counter,
    bench: Bench,
    baseline: tuple[Event, ...],
) -> Witness | None:
    outcome = bench.judge(schedule, baseline)
    for finding in outcome.judgement.findings:
        if finding.signature == witness.finding.signature:
            return _witness(witness, finding, outcome, counter)
    return None


def _witness(known: Witness, finding: Finding, outcome: Outcome, counter: Counter) -> Witness:
    return msgspec.structs.replace(
        known,
        finding=finding,
        schedule=outcome.schedule,
        token=counter.token(finding, outcome.schedule),
        story=outcome.story,
        kept=outcome.kept,
        rebuilt=False,
    )


def _hint(recording: Recording, schedule: Schedule) -> tuple[str, ...]:
    fault = schedule.faults[-1]
    assert isinstance(fault, PowerLoss)
    candidate = candidate_of(recording.trace, fault)
    claimed = [at for at in recording.claims() if at <= candidate.at]
    last = claimed[-1] if claimed else None
    return tuple(str(hint.explain(recording.trace, candidate, last)).splitlines())


# --- less than a campaign ------------------------------------------------------------------------


def replay(settings: Settings, schedule: Schedule) -> Result:
    """One schedule, really carried out, judged as it was in its campaign."""
    started = time.monotonic()
    settings = registry.resolved(settings)
    with open_bench(settings) as (bench, _):
        baseline = undisturbed(bench)
        counter = Counter(settings, [i.name for i in bench.invariants], whole=False)
        counter.add_undisturbed(judge(baseline, bench.invariants), ())
        if schedule.faults:
            counter.add(bench.judge(schedule, baseline.history.events))
    return counter.result(time.monotonic() - started)


def points(settings: Settings) -> tuple[Firing, ...]:
    """Where the target persists when nothing happens to it."""
    with open_bench(settings) as (bench, _):
        return undisturbed(bench).traces[0]
