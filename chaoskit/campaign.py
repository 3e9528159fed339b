"""A campaign: one scenario, one plan, all its schedules on several cores, one result.

Results do not depend on the number of jobs: schedules come from the plan in order, rounds wait for
each other, and outcomes are counted in the order of the schedules.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing import get_context
from pathlib import Path

import msgspec

from chaoskit import __version__, registry, repro
from chaoskit.inside.zygote import die_with_parent
from chaoskit.model import (
    Ended,
    Event,
    Finding,
    Firing,
    Judgement,
    Kill,
    Repro,
    Run,
    Schedule,
    Verdict,
)
from chaoskit.oracle import judge
from chaoskit.plan import Plan, Sample, Sweep
from chaoskit.story import tell
from chaoskit.supervisor import Supervisor
from chaoskit.workspace import Workspace
from chaoskit.zygote import CannotStart, Zygote

TIER = "process"  # what a kill of the process puts to the test


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides what a campaign does; printed before it starts."""

    scenario: str
    seed: int = 0
    plan: str = "sweep"
    runs: int = 100  # of a sample
    seconds: float | None = None
    jobs: int = 1
    mutant: str | None = None
    cold: bool = False
    deadline: float | None = None
    shard: tuple[int, int] = (0, 1)  # this one of so many equal parts of the schedules
    keep: str | None = None  # where runs that did not hold are saved


class Witness(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with the run that shows it."""

    finding: Finding
    schedule: Schedule
    token: str
    story: tuple[str, ...]  # the run in a few lines
    kept: str | None
    times: int = 1  # runs of this campaign that showed the same


class Tally(msgspec.Struct, kw_only=True):
    """What was done at one point by one fault, and what came of it."""

    runs: int = 0
    fired: int = 0
    verdict: Verdict = Verdict.NOT_MEASURED  # the worst
    times: int = 0  # that the worst was met

    def add(self, verdict: Verdict) -> None:
        if verdict.rank > self.verdict.rank:
            self.verdict, self.times = verdict, 0
        self.times += verdict is self.verdict


class Result(msgspec.Struct, frozen=True, kw_only=True):
    settings: Settings
    verdict: Verdict
    runs: int
    points: int
    fired: int
    missed: int
    seconds: float
    claims: dict[str, Verdict]
    witnesses: tuple[Witness, ...]
    doubts: tuple[str, ...]  # reasons for UNKNOWN
    table: dict[str, dict[str, Tally]]  # point name -> fault -> tally


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker sends back of one run."""

    schedule: Schedule
    judgement: Judgement
    fired: int
    last_trace: tuple[Firing, ...]
    story: tuple[str, ...] = ()  # of a run that did not hold
    kept: str | None = None


class CannotTest(Exception):
    """Nothing can be said about the target: it does not start, or fails without any fault."""


Progress = Callable[[int, int | None], None]  # (runs done, runs planned so far)


# --- one run, in whichever process does it --------------------------------------------------------


class Bench:
    """A supervisor with its zygote, workspace and oracle, ready to run schedules one by one."""

    def __init__(self, settings: Settings, directory: Path, session: str) -> None:
        scenario = registry.scenario(settings.scenario)
        mutant = registry.mutant(scenario, settings.mutant) if settings.mutant else None
        self.invariants = registry.invariants_of(scenario)
        self._directory = directory
        self._keep = settings.keep
        self._zygote = Zygote(scenario.target, session=session, cold=settings.cold)
        self._supervisor = Supervisor(
            scenario, self._zygote, seed=settings.seed, mutant=mutant, deadline=settings.deadline
        )
        self._numbers = itertools.count()

    def close(self) -> None:
        self._zygote.close()

    def run(self, schedule: Schedule, baseline: tuple[Event, ...]) -> tuple[Run, Path]:
        directory = self._directory / f"run-{os.getpid()}-{next(self._numbers)}"
        return self._supervisor.carry_out(schedule, directory, baseline), directory

    def judge(self, schedule: Schedule, baseline: tuple[Event, ...]) -> Outcome:
        run, directory = self.run(schedule, baseline)
        judgement = judge(run, self.invariants)
        kept: str | None = None
        story: tuple[str, ...] = ()
        if judgement.verdict is not Verdict.HOLDS:
            story = tell(run.history)
            kept = keep(directory, Path(self._keep), schedule) if self._keep else None
        shutil.rmtree(directory)
        return Outcome(
            schedule=schedule,
            judgement=judgement,
            fired=run.fired,
            last_trace=run.traces[-1],
            story=story,
            kept=kept,
        )


def keep(directory: Path, where: Path, schedule: Schedule) -> str:
    """Save a run's directory under a name that says what was done to it."""
    name = "_".join(f"{f.when}-{f.point}" for f in schedule.faults) or "no-fault"
    place = where / name.replace("/", "-")
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(directory, place)
    return str(place)


# --- several cores -----------------------------------------------------------------------------

_bench: Bench | None = None  # of this worker process
_baseline: tuple[Event, ...] = ()


def _start_worker(
    settings: Settings, directory: Path, session: str, baseline: tuple[Event, ...], parent: int
) -> None:
    global _bench, _baseline  # a pool's worker has no other place for its state
    die_with_parent(parent)
    _bench, _baseline = Bench(settings, directory, session), baseline


def _work(schedule: Schedule) -> Outcome:
    assert _bench is not None
    return _bench.judge(schedule, _baseline)


@contextmanager
def _no_ctrl_c() -> Iterator[None]:
    """Around whatever may start a process of the pool, which inherits the blocked signal.

    Ctrl-C is for the parent, which then ends its workers, also while they are still starting.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Pool:
    """Maps schedules to outcomes, in order, on `jobs` processes (or in this one)."""

    def __init__(
        self, settings: Settings, workspace: Workspace, bench: Bench, baseline: tuple[Event, ...]
    ) -> None:
        self._bench = bench
        self._baseline = baseline
        self._jobs = settings.jobs
        self._executor: ProcessPoolExecutor | None = None
        if settings.jobs > 1:
            arguments = (settings, workspace.path, workspace.session, baseline, os.getpid())
            with _no_ctrl_c():
                self._executor = ProcessPoolExecutor(
                    settings.jobs, get_context("spawn"), _start_worker, arguments
                )

    def outcomes(self, schedules: Iterable[Schedule]) -> Iterator[Outcome]:
        if self._executor is None:
            yield from (self._bench.judge(s, self._baseline) for s in schedules)
            return
        pending: list[Future[Outcome]] = []
        for schedule in schedules:
            with _no_ctrl_c():
                pending.append(self._executor.submit(_work, schedule))
            if len(pending) > 2 * self._jobs:
                yield pending.pop(0).result()
        for future in pending:
            yield future.result()

    def close(self) -> None:
        if self._executor:
            self._executor.shutdown(wait=True, cancel_futures=True)


# --- the whole ---------------------------------------------------------------------------------


def run_campaign(settings: Settings, progress: Progress = lambda _done, _planned: None) -> Result:
    """Raises CannotTest when the target does not even survive being left alone."""
    started = time.monotonic()
    with _open_bench(settings) as (bench, workspace):
        baseline = undisturbed(bench)
        counter = _Counter(settings, baseline, judge(baseline, bench.invariants))
        pool = _Pool(settings, workspace, bench, baseline.history.events)
        with closing(pool):
            for outcome in _outcomes(settings, pool, baseline, started, progress):
                counter.add(outcome)
    return counter.result(time.monotonic() - started)


def replay(settings: Settings, schedule: Schedule) -> Result:
    """One schedule, judged as it was in its campaign."""
    started = time.monotonic()
    with _open_bench(settings) as (bench, _):
        baseline = undisturbed(bench)
        counter = _Counter(settings, baseline, judge(baseline, bench.invariants), whole=False)
        if schedule.faults:
            counter.add(bench.judge(schedule, baseline.history.events))
    return counter.result(time.monotonic() - started)


def points(settings: Settings) -> tuple[Firing, ...]:
    """Where the target persists when nothing happens to it."""
    with _open_bench(settings) as (bench, _):
        return undisturbed(bench).traces[0]


@contextmanager
def _open_bench(settings: Settings) -> Iterator[tuple[Bench, Workspace]]:
    with Workspace() as workspace:
        try:
            with closing(Bench(settings, workspace.path, workspace.session)) as bench:
                yield bench, workspace
        except CannotStart as error:
            raise CannotTest(f"the target cannot be started: {error}") from None


def undisturbed(bench: Bench) -> Run:
    """The run without faults, done twice: if it is not the same twice, no comparison means anything."""
    first, directory = bench.run(Schedule(), ())
    _check_completed(first, directory)
    second, _ = bench.run(Schedule(), ())
    if (first.history, first.traces) != (second.history, second.traces):
        raise CannotTest(
            "two runs with the same seed and without faults differ: "
            "the target takes time, ids or randomness from outside its seed"
        )
    return msgspec.structs.replace(
        first, history=msgspec.structs.replace(first.history, baseline=first.history.events)
    )


def _check_completed(run: Run, directory: Path) -> None:
    end = next(reversed(list(run.history.of(Ended))))
    if end.how != "completed":
        said = (directory / "stderr-0").read_text(errors="replace").strip()
        raise CannotTest(f"its run without faults {end.how}: {end.detail.strip()}\n{said}".strip())
    if not run.traces[0]:
        raise CannotTest(
            "its run without faults passed no persist point: "
            'expected sys.audit("persist.point", name, "before" or "after") around each durable change'
        )


def plan_of(settings: Settings) -> Plan:
    return Sweep() if settings.plan == "sweep" else Sample(settings.seed, settings.runs)


def _outcomes(
    settings: Settings, pool: _Pool, baseline: Run, started: float, progress: Progress
) -> Iterator[Outcome]:
    plan = plan_of(settings)
    seen: dict[Schedule, tuple[Firing, ...]] = {Schedule(): baseline.traces[0]}
    done = planned = 0
    part, parts = settings.shard
    for number in range(1, plan.rounds() + 1):
        schedules = list(plan.schedules(number, seen))[part::parts]
        planned += len(schedules)
        progress(done, planned)
        for outcome in pool.outcomes(_until(schedules, started, settings.seconds)):
            seen[outcome.schedule] = outcome.last_trace
            done += 1
            progress(done, planned)
            yield outcome


def _until(
    schedules: Iterable[Schedule], started: float, seconds: float | None
) -> Iterator[Schedule]:
    for schedule in schedules:
        if seconds is not None and time.monotonic() - started > seconds:
            return
        yield schedule


class _Counter:
    """Adds up outcomes to a Result."""

    def __init__(
        self, settings: Settings, baseline: Run, judgement: Judgement, *, whole: bool = True
    ) -> None:
        """`whole`: every claim has to be put to the test; a replay shows one run only."""
        self._settings = settings
        self._whole = whole
        self._points = {firing.point for firing in baseline.traces[0]}
        self._claims = dict(judgement.claims)
        self._witnesses: dict[str, Witness] = {}
        self._doubts: dict[str, None] = {}
        self._table: dict[str, dict[str, Tally]] = {}
        self._runs = self._fired = self._missed = 0
        self._note(judgement, Schedule(), tell(baseline.history), None)
        # That an undisturbed run has nothing to judge (no recovery, no interruption) is no doubt.
        for name, verdict in self._claims.items():
            if verdict is Verdict.HOLDS:
                self._claims[name] = Verdict.NOT_MEASURED

    def add(self, outcome: Outcome) -> None:
        self._runs += 1
        self._fired += outcome.fired == len(outcome.schedule.faults)
        self._missed += len(outcome.schedule.faults) - outcome.fired
        for name, verdict in outcome.judgement.claims.items():
            self._claims[name] = Verdict.merge([self._claims[name], verdict])
        self._count(outcome)
        self._note(outcome.judgement, outcome.schedule, outcome.story, outcome.kept)

    def _count(self, outcome: Outcome) -> None:
        fault = outcome.schedule.faults[-1]
        row = self._table.setdefault(fault.point.name, {})
        tally = row.setdefault(fault_name(fault), Tally())
        tally.runs += 1
        tally.fired += outcome.fired == len(outcome.schedule.faults)
        tally.add(outcome.judgement.verdict)

    def _note(
        self, judgement: Judgement, schedule: Schedule, story: tuple[str, ...], kept: str | None
    ) -> None:
        self._doubts |= dict.fromkeys(judgement.doubts)
        for finding in {f.signature: f for f in reversed(judgement.findings)}.values():
            known = self._witnesses.get(finding.signature)
            # The first witness of the fewest crashes is the one that is easiest to read.
            if known is None or len(schedule.faults) < len(known.schedule.faults):
                witness = Witness(
                    finding=finding, schedule=schedule, token=self._token(finding, schedule),
                    story=story, kept=kept, times=known.times if known else 0,
                )  # fmt: skip
            else:
                witness = known
            self._witnesses[finding.signature] = msgspec.structs.replace(
                witness, times=witness.times + 1
            )

    def _token(self, finding: Finding, schedule: Schedule) -> str:
        return repro.encode(
            Repro(
                version=__version__,
                scenario=self._settings.scenario,
                mutant=self._settings.mutant,
                seed=self._settings.seed,
                schedule=schedule,
                signature=finding.signature,
            )
        )

    def _importance(self, witness: Witness) -> int:
        """In the order in which the scenario names its invariants."""
        return list(self._claims).index(witness.finding.invariant)

    def result(self, seconds: float) -> Result:
        for name, verdict in self._claims.items():
            if verdict is Verdict.NOT_MEASURED and self._whole:
                self._doubts[f"nothing that happened put {name} to the test"] = None
        if not self._runs and self._whole:
            self._doubts["no schedule was run"] = None
        floor = Verdict.UNKNOWN if self._doubts else Verdict.HOLDS
        return Result(
            settings=self._settings,
            verdict=Verdict.merge([floor, *self._claims.values()]),
            runs=self._runs,
            points=len(self._points),
            fired=self._fired,
            missed=self._missed,
            seconds=seconds,
            claims=self._claims,
            witnesses=tuple(sorted(self._witnesses.values(), key=self._importance)),
            doubts=tuple(self._doubts),
            table=self._table,
        )


def fault_name(fault: Kill) -> str:
    return f"kill {fault.when}"
