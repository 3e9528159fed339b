"""Tiers: what is done to a target, as the columns of a table. Each is declared once, here or elsewhere.

A tier is found through the entry-point group `chaoskit.tiers`. A fault names the tier that a run with it
belongs to; a tier says how a certificate covers it. Several tiers may share one plan: it is run once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from chaoskit import entry_points
from chaoskit.disk.ops import Profile
from chaoskit.faults.kind import StateSource
from chaoskit.faults.power import MOST_STATES
from chaoskit.model import Event, Invoke, Probe, Schedule, Subject
from chaoskit.search.plan import Plan, RebuiltStates, Recoveries, SpreadFaults

GROUP = "chaoskit.tiers"
DISK_RUNS = 60  # real ones: a failing disk at so many places
RECOVERY_RUNS = 60
RACES = 3


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of a certificate, as far as the plan of a tier depends on it."""

    seed: int = 0
    states: int = MOST_STATES  # of a loss of power, per profile
    hurried: bool = False  # time may run out


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """A variant of the workload that does something to the target itself; one claim is judged."""

    variant: str
    claim: str
    subject: Subject
    needs: tuple[str, ...] = ()  # methods of the adapter
    runs: int = 1


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    summary: str
    plan: Callable[[Scope], Plan] | None = None  # how a certificate covers it
    watches: tuple[Watched, ...] = ()  # and what else belongs to it
    # Which schedules belong to it whatever their faults say, given where the first change was asked for.
    takes: Callable[[Schedule, int], bool] | None = None
    of_power: bool = False  # only a promise that speaks of power covers it
    note: str = ""  # shown with each finding
    default: bool = True  # part of a certificate unless others are asked for


def tiers() -> dict[str, Tier]:
    """Every one there is, in the order of the columns."""
    return entry_points.declared(GROUP, Tier)


def default_tiers() -> tuple[str, ...]:
    return tuple(name for name, tier in tiers().items() if tier.default)


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """These, in the order of the columns; UnknownName for one that is not there."""
    for name in names:
        if name not in tiers():
            raise entry_points.UnknownName(entry_points.unknown("tier", name, tiers()))
    return tuple(name for name in tiers() if name in names)


def is_of_power(name: str) -> bool:
    """Whether only a promise that speaks of power covers this tier."""
    return name in tiers() and tiers()[name].of_power


def tier_of(events: Sequence[Event]) -> Callable[[Schedule], str]:
    """How runs are assigned to tiers, given a run without faults."""
    asked = [e.at for e in events if isinstance(e, Invoke) or (isinstance(e, Probe) and e.name == "asked")]
    begins = min(asked, default=0)
    takers: Mapping[str, Callable[[Schedule, int], bool]] = {
        name: tier.takes for name, tier in tiers().items() if tier.takes
    }

    def assign(schedule: Schedule) -> str:
        return next((name for name, takes in takers.items() if takes(schedule, begins)), schedule.tier)

    return assign


# --- the tiers of chaoskit -----------------------------------------------------------------------


def _kills(scope: Scope) -> Plan:
    return RebuiltStates(source=StateSource(fault="kill", seed=scope.seed, spread=scope.hurried))


def _power(profile: Profile) -> Callable[[Scope], Plan]:
    def plan(scope: Scope) -> Plan:
        return RebuiltStates(
            source=StateSource(fault="power", profile=profile, budget=scope.states, seed=scope.seed)
        )

    return plan


def _strikes_first_start(schedule: Schedule, begins: int) -> bool:
    early = len(schedule.faults) == 1 and (schedule.faults[0].point.op or 0) < begins
    return early and schedule.tier in ("process", "torn")


TIERS = (
    Tier(
        name="process",
        summary="SIGKILL after every operation on the files: every state, from one recording",
        plan=_kills,
        watches=(
            Watched(
                variant="race", claim="consume-once", subject="agent", needs=("park", "approve"), runs=RACES
            ),
            Watched(variant="fork", claim="fork", subject="agent", needs=("fork",)),
        ),
    ),
    Tier(name="torn", summary="SIGKILL half-way through every write", plan=_kills),
    Tier(
        name="power-ext4",
        summary="what was not synced is lost, in the ways that ext4 allows; the most telling states first",
        plan=_power("ext4"),
        of_power=True,
    ),
    Tier(
        name="power-posix",
        summary="what was not synced is lost, in any way that POSIX allows; the most telling states first",
        plan=_power("posix"),
        of_power=True,
        note="under posix alone this is a warning about file systems other than ext4",
    ),
    Tier(
        name="disk-full",
        summary="ENOSPC at operations spread over the run, once and from there on; real runs",
        plan=lambda _scope: SpreadFaults(fault="disk", tier="disk-full", runs=DISK_RUNS),
    ),
    Tier(
        name="disk-error",
        summary="EIO, short writes and failed syncs spread over the run, once and from there on; real runs",
        plan=lambda _scope: SpreadFaults(fault="disk", tier="disk-error", runs=DISK_RUNS),
        default=False,  # few stores say anything about a disk that lies
    ),
    Tier(
        name="first-start",
        summary="those kills that strike before the first change is asked for",
        plan=_kills,
        takes=_strikes_first_start,
    ),
    Tier(
        name="recovery",
        summary="a kill, then a second one at operations of the recovery from it; real runs",
        plan=lambda _scope: Recoveries(runs=RECOVERY_RUNS),
    ),
    Tier(
        name="zombie",
        summary="a process is stopped after a save, another one takes over and saves, the first goes on",
        watches=(Watched(variant="zombie", claim="fenced", subject="store"),),
    ),
)
