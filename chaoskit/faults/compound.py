"""Compound: an error that the process survives, then a crash later in the same life.

Method. Both faults are armed before the life begins. A crash at a disk operation that follows a disk error
counts operations that succeed: what the first fault refuses has no number, so the crash strikes where the
trace of a life with the first fault alone says. The life counts as crashed only if both fired. The fuzzer
draws the second fault from such a trace; nobody can request a compound by itself.
"""

from __future__ import annotations

import msgspec

from chaoskit.disk.interposer import then_kill
from chaoskit.faults.kind import Arming, FaultKind, kind_of
from chaoskit.model import Fault, Firing, PersistPoint


class Compound(Fault, msgspec.Struct, frozen=True, tag="compound"):
    """`first` is survivable; `then` ends the life."""

    first: Fault
    then: Fault

    def __str__(self) -> str:
        return f"{self.first} and, in the same life, {self.then}"

    @property
    def point(self) -> PersistPoint:  # type: ignore[override]  # read-only: it is that of the crash
        return self.then.point

    @property
    def name(self) -> str:
        return f"{self.first.tier} + {self.then.name}"

    @property
    def tier(self) -> str:
        return self.then.tier if self.decides_tier else "recovery"

    @property
    def decides_tier(self) -> bool:  # type: ignore[override]
        return self.then.decides_tier

    @property
    def parts(self) -> tuple[Fault, ...]:
        return self.first, self.then


def at(_firing: Firing) -> list[Fault]:
    return []


def arm(fault: Compound) -> Arming:
    one, other = (kind_of(each).arm(each) for each in (fault.first, fault.then))
    disk = then_kill(one.disk, other.disk) if one.disk and other.disk else one.disk or other.disk
    assert one.named is None, "an error comes first, a crash after it"
    return Arming(named=other.named, disk=disk, call=one.call)


KIND = FaultKind(
    name="compound",
    summary="an error that the process survives, then a crash in the same life",
    data=Compound,
    at=at,
    arm=arm,
    requestable=False,
)
