"""Tiers: the columns of a certificate, each a class of faults. Declared here or by other packages.

Tiers are found through the entry-point group `chaoskit.tiers`. A fault names the tier that its runs belong
to; a tier declares the plan by which a certificate covers it. Tiers that share a plan share its runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from chaoskit import entry_points
from chaoskit.disk.ops import Profile
from chaoskit.faults import kill
from chaoskit.faults.kind import StateSource
from chaoskit.faults.power import MOST_STATES
from chaoskit.model import Ack, Event, Probe, Schedule, Subject
from chaoskit.recording import Recording
from chaoskit.search.plan import Plan, RebuiltStates, Recoveries, SpreadFaults, power_in_recoveries

GROUP = "chaoskit.tiers"
DISK_RUNS = 60  # real runs
FULL_RUNS = 90  # operations fail at their beginning or halfway
RECOVERY_RUNS = 60
RACES = 3
OTHERS: tuple[Profile, ...] = ("xfs", "btrfs")
LONG_STATES = 60  # of the long workload, per plan


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a certificate that the plan of a tier depends on."""

    seed: int = 0
    states: int = MOST_STATES  # power-loss states per profile
    hurried: bool = False  # there is a time limit
    long: bool = False  # of the long workload only a few states are tried


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """A variant of the workload that disturbs the target without a crash; one claim is judged."""

    variant: str
    claim: str
    subject: Subject
    needs: tuple[str, ...] = ()  # methods of the adapter
    runs: int = 1


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    summary: str
    plan: Callable[[Scope], Plan] | None = None  # how a certificate covers it
    also: Callable[[Scope], Plan] | None = None  # a second plan, after the first
    watches: tuple[Watched, ...] = ()  # runs without a crash that also belong to it
    # Claims schedules for this tier, whatever the tier of their faults; the int is the position of the
    # first requested change.
    takes: Callable[[Schedule, int], bool] | None = None
    on_long: bool = False  # also covered with the target's long workload, if it has one
    of_power: bool = False  # covered only by promises that mention power loss
    note: str = ""  # shown with each finding
    default: bool = True  # examined if no tiers are requested


def tiers() -> dict[str, Tier]:
    """All tiers, in the order of the columns."""
    return entry_points.declared(GROUP, Tier)


def default_tiers() -> tuple[str, ...]:
    return tuple(name for name, tier in tiers().items() if tier.default)


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """These tiers, in the order of the columns. Raises UnknownName."""
    for name in names:
        if name not in tiers():
            raise entry_points.UnknownName(entry_points.unknown("tier", name, tiers()))
    return tuple(name for name in tiers() if name in names)


def is_of_power(name: str) -> bool:
    """Whether this tier is covered only by promises that mention power loss."""
    return name in tiers() and tiers()[name].of_power


def tier_of(events: Sequence[Event]) -> Callable[[Schedule], str]:
    """A function that assigns schedules to tiers, given the events of a run without faults."""
    answered = [e.at for e in events if isinstance(e, Ack) or (isinstance(e, Probe) and e.name == "asked")]
    begins = min(answered, default=0)
    takers: Mapping[str, Callable[[Schedule, int], bool]] = {
        name: tier.takes for name, tier in tiers().items() if tier.takes
    }

    def assign(schedule: Schedule) -> str:
        return next((name for name, takes in takers.items() if takes(schedule, begins)), schedule.tier)

    return assign


def kill_schedules(recording: Recording) -> Iterator[Schedule]:
    """Every kill that the tiers of kills can try on this recording."""
    return (Schedule((state.fault,)) for state in kill.states(recording, StateSource(fault="kill")))


# --- the tiers of chaoskit -----------------------------------------------------------------------


def _kills(scope: Scope) -> Plan:
    budget = LONG_STATES if scope.long else None
    spread = scope.hurried or scope.long
    return RebuiltStates(source=StateSource(fault="kill", seed=scope.seed, budget=budget, spread=spread))


def _power(profile: Profile) -> Callable[[Scope], Plan]:
    def plan(scope: Scope) -> Plan:
        budget = min(scope.states, LONG_STATES) if scope.long else scope.states
        return RebuiltStates(
            source=StateSource(fault="power", profile=profile, budget=budget, seed=scope.seed)
        )

    return plan


def _power_in_recovery(profile: Profile) -> Callable[[Scope], Plan]:
    def plan(scope: Scope) -> Plan:
        return power_in_recoveries(profile, scope.states, scope.seed)

    return plan


def _strikes_first_start(schedule: Schedule, begins: int) -> bool:
    early = len(schedule.faults) == 1 and (schedule.faults[0].point.op or 0) < begins
    return early and schedule.tier in ("process", "torn")


TIERS = (
    Tier(
        name="process",
        summary="SIGKILL after every file operation: all states are rebuilt from one recording",
        plan=_kills,
        on_long=True,
        watches=(
            Watched(
                variant="race", claim="consume-once", subject="agent", needs=("park", "approve"), runs=RACES
            ),
            Watched(variant="fork", claim="fork", subject="agent", needs=("fork",)),
        ),
    ),
    Tier(name="torn", summary="SIGKILL halfway through every write", plan=_kills, on_long=True),
    Tier(
        name="power-ext4",
        summary="power loss: unsynced data is lost in the ways that ext4 allows; most revealing states first",
        plan=_power("ext4"),
        also=_power_in_recovery("ext4"),
        on_long=True,
        of_power=True,
    ),
    *(
        Tier(
            name=f"power-{profile}",
            summary=f"power loss: unsynced data is lost in the ways that {profile} allows; most revealing"
            " states first",
            plan=_power(profile),
            also=_power_in_recovery(profile),
            of_power=True,
            default=False,  # findings under ext4 and posix say whether they happen there, too
        )
        for profile in OTHERS
    ),
    Tier(
        name="power-posix",
        summary="power loss: unsynced data is lost in any way that POSIX allows; most revealing states first",
        plan=_power("posix"),
        also=_power_in_recovery("posix"),
        of_power=True,
        note="a finding under posix only is a warning about file systems other than ext4, xfs and btrfs",
    ),
    Tier(
        name="disk-full",
        summary="ENOSPC at or halfway through operations spread over the run, once or lasting; real runs",
        plan=lambda _scope: SpreadFaults(fault="disk", tier="disk-full", runs=FULL_RUNS),
    ),
    Tier(
        name="disk-error",
        summary="EIO, short writes and failed syncs spread over the run, once or from then on; real runs",
        plan=lambda _scope: SpreadFaults(fault="disk", tier="disk-error", runs=DISK_RUNS),
        default=False,  # few stores document how they handle a failing disk
    ),
    Tier(
        name="first-start",
        summary="SIGKILL before anything is acknowledged, while directories, files and tables are created",
        plan=_kills,
        takes=_strikes_first_start,
    ),
    Tier(
        name="recovery",
        summary="a second SIGKILL during recovery from the first; real runs",
        plan=lambda _scope: Recoveries(runs=RECOVERY_RUNS),
    ),
    Tier(
        name="zombie",
        summary="a process pauses after a save, another takes over and saves, then the first one resumes",
        watches=(Watched(variant="zombie", claim="fenced", subject="store"),),
    ),
)
