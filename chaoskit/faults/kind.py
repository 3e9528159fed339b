"""FaultKind: everything that the engine knows of one kind of fault, in one declaration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from chaoskit import entry_points
from chaoskit.disk.hint import Hint
from chaoskit.disk.interposer import Action
from chaoskit.disk.ops import Profile, Trace
from chaoskit.inside.protocol import NamedKill
from chaoskit.model import Fault, Firing
from chaoskit.recording import CrashState, Recording

GROUP = "chaoskit.faults"


class Arming(msgspec.Struct, frozen=True):
    """How a life is prepared so that its fault strikes: at a named point, or at an operation on the disk."""

    named: NamedKill | None = None
    disk: Action | None = None


class StateSource(msgspec.Struct, frozen=True, kw_only=True):
    """Which crash states to rebuild from a recording."""

    fault: str  # the name of its kind
    profile: Profile | None = None
    budget: int | None = None  # at most so many; None: all there are
    seed: int = 0
    spread: bool = False  # time may run out: every part of the run gets its share early


StillBad = Callable[[CrashState], bool]


class FaultKind(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # what --fault takes
    summary: str
    data: type[Fault]  # one fault of this kind; the tag of this Struct is what tokens carry
    at: Callable[[Firing], Sequence[Fault]]  # what can be planned where a life passes a point
    arm: Callable[[Any], Arming]
    watches_disk: bool = False  # points are operations on the disk, not names that the target announces
    survivable: bool = False  # the process lives on, and whether it ends well is its own affair
    sweep_rounds: int = 2  # 1: a sweep does not crash the recoveries as well
    # Once the process is dead: what the fault does to the directory, given the trace of the life.
    after_death: Callable[[Any, Trace, Path], None] | None = None
    # Crash states rebuilt from one recording, and whether a campaign tries these instead of real runs.
    states: Callable[[Recording, StateSource], Iterator[CrashState]] | None = None
    rebuilt: bool = False
    # Of a finding on a rebuilt state: the least that shows it, and what would have prevented it.
    minimise: Callable[[Recording, Any, StillBad], Fault] | None = None
    explain: Callable[[Recording, Any], Hint] | None = None


def kinds() -> dict[str, FaultKind]:
    """Every kind there is, by name."""
    return entry_points.declared(GROUP, FaultKind)


def kind(name: str) -> FaultKind:
    found = kinds().get(name)
    if found is None:
        raise entry_points.UnknownName(entry_points.unknown("fault", name, sorted(kinds())))
    return found


def kind_of(fault: Fault) -> FaultKind:
    return next(kind for kind in kinds().values() if type(fault) is kind.data)


def decode_hook(wanted: type, value: Any) -> Any:
    """For msgspec: a Fault is of the kind that its tag names."""
    if wanted is not Fault:
        raise NotImplementedError(f"cannot decode {wanted}")
    tags = {kind.data.__struct_config__.tag: kind for kind in kinds().values()}  # type: ignore[attr-defined]
    if not isinstance(value, dict) or value.get("type") not in tags:
        named = value.get("type") if isinstance(value, dict) else value
        raise ValueError(f"no fault {named!r} here (there are: {', '.join(map(str, tags))})")
    return msgspec.convert(value, tags[value["type"]].data)
