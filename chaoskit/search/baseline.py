"""Baseline: the run without faults, with which every crashed run of the same workload is compared."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import msgspec

from chaoskit.model import Ended, Placed, Run, Schedule, Workload
from chaoskit.search import difference
from chaoskit.search.outcome import Outcome
from chaoskit.search.rig import CannotTest, NotSeen, Rig

NO_POINTS = (
    "its run without faults passed no persist point: expected "
    'sys.audit("persist.point", name, "before" or "after") around each durable change, '
    "or --points syscalls"
)
DIFFERS = (
    "two runs with the same seed and without faults differ: "
    "the target takes time, ids or randomness from a source other than its seed"
)

SHOWN = 2  # blind spots
SLOW = " (if it is only slow, allow more: `deadline = 120` in the adapter's class, or --deadline 120)"
TRAPPED = (
    "its process died of SIGSYS: it makes system calls where the interposer cannot follow, in a thread that"
    " blocks all signals (as POSIX aio does) or in a program that was started without it"
)


def undisturbed(
    rig: Rig, workload: Workload | None = None, *, needs_points: bool = True
) -> tuple[Outcome, Workload]:
    """The outcome of the run without faults, and the workload (by default the rig's) with its events.

    The run is done twice: if the two differ, comparisons with it are meaningless.
    """
    workload = workload or rig.workload()
    first, directory = rig.run(Schedule(), workload)
    _check_completed(first, directory)
    if needs_points and not first.traces[0]:
        raise CannotTest(NO_POINTS)
    second, other = rig.run(Schedule(), workload)
    if (first.history, first.traces) != (second.history, second.traces):
        for run, place in ((first, directory), (second, other)):
            outcome, known = judge_undisturbed(rig, run, place, workload)
            if outcome.judgement.findings:  # wrong without any fault, in at least one of two runs
                raise ViolatedUndisturbed(outcome, known)
        raise CannotTest(f"{DIFFERS}: {_first_difference(rig, first, second, workload)}")
    shutil.rmtree(other)
    return judge_undisturbed(rig, first, directory, workload)


def _first_difference(rig: Rig, first: Run, second: Run, workload: Workload) -> str:
    """The operation with its bytes, where the disk is watched: two more runs, recorded, show it."""
    if rig.watches_disk:
        seen = difference.of_traces(rig.record(workload).trace, rig.record(workload).trace)
        if seen:
            return seen
    return difference.of_runs(first, second)


class ViolatedUndisturbed(Exception):
    """Two runs without faults differ, and one of them already violates an invariant."""

    def __init__(self, outcome: Outcome, workload: Workload) -> None:
        super().__init__("; ".join(f.message for f in outcome.judgement.findings))
        self.outcome = outcome
        self.workload = workload


def judge_undisturbed(rig: Rig, run: Run, directory: Path, workload: Workload) -> tuple[Outcome, Workload]:
    """A run without faults is its own baseline, and that of all crashed runs."""
    known = msgspec.structs.replace(workload, undisturbed=run.history.events)
    history = msgspec.structs.replace(run.history, baseline=run.history.events)
    compared = msgspec.structs.replace(run, history=history)
    return rig.judge_run(compared, directory, known), known


def strays(run: Run, workload: Workload) -> bool:
    """Whether the first life differs, before its crash, from the run without faults."""
    before = [e for e in run.history.events if isinstance(e, Placed) and e.life == 0]
    expected = (e for e in workload.undisturbed if isinstance(e, Placed))
    return before != list(itertools.islice(expected, len(before)))


def _check_completed(run: Run, directory: Path) -> None:
    end = list(run.history.of(Ended))[-1]
    if end.how == "died" and "SIGSYS" in end.detail:
        raise NotSeen(TRAPPED)
    if end.how != "completed":
        printed = (directory / "stderr-0").read_text(errors="replace").strip()
        remedy = SLOW if end.how == "hung" else ""
        raise CannotTest(f"its run without faults {end.how}: {end.detail.strip()}{remedy}\n{printed}".strip())
    unseen = [str(doubt) for doubt in run.doubts if doubt.kind == "blind-spot"]
    if unseen:
        more = f" (and {len(unseen) - SHOWN} more)" if len(unseen) > SHOWN else ""
        raise NotSeen(f"{'; '.join(unseen[:SHOWN])}{more}")
    if run.doubts:
        raise CannotTest(f"its run without faults is in doubt: {'; '.join(map(str, run.doubts))}")
