"""A campaign: prepare one scenario, execute its plans in order, sum the outcomes into one Partial.

    prepare: run without faults, twice; record the run if states are to be rebuilt
    for each plan, for each round: items --executor--> outcomes --> summed, fed back to the plan
    confirm: findings on rebuilt states are reproduced by real crashes

`run_campaign` does this for each requested fault; a certificate does it for each variant of its target,
with the plans of its tiers. This is the only such loop.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TypeVar

import msgspec

from chaoskit.faults.kind import StateSource, kind
from chaoskit.model import Doubt, Firing, Schedule, Workload
from chaoskit.recording import Recording
from chaoskit.registry import Resolved
from chaoskit.run.workspace import Workspace
from chaoskit.search.baseline import ViolatedUndisturbed, judge_undisturbed, undisturbed
from chaoskit.search.budget import Budget, Share
from chaoskit.search.confirm import confirm_all
from chaoskit.search.executors import Executor, executor_for
from chaoskit.search.fuzz import DEPTHS, MIXED_DEPTHS, Fuzz
from chaoskit.search.outcome import Outcome
from chaoskit.search.plan import Plan, RebuiltStates, Sample, Seen, Sweep, power_in_recoveries
from chaoskit.search.progress import Progress, SoFar, silent
from chaoskit.search.result import (
    Accumulator,
    Order,
    Partial,
    Result,
    TierOf,
    result_of,
    result_of_replay,
    with_tokens,
)
from chaoskit.search.rig import Rig, open_rig
from chaoskit.search.work import Job, JudgeRecovery, WorkItem
from chaoskit.settings import Settings

T = TypeVar("T")
GROWTH = 1.1  # between two samples of the number of runs
EXHAUSTIVE_SHARES = 8  # a certificate has about as many other plans: half of the time


# --- preparation ---------------------------------------------------------------------------------


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario with its run without faults, ready for plans."""

    resolved: Resolved
    rig: Rig
    workspace: Workspace
    workload: Workload
    baseline: Outcome | None
    recording: Recording | None

    @property
    def firings(self) -> tuple[Firing, ...]:
        return self.baseline.last_trace if self.baseline else ()


@contextmanager
def prepared(
    resolved: Resolved, search: Search, *, record: bool, needs_points: bool = True
) -> Iterator[Ready]:
    """Raises CannotTest if the target fails without faults."""
    search.announce("starting")
    began = time.monotonic()
    with open_rig(resolved) as (rig, workspace):
        search.starting += time.monotonic() - began
        search.announce("running without faults")
        baseline, workload = undisturbed(rig, needs_points=needs_points)
        recording = None
        if record:
            search.announce("recording")
            recording = rig.record(workload)
        yield Ready(
            resolved=resolved,
            rig=rig,
            workspace=workspace,
            workload=workload,
            baseline=baseline,
            recording=recording,
        )


def prepared_variant(ready: Ready, resolved: Resolved, search: Search) -> Ready:
    """The same target with another workload, recorded on the same rig; `resolved` names the variant."""
    search.announce("recording another workload")
    settings = resolved.settings
    drawn = Workload(seed=settings.seed, content=resolved.scenario.workload(settings.seed))
    baseline, workload = undisturbed(ready.rig, drawn, needs_points=False)
    return msgspec.structs.replace(
        ready, resolved=resolved, workload=workload, baseline=baseline, recording=ready.rig.record(workload)
    )


def with_workload(ready: Ready, resolved: Resolved) -> Ready:
    """The same target with another workload, for plans without crashes, which need no baseline."""
    settings = resolved.settings
    drawn = Workload(seed=settings.seed, content=resolved.scenario.workload(settings.seed))
    return msgspec.structs.replace(ready, resolved=resolved, workload=drawn, baseline=None, recording=None)


# --- the loop ------------------------------------------------------------------------------------


class Search:
    """Executes plans, sums their outcomes, and reports progress.

    One Search may cover several scenarios, which then share time budget, progress and sum.
    """

    def __init__(self, budget: Budget, progress: Progress = silent, *, until_violation: bool = False) -> None:
        self.found = Partial()
        self._budget = budget
        self._progress = progress
        self._until_violation = until_violation
        self._planned: int | None = 0
        self._campaigns = 0
        self.cut_short = False  # a sweep did not reach its end
        self.starting = 0.0  # seconds until the target was imported
        self._growth: list[tuple[int, int]] = []
        self._so_far = SoFar(phase="starting", limit=budget.limit)

    def announce(self, phase: str, **numbers: int | None) -> None:
        """Report what is being done now; numbers that are not given stay as they were."""
        self._so_far = msgspec.structs.replace(
            self._so_far, phase=phase, seconds=self._budget.seconds, **numbers
        )
        self._progress(self._so_far)

    @property
    def over(self) -> bool:
        """Whether the search can stop early: it was to stop at a violation, and found one."""
        return self._until_violation and self.found.violated

    @property
    def growth(self) -> list[tuple[int, int]]:
        """Runs and places crashed by then: a sample for every tenth part more runs, and the last."""
        last = (self._so_far.runs, self._so_far.covered)
        return list(dict.fromkeys([*self._growth, last])) if last[0] else []

    def so_far(self) -> str:
        planned = f" of {self._planned}" if self._planned else ""
        return f"{self.found.runs}{planned} runs"

    def go_through(
        self,
        ready: Ready,
        plans: Sequence[Plan],
        tier_of: TierOf = lambda schedule: schedule.tier,
        tiers_of: Callable[[Plan], Sequence[str]] = lambda _plan: (),
        *,
        extra: bool = False,
    ) -> None:
        """`tiers_of`: the tiers that a plan covers, marked incomplete if the plan does not finish. `extra`:
        what is tried here comes on top of what completes a tier."""
        adding = Accumulator(ready.resolved.claims, tier_of, extra=extra)
        for line in ready.recording.unseen if ready.recording else ():
            adding.partial.note(Doubt("blind-spot", line), (self._campaigns, 0))
        if ready.baseline:
            adding.add(ready.baseline, (self._campaigns, 0))
        job = Job(settings=ready.resolved.settings, workload=ready.workload, recording=ready.recording)
        for plan in plans:
            self._expect(_size_of(plan, ready))
        with closing(executor_for(job, ready.rig, ready.workspace)) as executor:
            for number, plan in enumerate(plans, 1):
                share = self._budget.share(share_of(plan))
                if not self._complete(plan, ready, executor, adding, number, share):
                    adding.leave_out(tiers_of(plan), cut_short=share.ran_out)
                # A sample ends with its budget; a sweep that ends early has proved less than it says.
                self.cut_short |= share.ran_out and plan.exhaustive and plan.most is None
                if self._until_violation and adding.partial.violated:
                    break
        if ready.recording:
            self.announce("confirming")
            ready.rig.stop_at(self._budget.end)
            confirm_all(adding.partial, ready.rig, ready.recording, ready.workload, self.announce)
            ready.rig.stop_at(None)
        self.found = self.found.merge(with_tokens(adding.partial, ready.resolved.settings))
        self._campaigns += 1

    def add_undisturbed(self, outcome: Outcome, resolved: Resolved) -> None:
        """A run without faults that is wrong by itself: there is nothing to crash."""
        adding = Accumulator(resolved.claims, lambda schedule: schedule.tier)
        adding.add(outcome, (self._campaigns, 0))
        self.found = self.found.merge(with_tokens(adding.partial, resolved.settings))
        self._campaigns += 1

    def _complete(
        self, plan: Plan, ready: Ready, executor: Executor, adding: Accumulator, number: int, share: Share
    ) -> bool:
        """Executes one plan; returns whether it was exhaustive."""
        done = 0
        for order, outcome in self._outcomes(plan, ready, executor, share):
            self._add(adding, plan, outcome, (self._campaigns, number, *order))
            done += 1
            if self._until_violation and adding.partial.violated:
                return False
        _, parts = ready.resolved.settings.shard
        # A source that yielded its full budget of states may have more.
        reached = plan.most is not None and done * parts >= plan.most
        return plan.exhaustive and not share.ran_out and not reached

    def _add(self, adding: Accumulator, plan: Plan, outcome: Outcome, order: Order) -> None:
        if plan.alone:
            adding.add_alone(outcome, order, *plan.alone)
        else:
            adding.add(outcome, order)
        now, before = adding.partial, self.found
        if self._so_far.runs >= GROWTH * (self._growth[-1][0] if self._growth else 0) and self._so_far.runs:
            self._growth.append((self._so_far.runs, self._so_far.covered))
        self.announce(
            "crashing",
            runs=before.runs + now.runs,
            planned=self._planned,
            covered=len(before.places) + len(now.places),
            findings=len(before.witnesses) + len(now.witnesses),
        )

    def _outcomes(
        self, plan: Plan, ready: Ready, executor: Executor, share: Share
    ) -> Iterator[tuple[Order, Outcome]]:
        """The outcomes that belong to this shard, each with its place in the whole plan."""
        shard = ready.resolved.settings.shard
        seen = Seen(ready.firings, recoveries_only=plan.recoveries_only)
        planned = 0
        for round_number in range(1, plan.rounds + 1):
            items = plan.items(round_number, seen, shard)
            if isinstance(items, Sequence):
                room = len(items) if plan.limit is None else plan.limit - planned
                share.ran_out |= room < len(items)
                items, planned = items[: max(0, room)], planned + len(items)
            if round_number > 1 and isinstance(items, Sequence) and items:
                self._expect(len(items))
                self.announce(f"crashing recoveries: {len(items)} more runs")
            last = round_number == plan.rounds
            under_way: deque[tuple[int, WorkItem]] = deque()
            wanted = (
                (number, item)
                for number, item in enumerate(items)
                if not last or plan.owns(shard, number, item)
            )
            for done in executor.do(_noted(share.while_time(wanted), under_way), share.end):
                number, item = under_way.popleft()
                share.ran_out |= done.cut
                plan.learn(item, done.outcomes)
                for each, outcome in enumerate(done.outcomes):
                    seen.note(outcome)
                    if plan.owns(shard, number, item):
                        yield (round_number, *plan.order(shard, number, each)), outcome
                if done.exhausted:
                    break

    def _expect(self, more: int | None) -> None:
        known = more is not None and self._planned is not None
        self._planned = (self._planned or 0) + (more or 0) if known else None


def share_of(plan: Plan) -> int:
    """Of a time limit. An exhaustive plan that is cut short proves little; later plans get what it leaves."""
    return EXHAUSTIVE_SHARES if plan.exhaustive and plan.most is None else 1


def _size_of(plan: Plan, ready: Ready) -> int | None:
    """How many runs the first round of a plan has at most, if that is known."""
    items = plan.items(
        1, Seen(ready.firings, recoveries_only=plan.recoveries_only), ready.resolved.settings.shard
    )
    if isinstance(items, Sequence):
        return sum(item.source.budget or 1 if isinstance(item, JudgeRecovery) else 1 for item in items)
    return _states_in(plan, ready.recording)


def _states_in(plan: Plan, recording: Recording | None) -> int | None:
    """Those of a kill are quickly counted."""
    if plan.most is None and isinstance(plan, RebuiltStates) and recording is not None:
        enumerate_states = kind(plan.source.fault).states
        return sum(1 for _ in enumerate_states(recording, plan.source)) if enumerate_states else None
    return plan.most


def _noted(tasks: Iterator[tuple[int, T]], under_way: deque[tuple[int, T]]) -> Iterator[T]:
    for number, item in tasks:
        under_way.append((number, item))
        yield item


# --- campaigns -----------------------------------------------------------------------------------


def run_campaign(resolved: Resolved, progress: Progress = silent) -> Result:
    """Raises CannotTest if the target fails without faults."""
    settings = resolved.settings
    plans = [plan for part in settings.parts for plan in plans_of(part)]
    budget = Budget(settings.seconds, sum(map(share_of, plans)))
    search = Search(budget, progress, until_violation=settings.until_violation)
    for part in settings.parts:
        if not search.over:
            _with_part(search, msgspec.structs.replace(resolved, settings=part))
    if search.cut_short and not settings.accept_incomplete:
        search.found.note(Doubt("cut-short", search.so_far()), (len(settings.parts),))
    return result_of(
        search.found,
        resolved.settings,
        resolved.claims,
        budget.seconds,
        must_reach=resolved.scenario.must_reach,
        growth=search.growth if settings.fuzzes else (),
    )


def _with_part(search: Search, resolved: Resolved) -> None:
    try:
        with prepared(resolved, search, record=resolved.settings.rebuilds) as ready:
            search.go_through(ready, plans_of(resolved.settings))
    except ViolatedUndisturbed as violated:
        search.add_undisturbed(violated.outcome, resolved)


def plans_of(settings: Settings) -> list[Plan]:
    """The plans for one of the parts of settings."""
    if settings.fuzzes:
        depths = MIXED_DEPTHS if len(settings.faults) > 1 else DEPTHS
        return [Fuzz(settings.seed, settings.fuzz_runs, settings.bias or "rare", depths)]
    (fault,) = settings.faults
    if kind(fault).rebuilt:
        budget, seed = settings.power_states, settings.seed
        source = StateSource(fault=fault, profile=settings.profile, budget=budget, seed=seed)
        more = [power_in_recoveries(settings.profile, budget, seed)] if settings.depth != 1 else []
        return [RebuiltStates(source=source), *more]
    if settings.plan == "sample":
        return [Sample(seed=settings.seed, runs=settings.sample_runs, fault=fault)]
    return [Sweep(fault=fault, depth=settings.depth, limit=settings.runs)]


# --- replay --------------------------------------------------------------------------------------


def replay(resolved: Resolved, schedule: Schedule) -> Result:
    """Executes one schedule for real, and judges it as its campaign did."""
    started = time.monotonic()
    adding = Accumulator(resolved.claims, lambda schedule: schedule.tier)
    with open_rig(resolved) as (rig, _):
        if schedule.faults:
            baseline, workload = undisturbed(rig)
            adding.add(baseline, (0,))
            adding.add(rig.judge(schedule, workload), (1,))
        else:  # the finding needs no fault
            workload = rig.workload()
            run, directory = rig.run(schedule, workload)
            adding.add(judge_undisturbed(rig, run, directory, workload)[0], (1,))
    found = with_tokens(adding.partial, resolved.settings)
    return result_of_replay(found, resolved.settings, resolved.claims, time.monotonic() - started)


def points(resolved: Resolved) -> tuple[Firing, ...]:
    """Where the target persists when nothing happens to it."""
    with open_rig(resolved) as (rig, _):
        return undisturbed(rig)[0].last_trace
