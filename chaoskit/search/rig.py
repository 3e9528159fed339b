"""A bench: a supervisor with its zygote, its watch on the disk and its oracle, ready to run.

Every process of a campaign that runs anything has one.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from chaoskit import registry
from chaoskit.model import Ended, Firing, Judgement, Placed, Probe, Run, Schedule, Verdict, Workload
from chaoskit.run.recording import CrashState, Recording
from chaoskit.run.supervisor import Supervisor
from chaoskit.run.watch import DiskWatch
from chaoskit.run.workspace import Workspace
from chaoskit.run.zygote import CannotStart, Zygote
from chaoskit.search.oracle import judge
from chaoskit.settings import Settings
from chaoskit.story import operations, tell

SAMPLED = 100  # of the rebuilt states that passed, one in so many is also run into for real


class CannotTest(Exception):
    """Nothing can be said about the target: it does not start, or fails without any fault."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to say about one run."""

    schedule: Schedule
    seed: int  # of the workload
    judgement: Judgement
    fired: int
    last_trace: tuple[Firing, ...]
    recovery: int  # how many of these belong to recovery
    rebuilt: bool = False  # the crash was not run into, its state was rebuilt
    confirmed: bool = False  # ... and the real crash had the same verdict
    story: tuple[str, ...] = ()  # of a run that did not hold
    operations: tuple[str, ...] = ()  # ... and what was asked of it, in order
    place: str = ""  # where the last fault struck, in words that mean the same for any workload
    kept: str | None = None

    @property
    def missed(self) -> int:
        """Planned faults that did not fire."""
        return len(self.schedule.faults) - self.fired


class Bench:
    def __init__(self, settings: Settings, directory: Path, session: str) -> None:
        settings = registry.resolved(settings)
        scenario = registry.scenario(settings.scenario)
        mutant = registry.mutant(scenario, settings.mutant, settings.store) if settings.mutant else None
        self.invariants = registry.invariants_of(scenario)
        self._scenario = scenario
        self._directory = directory
        self._settings = settings
        self._watch = DiskWatch(directory / f"control-{os.getpid()}") if settings.watches_disk else None
        self._zygote = Zygote(
            scenario.target, session=session, cold=settings.cold, watch_disk=settings.watches_disk
        )
        self._supervisor = Supervisor(
            scenario,
            self._zygote,
            store=settings.store,
            mutant=mutant,
            deadline=settings.deadline,
            watch=self._watch,
        )
        self._numbers = itertools.count()
        self._kept: set[tuple[str, int]] = set()  # of a fuzz: findings and how many crashes they took

    def close(self) -> None:
        self._supervisor.retire()
        self._zygote.close()
        if self._watch:
            self._watch.close()

    def workload(self, seed: int | None = None) -> Workload:
        """Of this seed; else of the campaign's."""
        seed = self._settings.seed if seed is None else seed
        agents, crowd = self._settings.agents, self._scenario.crowd
        content = crowd(seed, agents) if agents and crowd else self._scenario.workload(seed)
        return Workload(seed=seed, content=content)

    def run(self, schedule: Schedule, workload: Workload) -> tuple[Run, Path]:
        directory = self._new_directory()
        return self._supervisor.carry_out(schedule, directory, workload), directory

    def record(self, workload: Workload) -> Recording:
        return self._supervisor.record(self._new_directory(), workload)[1]

    def judge(self, schedule: Schedule, workload: Workload) -> Outcome:
        """Run it for real, judge it, and keep what did not hold."""
        return self.judge_run(*self.run(schedule, workload), workload)

    def judge_run(self, run: Run, directory: Path, workload: Workload) -> Outcome:
        """The same of one that has been run; its directory is gone afterwards."""
        outcome = self._outcome(run, directory, workload)
        shutil.rmtree(directory)
        return outcome

    def judge_state(self, recording: Recording, state: CrashState, workload: Workload) -> Outcome:
        """Recover from a rebuilt state and judge that; some that pass are also run into for real."""
        directory = self._directory / f"stage-{os.getpid()}"
        run = self._supervisor.recover(recording, state, directory, workload)
        outcome = msgspec.structs.replace(self._outcome(run, directory, workload), rebuilt=True)
        if outcome.judgement.verdict is Verdict.HOLDS and self._is_sampled(state):
            return self._compare(outcome, workload)
        return outcome

    def _is_sampled(self, state: CrashState) -> bool:
        rng = random.Random(f"{self._settings.seed}/{state.fault}/{state.position}")
        return rng.randrange(SAMPLED) == 0

    def _compare(self, rebuilt: Outcome, workload: Workload) -> Outcome:
        real = self.judge(rebuilt.schedule, workload)
        if real.judgement.verdict is Verdict.HOLDS:
            return msgspec.structs.replace(rebuilt, confirmed=True)
        doubt = f"the harness contradicts itself: the rebuilt state holds, the real one: {real.schedule}"
        judgement = msgspec.structs.replace(
            real.judgement, verdict=Verdict.UNKNOWN, findings=(), doubts=(doubt,)
        )
        return msgspec.structs.replace(rebuilt, judgement=judgement)

    def _new_directory(self) -> Path:
        return self._directory / f"run-{os.getpid()}-{next(self._numbers)}"

    def _outcome(self, run: Run, directory: Path, workload: Workload) -> Outcome:
        judgement = judge(run, self.invariants)
        holds = judgement.verdict is Verdict.HOLDS
        kept = None if holds else self._keep(judgement, run.schedule, directory, workload)
        return Outcome(
            schedule=run.schedule,
            seed=workload.seed,
            judgement=judgement,
            fired=run.fired,
            last_trace=run.traces[-1],
            recovery=recovery_of(run),
            story=() if holds else tell(run.history),
            operations=() if holds else operations(run.history),
            kept=kept,
        )

    def _keep(
        self, judgement: Judgement, schedule: Schedule, directory: Path, workload: Workload
    ) -> str | None:
        """A fuzz may find the same for hours: of each kind, one with so many crashes is enough."""
        where, label = self._settings.keep, ""
        if self._settings.fuzzes:
            kinds = {f.signature for f in judgement.findings} or {"doubt"}
            fresh = {(kind, len(schedule.faults)) for kind in kinds} - self._kept
            self._kept |= fresh
            where = where if fresh else None
            label = f"seed-{workload.seed}_"  # a schedule names a run of one workload only
        return keep(directory, Path(where), schedule, label) if where else None


def recovery_of(run: Run) -> int:
    """How many firings of the last life came before it reported what it had recovered."""
    last = len(run.traces) - 1
    probe = next((p for p in run.history.of(Probe, "recovered") if p.life == last), None)
    trace = run.traces[-1]
    if probe is None:
        return 0
    return sum((f.point.op if f.point.op is not None else n) < probe.at for n, f in enumerate(trace))


def keep(directory: Path, where: Path, schedule: Schedule, label: str = "") -> str:
    """Save a run's directory under a name that says what was done to it."""
    faults = "_".join(f"{fault.name}-{fault.point}" for fault in schedule.faults) or "no fault"
    words = label + faults
    place = where / "".join(c if c.isalnum() or c in "#.-_" else "-" for c in words)[:150]
    aside = place.with_name(f"{place.name}.{os.getpid()}")  # another worker may keep one of that name
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(directory, aside)
    shutil.rmtree(place, ignore_errors=True)
    try:
        aside.rename(place)
    except OSError:  # it was there first: the same fault at the same point, one of them is enough
        shutil.rmtree(aside, ignore_errors=True)
    return str(place)


@contextmanager
def open_bench(settings: Settings) -> Iterator[tuple[Bench, Workspace]]:
    with Workspace() as workspace:
        try:
            with closing(Bench(settings, workspace.path, workspace.session)) as bench:
                yield bench, workspace
        except CannotStart as error:
            raise CannotTest(f"the target cannot be started: {error}") from None


NO_POINTS = (
    "its run without faults passed no persist point: expected "
    'sys.audit("persist.point", name, "before" or "after") around each durable change, '
    "or --points syscalls"
)
DIFFERS = (
    "two runs with the same seed and without faults differ: "
    "the target takes time, ids or randomness from outside its seed"
)


def undisturbed(bench: Bench, *, needs_points: bool = True) -> tuple[Outcome, Workload]:
    """What there is to say about the run without faults, and the workload that knows of it.

    Done twice: if it is not the same twice, no comparison means anything.
    """
    workload = bench.workload()
    first, directory = bench.run(Schedule(), workload)
    _check_completed(first, directory)
    if needs_points and not first.traces[0]:
        raise CannotTest(NO_POINTS)
    second, _ = bench.run(Schedule(), workload)
    if (first.history, first.traces) != (second.history, second.traces):
        raise CannotTest(DIFFERS)
    return judge_undisturbed(bench, first, directory, workload)


def judge_undisturbed(
    bench: Bench, run: Run, directory: Path, workload: Workload
) -> tuple[Outcome, Workload]:
    """A run without faults is its own baseline, and that of all others."""
    known = msgspec.structs.replace(workload, undisturbed=run.history.events)
    history = msgspec.structs.replace(run.history, baseline=run.history.events)
    compared = msgspec.structs.replace(run, history=history)
    return bench.judge_run(compared, directory, known), known


def strays(run: Run, workload: Workload) -> bool:
    """Whether its first life did something else, before the crash, than it does when left alone."""
    before = [e for e in run.history.events if isinstance(e, Placed) and e.life == 0]
    expected = (e for e in workload.undisturbed if isinstance(e, Placed))
    return before != list(itertools.islice(expected, len(before)))


def _check_completed(run: Run, directory: Path) -> None:
    end = list(run.history.of(Ended))[-1]
    if end.how != "completed":
        said = (directory / "stderr-0").read_text(errors="replace").strip()
        raise CannotTest(f"its run without faults {end.how}: {end.detail.strip()}\n{said}".strip())
    if run.doubts:
        raise CannotTest(f"its run without faults is in doubt: {'; '.join(run.doubts)}")
