"""Baseline: the run without faults, with which every crashed run of the same workload is compared."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import msgspec

from chaoskit.model import Ended, Placed, Run, Schedule, Workload
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

REMEDY = (
    "a wall clock, a thread or a random id in a file name or in the order of writes: derive it from the seed,"
    " or let one thread write"
)
SHOWN = 2  # blind spots
TRAPPED = (
    "its process died of SIGSYS: it makes system calls where the interposer cannot follow, in a thread that"
    " blocks all signals (as POSIX aio does) or in a program that was started without it"
)


def undisturbed(rig: Rig, *, needs_points: bool = True) -> tuple[Outcome, Workload]:
    """The outcome of the run without faults, and the workload with its events.

    The run is done twice: if the two differ, comparisons with it are meaningless.
    """
    workload = rig.workload()
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
        raise CannotTest(f"{DIFFERS}: {first_difference(first, second)}")
    shutil.rmtree(other)
    return judge_undisturbed(rig, first, directory, workload)


class ViolatedUndisturbed(Exception):
    """Two runs without faults differ, and one of them already violates an invariant."""

    def __init__(self, outcome: Outcome, workload: Workload) -> None:
        super().__init__("; ".join(f.message for f in outcome.judgement.findings))
        self.outcome = outcome
        self.workload = workload


def first_difference(one: Run, other: Run) -> str:
    """Where two runs part, and what usually causes it."""
    for mine, theirs in itertools.zip_longest(one.traces[0], other.traces[0]):
        if mine != theirs:
            names = [str(firing.point) if firing else "nothing" for firing in (mine, theirs)]
            return f"one run passes {names[0]} where the other passes {names[1]} ({REMEDY})"
    for event, its in itertools.zip_longest(one.history.events, other.history.events):
        if event != its:
            return f"one run reports {_short(event)} where the other reports {_short(its)} ({REMEDY})"
    return REMEDY


def _short(event: object) -> str:
    return repr(event)[:160]


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
        raise CannotTest(f"its run without faults {end.how}: {end.detail.strip()}\n{printed}".strip())
    unseen = [str(doubt) for doubt in run.doubts if doubt.kind == "blind-spot"]
    if unseen:
        more = f" (and {len(unseen) - SHOWN} more)" if len(unseen) > SHOWN else ""
        raise NotSeen(f"{'; '.join(unseen[:SHOWN])}{more}")
    if run.doubts:
        raise CannotTest(f"its run without faults is in doubt: {'; '.join(map(str, run.doubts))}")
