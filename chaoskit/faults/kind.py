"""FaultKind: everything that the engine knows about one kind of fault, in one declaration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from chaoskit import entry_points
from chaoskit.disk.hint import Hint
from chaoskit.disk.interposer import Action
from chaoskit.disk.ops import Profile, Trace
from chaoskit.inside.protocol import NamedKill
from chaoskit.model import Fault, Firing, PersistPoint
from chaoskit.recording import CrashState, Recording

GROUP = "chaoskit.faults"


class CallFault(msgspec.Struct, frozen=True):
    """The nth call with this name fails; `lost`: what it asked for is done, and its reply is lost."""

    name: str
    nth: int
    lost: bool


class Arming(msgspec.Struct, frozen=True):
    """How a life is prepared so that its fault fires: at a named point, a disk operation, or a call of the
    World."""

    named: NamedKill | None = None
    disk: Action | None = None
    call: CallFault | None = None


class StateSource(msgspec.Struct, frozen=True, kw_only=True):
    """Which crash states to rebuild from a recording."""

    fault: str  # the name of its kind
    profile: Profile | None = None
    budget: int | None = None  # maximum number of states; None: all
    seed: int = 0
    spread: bool = False  # there may not be enough time or budget for all: what differs most comes first


StillBad = Callable[[CrashState], bool]


class FaultKind(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # what --fault takes
    summary: str
    data: type[Fault]  # a fault of this kind; tokens store the tag of this Struct
    at: Callable[[Firing], Sequence[Fault]]  # the faults possible where a life passes a point
    arm: Callable[[Any], Arming]
    watches_disk: bool = False  # points are disk operations, not names that the target announces
    survivable: bool = False  # the process survives the fault; it may complete or fail
    sweep_rounds: int = 2  # 1: a sweep does not crash recoveries
    strikes_calls: bool = False  # points are calls of the World; only for scenarios that tolerate it
    requestable: bool = True  # False: drawn by the fuzzer only
    # One fault before the point, given the trace up to there: where `at` cannot know what is possible.
    draw: Callable[[Recording, PersistPoint, Profile, Random], Fault | None] | None = None
    # Applied to the directory once the process is dead, given the trace of the life.
    after_death: Callable[[Any, Trace, Path], None] | None = None
    # Crash states rebuilt from one recording, and whether a campaign tries these instead of real runs.
    states: Callable[[Recording, StateSource], Iterator[CrashState]] | None = None
    rebuilt: bool = False
    selects: bool = False  # its states are a selection: there are too many to try them all
    # For a finding on a rebuilt state: the smallest fault that shows it, and what would have prevented it.
    minimise: Callable[[Recording, Any, StillBad], Fault] | None = None
    explain: Callable[[Recording, Any, StillBad | None], Hint] | None = None


def kinds() -> dict[str, FaultKind]:
    """All kinds that can be requested, by name."""
    return {name: kind for name, kind in _declared().items() if kind.requestable}


def _declared() -> dict[str, FaultKind]:
    return entry_points.declared(GROUP, FaultKind)


def kind(name: str) -> FaultKind:
    found = kinds().get(name)
    if found is None:
        raise entry_points.UnknownName(entry_points.unknown("fault", name, sorted(kinds())))
    return found


def kind_of(fault: Fault) -> FaultKind:
    return next(kind for kind in _declared().values() if type(fault) is kind.data)


def ends_life(fault: Fault) -> bool:
    return not kind_of(fault).survivable


def decode_hook(wanted: type, value: Any) -> Any:
    """For msgspec: decodes a Fault by its tag."""
    if wanted is not Fault:
        raise NotImplementedError(f"cannot decode {wanted}")
    tags = {kind.data.__struct_config__.tag: kind for kind in _declared().values()}  # type: ignore[attr-defined]
    if not isinstance(value, dict) or value.get("type") not in tags:
        named = value.get("type") if isinstance(value, dict) else value
        raise ValueError(f"no fault {named!r} (there are: {', '.join(map(str, tags))})")
    return msgspec.convert(value, tags[value["type"]].data, dec_hook=decode_hook)
