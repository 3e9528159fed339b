"""Certification: one target through every tier, and what came of it as a Certificate.

process, torn      one recording; every state that a kill leaves, between operations and in mid-write
power-*            the same recording; states that a loss of power leaves, the most telling first
disk-full          ENOSPC at operations spread over the run, once and from there on, run into for real
first-start        those of the above that strike before the first change is asked for
recovery           a kill, then another one at every operation of the recovery from it, run into for real
zombie             a process that is stopped, superseded, and goes on (stores)
races and forks    where the adapter has `approve` and `fork` (agents); no crash, so tier `process`

Agents go through it twice: with a model that repeats itself, and with one that words its calls
differently after every restart.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from typing import Any, TypeVar

import msgspec

from chaoskit import __version__, registry
from chaoskit.adapter import Adapter
from chaoskit.certify import suite
from chaoskit.certify.certificate import (
    NEVER_PROMISED,
    PROPERTIES,
    TIERS,
    Certificate,
    CertifiedFinding,
    Coverage,
    verdict_of,
)
from chaoskit.disk.power_states import spread
from chaoskit.model import Event, Fail, Firing, Invoke, Kill, Probe, Schedule, Verdict, last, select
from chaoskit.run import environment
from chaoskit.run.recording import Recording, labels
from chaoskit.search.confirm import confirm_all
from chaoskit.search.execution import Crash, Pool
from chaoskit.search.plan import disk_errors
from chaoskit.search.result import Counter, Result, Witness
from chaoskit.search.rig import CannotTest, Outcome, open_bench, undisturbed
from chaoskit.settings import Settings

DISK_RUNS = 60  # real ones: a full disk at so many places
RECOVERIES = 8  # kills whose recoveries are looked at, to crash the different ones again
RECOVERY_RUNS = 60
POWER_STATES = 1000  # per profile, unless asked for otherwise
RACES = 3
Say = Callable[[str], None]
T = TypeVar("T")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    target: str  # a known name, module:Class or file.py:Class; @requirement for other versions
    seed: int = 0
    tiers: tuple[str, ...] = TIERS
    states: int = POWER_STATES  # of a loss of power, per profile
    jobs: int = 1
    seconds: float | None = None
    keep: str | None = None

    def settings(self, variant: str = "") -> Settings:
        return Settings(
            scenario=f"{registry.TARGET}{self.target}{variant}",
            seed=self.seed,
            points="syscalls",
            runs=self.states,
            jobs=self.jobs,
            keep=self.keep,
            seconds=self.seconds,
        )


def certify(wanted: Wanted, say: Say = lambda _words: None) -> Certificate:
    """Raises CannotTest, NoEnvironment or BadAdapter, each with a line that says what to do."""
    started = time.monotonic()
    adapter = registry.adapter(wanted.target)
    python = environment.interpreter(adapter.requires, say)
    examination = _Examination(wanted, adapter, say)
    examination.run()
    return examination.certificate(
        suite.run(adapter, say),
        {**environment.versions(python, adapter.requires), "python": platform.python_version()},
        time.monotonic() - started,
    )


class _Examination:
    def __init__(self, wanted: Wanted, adapter: Adapter, say: Say) -> None:
        self._wanted = wanted
        self._adapter = adapter
        self._say = say
        self._clock = _Shares(wanted.seconds, _stages(wanted.tiers, adapter.kind))
        self._results: list[Result] = []
        self._complete: dict[str, bool] = {}
        self._recording: Recording | None = None

    # --- the work

    def run(self) -> None:
        self._crash("")
        if self._adapter.kind == "agent":
            self._crash("#fickle")
            if {"park", "approve"} <= set(self._adapter.methods):
                for _ in range(RACES):
                    self._watch("#race", "process", "consume-once")
            if "fork" in self._adapter.methods:
                self._watch("#fork", "process", "fork")
        elif "zombie" in self._wanted.tiers:
            self._watch("#zombie", "zombie", "fenced")

    def _crash(self, variant: str) -> None:
        """Everything that is done to a run: one recording, then state by state."""
        settings = self._wanted.settings(variant)
        with open_bench(settings) as (bench, workspace):
            self._say(f"recording a run{' with a fickle model' if variant else ''}")
            baseline, workload = undisturbed(bench, needs_points=False)
            recording = bench.record(workload)
            _check_that_it_works(recording.events)
            self._recording = self._recording or recording
            counter = Counter(settings, [i.name for i in bench.invariants], tier=_tier(recording.events))
            counter.add(baseline)
            if not recording.trace.ops:
                self._kill_between_changes(settings)
                return
            with closing(Pool(settings, workspace, bench, workload, recording)) as pool:
                for outcome in self._outcomes(pool, baseline):
                    counter.add(outcome)
            self._say("confirming what was found")
            confirm_all(counter, bench, recording, workload)
            self._results.append(counter.result(0))

    def _kill_between_changes(self, settings: Settings) -> None:
        """For a store that keeps nothing on disk: real kills before and after each change."""
        named = msgspec.structs.replace(settings, points="named")
        with open_bench(named) as (bench, _):
            baseline, workload = undisturbed(bench)
            counter = Counter(named, [i.name for i in bench.invariants])
            counter.add(baseline)
            for firing in self._clock.share(baseline.last_trace):
                counter.add(bench.judge(Schedule((Kill(firing.point, firing.when),)), workload))
            self._results.append(counter.result(0))

    def _outcomes(self, pool: Pool, baseline: Outcome) -> Iterator[Outcome]:
        tiers = self._wanted.tiers
        if KILLS & set(tiers):
            yield from self._rebuilt(pool, "kill", ("process", "torn", "first-start"))
        for profile in ("ext4", "posix"):
            if f"power-{profile}" in tiers:
                yield from self._rebuilt(pool, profile, (f"power-{profile}",))
        if "disk-full" in tiers:
            self._say("filling the disk")
            yield from pool.outcomes(self._clock.share(_full_disks(baseline.last_trace)))
        if "recovery" in tiers:
            self._say("crashing recoveries")
            yield from self._recoveries(pool, baseline.last_trace)

    def _rebuilt(self, pool: Pool, crash: Crash, tiers: Sequence[str]) -> Iterator[Outcome]:
        what = "kills" if crash == "kill" else f"losses of power ({crash})"
        done = 0
        for outcome in pool.states(crash, self._clock.share(count())):
            if not done % 200:
                self._say(f"{what}: {done} states")
            done += 1
            yield outcome
        budget = None if crash == "kill" else self._wanted.states
        for tier in tiers:
            in_time = self._complete.get(tier, True) and not self._clock.ran_out
            self._complete[tier] = in_time and (budget is None or done < budget)

    def _recoveries(self, pool: Pool, firings: Sequence[Firing]) -> Iterator[Outcome]:
        kills = [Schedule((Kill(f.point, f.when),)) for f in spread(firings, RECOVERIES)]
        different: dict[tuple[str, ...], list[Schedule]] = {}
        for outcome in pool.outcomes(kills):
            yield outcome
            passed = outcome.last_trace[: outcome.recovery]
            second = [Schedule((*outcome.schedule.faults, Kill(f.point, f.when))) for f in passed]
            different.setdefault(tuple(f.point.name for f in passed), second)
        every = [schedule for schedules in different.values() for schedule in schedules]
        yield from pool.outcomes(self._clock.share(spread(every, RECOVERY_RUNS)))

    def _watch(self, variant: str, tier: str, claim: str) -> None:
        """A run without a crash, in which something else is done to the target."""
        self._say(f"{claim}: {variant.removeprefix('#')}")
        settings = self._wanted.settings(variant)
        with open_bench(settings) as (bench, _):
            workload = bench.workload()
            run, directory = bench.run(Schedule(), workload)
            outcome = bench.judge_run(run, directory, workload)
        counter = Counter(settings, [claim], whole=False, tier=lambda _schedule: tier)
        counter.add_alone(outcome, claim)
        self._results.append(counter.result(0))

    # --- what came of it

    def certificate(
        self, vendors: dict[str, Any] | None, versions: dict[str, str], seconds: float
    ) -> Certificate:
        main, adapter, recording = self._results[0], self._adapter, self._recording
        assert recording is not None
        claims = _merged(self._results, self._wanted.tiers)
        coverage = self._coverage()
        unknown = tuple(dict.fromkeys(d for r in self._results for d in r.doubts if not _unasked(d)))
        end = last(select(recording.events, Probe, "end"))
        return Certificate(
            target=self._wanted.target,
            summary=adapter.summary,
            kind=adapter.kind,
            style=adapter.style,
            unit=adapter.unit,
            verdict=verdict_of(claims, adapter.promises, coverage, unknown),
            seed=self._wanted.seed,
            date=datetime.now(UTC).date().isoformat(),
            chaoskit=__version__,
            versions=versions,
            settings=end.data.get("settings", {}) if end else {},
            files=tuple(sorted({label.split(" ", 1)[1] for label in labels(recording.trace)} - {"."})),
            saves=sum(1 for _ in select(recording.events, Invoke)) or 1,
            operations=main.points,
            claims=claims,
            coverage=coverage,
            promises=dict(adapter.promises),
            properties={name: tuple(c for c in known if c in claims) for name, known in PROPERTIES.items()},
            findings=_once_each(self._finding(w) for r in self._results for w in r.witnesses),
            unknown=unknown,
            suite=vendors,
            seconds=seconds,
        )

    def _coverage(self) -> dict[str, Coverage]:
        found = {}
        for tier in (tier for tier in TIERS if tier in self._wanted.tiers):
            parts = [result.tiers[tier] for result in self._results if tier in result.tiers]
            found[tier] = Coverage(
                states=sum(part.runs for part in parts),
                confirmed=sum(part.confirmed for part in parts),
                missed=sum(part.missed for part in parts),
                complete=bool(parts) and self._complete.get(tier, False),
            )
        return found

    def _finding(self, witness: Witness) -> CertifiedFinding:
        claim, kind = witness.finding.invariant, witness.finding.kind
        promise = self._adapter.promises.get(claim)
        if (claim, kind) in NEVER_PROMISED or not (promise and promise.covers(witness.tier)):
            promise = None
        faults = witness.schedule.faults
        return CertifiedFinding(
            claim=claim,
            kind=kind,
            tier=witness.tier,
            fault=", then ".join(fault.name for fault in faults) or "none",
            point=", then ".join(str(fault.point) for fault in faults) or "no point",
            message=witness.finding.message,
            promise=promise.words if promise else None,
            where=promise.where if promise else None,
            repro=witness.token,
            times=witness.times,
            story=witness.story,
            hint=witness.hint,
        )


KILLS = frozenset({"process", "torn", "first-start"})


def _stages(tiers: Sequence[str], kind: str) -> int:
    """How many stages share the time: kills are one; agents go through all of them twice."""
    others = {"power-ext4", "power-posix", "disk-full", "recovery"} & set(tiers)
    return (bool(KILLS & set(tiers)) + len(others)) * (2 if kind == "agent" else 1)


class _Shares:
    """A time that is shared between stages: what one does not use is left for the others."""

    def __init__(self, seconds: float | None, stages: int) -> None:
        self._end = time.monotonic() + seconds if seconds else None
        self._stages = stages
        self.ran_out = False  # in the last stage

    def share(self, tasks: Iterable[T]) -> Iterator[T]:
        now = time.monotonic()
        end = None if self._end is None else now + (self._end - now) / max(1, self._stages)
        self._stages -= 1
        self.ran_out = False
        for task in tasks:
            if end is not None and time.monotonic() > end:
                self.ran_out = True
                return
            yield task


def _tier(events: Sequence[Event]) -> Callable[[Schedule], str]:
    """What strikes before anything was asked of the target is a first start that went wrong."""
    asked = [e.at for e in events if isinstance(e, Invoke) or (isinstance(e, Probe) and e.name == "asked")]
    begins = min(asked, default=0)

    def tier(schedule: Schedule) -> str:
        early = len(schedule.faults) == 1 and (schedule.faults[0].point.op or 0) < begins
        return "first-start" if early and schedule.tier in ("process", "torn") else schedule.tier

    return tier


def _check_that_it_works(events: Sequence[Event]) -> None:
    """A store that refuses its saves loses none of them: that it holds would say nothing."""
    failed = next(select(events, Fail), None)
    if failed:
        what = next(e.args for e in select(events, Invoke) if e.op == failed.op)
        raise CannotTest(f"without any fault, {what['do']} {what.get('n', '')} failed: {failed.error}")


def _full_disks(firings: Sequence[Firing]) -> Iterator[Schedule]:
    """ENOSPC, once and from there on, at places spread over what a full disk refuses."""
    refused = [[fault for fault in disk_errors(f) if fault.name.startswith("ENOSPC")] for f in firings]
    for faults in spread([faults for faults in refused if faults], DISK_RUNS // 2):
        yield from (Schedule((fault,)) for fault in faults)


def _merged(results: Sequence[Result], tiers: Sequence[str]) -> dict[str, dict[str, Verdict]]:
    """Every claim in every tier that was asked for; what a run without faults broke is in none of them."""
    found: dict[str, dict[str, Verdict]] = {name: {} for r in results for name in r.claims}
    for result in results:
        for name, verdicts in result.claims.items():
            for tier, verdict in verdicts.items():
                if tier in tiers or tier == "undisturbed":
                    known = found[name].get(tier, Verdict.NOT_MEASURED)
                    found[name][tier] = Verdict.merge([known, verdict])
    return found


def _once_each(findings: Iterable[CertifiedFinding]) -> tuple[CertifiedFinding, ...]:
    """One witness of each kind in each tier: another variant that meets the same thing is counted."""
    found: dict[tuple[str, str, str], CertifiedFinding] = {}
    for each in findings:
        key = each.claim, each.kind, each.tier
        known = found.get(key)
        found[key] = msgspec.structs.replace(known, times=known.times + each.times) if known else each
    return tuple(found.values())


def _unasked(doubt: str) -> bool:
    """That a claim was not examined is said by NOT_MEASURED; it leaves nothing open."""
    return doubt.startswith("nothing that happened put ")
