"""Disk errors: one operation fails, or that operation and every later one of its kind.

Method. The interposer makes the call return the error. A failed sync also loses the data it should have
made durable, as on Linux: the pages are dropped, and the next sync succeeds. A full disk fails operations
that need space; unlink, truncate and rename still work. It may become full in the middle of a write: half
of the bytes are there, the call reports so, and the next one fails.
"""

from __future__ import annotations

import errno
from typing import Literal

import msgspec

from chaoskit.disk import interposer
from chaoskit.disk.interposer import NEEDS_SPACE
from chaoskit.disk.ops import SYNC_KINDS
from chaoskit.faults.kind import Arming, FaultKind
from chaoskit.model import Fault, Firing, PersistPoint

FULL = NEEDS_SPACE | SYNC_KINDS  # what fails on a full disk
DiskErrorKind = Literal["EIO", "ENOSPC", "fills", "short", "lost"]


class DiskError(Fault, msgspec.Struct, frozen=True, tag="disk"):
    """`fills`: half of the bytes are written, then the disk is full. `short`: only half of the bytes are
    written. `lost`: a sync fails and its data is lost. `lasting`: every later operation of this kind fails,
    too."""

    point: PersistPoint
    error: DiskErrorKind
    lasting: bool = False

    def __str__(self) -> str:
        return f"{self.name} at {self.point}"

    @property
    def name(self) -> str:
        what = {"short": "short write", "lost": "failed sync", "fills": "ENOSPC halfway"}.get(
            self.error, self.error
        )
        return f"{what} from here on" if self.lasting else what

    @property
    def tier(self) -> str:
        return "disk-full" if self.error in ("ENOSPC", "fills") else "disk-error"


def at(firing: Firing) -> list[Fault]:
    """Each error that is possible at this operation, once and lasting; a store through a mapping has none."""
    kind = firing.point.name.partition(" ")[0]
    if kind == "store":
        return []
    full: tuple[DiskErrorKind, ...] = ("ENOSPC",) if kind in FULL else ()
    errors: dict[str, tuple[DiskErrorKind, ...]] = {
        "before": ("lost" if kind in ("fsync", "fdatasync") else "EIO", *full),
        "half": ("short", "fills"),
        "after": (),
        "call": (),
    }
    return [
        DiskError(firing.point, error, lasting) for error in errors[firing.when] for lasting in (False, True)
    ]


def arm(fault: DiskError) -> Arming:
    op = fault.point.op
    assert op is not None, "disk errors strike at disk operations"
    count = interposer.FOREVER if fault.lasting else 1
    if fault.error == "short":
        return Arming(disk=interposer.short_write(op, count=count))
    if fault.error == "fills":
        return Arming(disk=interposer.fill(op, kinds=FULL, count=count))
    if fault.error == "lost":
        return Arming(disk=interposer.lose_on_fsync(op, count=count))
    if fault.error == "ENOSPC" and fault.lasting:
        return Arming(disk=interposer.fail(op, errno.ENOSPC, kinds=FULL, count=count))
    return Arming(disk=interposer.fail(op, getattr(errno, fault.error), count=count))


KIND = FaultKind(
    name="disk",
    summary="EIO, ENOSPC, short writes, failed syncs: at one operation, or from one operation on",
    data=DiskError,
    at=at,
    arm=arm,
    watches_disk=True,
    survivable=True,
    sweep_rounds=1,
)
