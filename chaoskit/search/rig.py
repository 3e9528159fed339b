"""Rig: a supervisor with its zygote, disk watch and oracle, ready to run and judge schedules.

Every worker process of a campaign has one.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import msgspec

from chaoskit.disk.apply import initial_image
from chaoskit.faults.kill import Kill
from chaoskit.model import Doubt, Judgement, Run, Schedule, Verdict, Workload
from chaoskit.recording import CrashState, Recording, points
from chaoskit.registry import Resolved
from chaoskit.run.supervisor import Supervisor
from chaoskit.run.watch import DiskWatch
from chaoskit.run.workspace import Workspace
from chaoskit.run.zygote import IMPORT_DEADLINE, CannotStart, Zygote
from chaoskit.search.facts import reached
from chaoskit.search.oracle import judge
from chaoskit.search.outcome import Outcome, recovery_of

HOME = "home"  # of the target, in the workspace
SAMPLED = 100  # one in this many rebuilt states that hold is also tested with a real crash


class CannotTest(Exception):
    """No verdict is possible: the target does not start, or fails without any fault."""


class NotSeen(Exception):
    """The target persists in a way that chaoskit cannot watch: nothing can be concluded."""


class Rig:
    def __init__(self, resolved: Resolved, directory: Path, session: str) -> None:
        settings = self._settings = resolved.settings
        self._scenario = resolved.scenario
        self._invariants = resolved.invariants
        self._directory = directory
        watched = settings.watches_disk
        self._watch = DiskWatch(directory / f"control-{os.getpid()}") if watched else None
        target = resolved.scenario.target
        home = directory / HOME
        home.mkdir(mode=0o700, exist_ok=True)
        start = partial(
            Zygote,
            target,
            session=session,
            cold=settings.cold,
            watch_disk=watched,
            home=home,
            pass_env=settings.pass_env,
            deadline=max(settings.deadline or 0, IMPORT_DEADLINE),
        )
        self._zygote = start()
        # A restart has another hash seed: a target must not rely on what happens to stay the same.
        self._later = start(hash_seed=1) if target.looks_again else self._zygote
        try:
            for zygote in self._zygotes:
                zygote.ready()
        except BaseException:
            self._close_zygotes()
            raise
        self._supervisor = Supervisor(
            resolved.scenario,
            self._zygote,
            self._later,
            store=settings.store,
            mutant=resolved.mutant,
            deadline=settings.deadline,
            watch=self._watch,
            calls=any(kind.strikes_calls for kind in settings.kinds),
        )
        self._numbers = itertools.count()
        self._kept: set[tuple[str, int]] = set()  # in a fuzz: signature of the finding, number of crashes

    def close(self) -> None:
        self._supervisor.retire()
        self._close_zygotes()
        if self._watch:
            self._watch.close()

    @property
    def _zygotes(self) -> tuple[Zygote, ...]:
        return (self._zygote,) if self._later is self._zygote else (self._zygote, self._later)

    def _close_zygotes(self) -> None:
        for zygote in self._zygotes:
            zygote.close()

    def stop_at(self, until: float | None) -> None:
        """Runs that are not finished by then (monotonic clock) raise OutOfTime."""
        self._supervisor.until = until

    @property
    def watches_disk(self) -> bool:
        return self._watch is not None

    def workload(self, seed: int | None = None) -> Workload:
        """The workload of this seed, by default the campaign's."""
        seed = self._settings.seed if seed is None else seed
        agents, sized = self._settings.agents, self._scenario.workload_for
        content = sized(seed, agents) if agents and sized else self._scenario.workload(seed)
        return Workload(seed=seed, content=content)

    def run(self, schedule: Schedule, workload: Workload) -> tuple[Run, Path]:
        directory = self._new_directory()
        return self._supervisor.carry_out(schedule, directory, workload), directory

    def recorded(self, run: Run, life: int) -> Recording:
        """One of the last two lives of the run that was executed last."""
        return self._supervisor.recorded(run, life)

    def record(self, workload: Workload) -> Recording:
        return self._supervisor.record(self._new_directory(), workload)[1]

    def record_recovery(self, earlier: Schedule, workload: Workload) -> Recording | None:
        """The life that recovers from these faults; None if one of them did not fire."""
        return self._supervisor.record_recovery(earlier, self._new_directory(), workload)

    def start_afresh(self, recording: Recording, workload: Workload) -> Run:
        """A life in a directory as it was before the recording, when everything recorded has happened."""
        fault = Kill(points(recording.trace)[0], "before")
        # Nothing is delivered, so nothing is interrupted: the life looks before it changes anything.
        nothing = CrashState(0, initial_image(recording.trace), fault, delivered=False)
        return self._supervisor.recover(recording, nothing, self._new_directory(), workload)

    def judge(self, schedule: Schedule, workload: Workload) -> Outcome:
        """Runs the schedule for real and judges it; keeps the run if it does not hold."""
        return self.judge_run(*self.run(schedule, workload), workload)

    def judge_run(self, run: Run, directory: Path, workload: Workload) -> Outcome:
        """Judges a finished run, then removes its directory."""
        outcome = self._outcome(run, directory, workload)
        shutil.rmtree(directory)
        return outcome

    def judge_state(self, recording: Recording, state: CrashState, workload: Workload) -> Outcome:
        """Recovers from a rebuilt state and judges it; a few states that hold also get a real crash."""
        directory = self._directory / f"stage-{os.getpid()}"
        run = self._supervisor.recover(recording, state, directory, workload)
        outcome = msgspec.structs.replace(self._outcome(run, directory, workload), rebuilt=True)
        if outcome.judgement.verdict is Verdict.HOLDS and self._is_sampled(state):
            return self._compare(outcome, workload)
        return outcome

    def _is_sampled(self, state: CrashState) -> bool:
        fault = msgspec.json.encode(
            state.fault
        ).decode()  # not its text: rewording must not change the sample
        rng = random.Random(f"{self._settings.seed}/{fault}/{state.position}")
        return rng.randrange(SAMPLED) == 0

    def _compare(self, rebuilt: Outcome, workload: Workload) -> Outcome:
        real = self.judge(rebuilt.schedule, workload)
        if real.judgement.verdict is Verdict.HOLDS:
            return msgspec.structs.replace(rebuilt, confirmed=True)
        doubt = Doubt("contradiction", str(real.schedule))
        claims = {
            name: Verdict.UNKNOWN if verdict is Verdict.VIOLATED else verdict
            for name, verdict in real.judgement.claims.items()
        }
        judgement = msgspec.structs.replace(
            real.judgement, verdict=Verdict.UNKNOWN, claims=claims, findings=(), doubts=(doubt,)
        )
        return msgspec.structs.replace(rebuilt, judgement=judgement)

    def _new_directory(self) -> Path:
        return self._directory / f"run-{os.getpid()}-{next(self._numbers)}"

    def _outcome(self, run: Run, directory: Path, workload: Workload) -> Outcome:
        judgement = judge(run, self._invariants)
        holds = judgement.verdict is Verdict.HOLDS
        return Outcome(
            schedule=run.schedule,
            seed=workload.seed,
            judgement=judgement,
            fired=run.fired,
            last_trace=run.traces[-1],
            recovery=recovery_of(run),
            origin=run.origin,
            reached=reached(run.history.events, self._scenario.must_reach),
            events=() if holds else run.history.events,
            kept=None if holds else self._keep(judgement, run.schedule, directory, workload),
        )

    def _keep(
        self, judgement: Judgement, schedule: Schedule, directory: Path, workload: Workload
    ) -> str | None:
        """A fuzz may repeat a finding for hours: keep one run per finding and number of crashes."""
        where, label = self._settings.keep, ""
        if self._settings.fuzzes:
            kinds = {f.signature for f in judgement.findings} or {"doubt"}
            fresh = {(kind, len(schedule.faults)) for kind in kinds} - self._kept
            self._kept |= fresh
            where = where if fresh else None
            label = f"seed-{workload.seed}_"  # without it, schedules of different workloads would collide
        return keep(directory, Path(where), schedule, label) if where else None


def keep(directory: Path, where: Path, schedule: Schedule, label: str = "") -> str:
    """Saves a run's directory under a name that describes its faults."""
    faults = "_".join(f"{fault.name}-{fault.point}" for fault in schedule.faults) or "no fault"
    words = label + faults
    place = where / "".join(c if c.isalnum() or c in "#.-_" else "-" for c in words)[:150]
    aside = place.with_name(f"{place.name}.{os.getpid()}")  # another worker may use the same name
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(directory, aside)
    shutil.rmtree(place, ignore_errors=True)
    try:
        aside.rename(place)
    except OSError:  # another worker was faster: same fault, same point, one copy is enough
        shutil.rmtree(aside, ignore_errors=True)
    return str(place)


@contextmanager
def open_rig(resolved: Resolved) -> Iterator[tuple[Rig, Workspace]]:
    with Workspace() as workspace:
        try:
            with closing(Rig(resolved, workspace.path, workspace.session)) as rig:
                yield rig, workspace
        except CannotStart as error:
            raise CannotTest(f"the target cannot be started: {error}") from None
        except FileNotFoundError as error:
            if not str(error.filename).startswith(str(workspace.path)):
                raise
            raise CannotTest(
                f"it removed or renamed a directory of its own: {error.filename} is gone"
            ) from error
