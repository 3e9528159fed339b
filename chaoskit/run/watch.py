"""DiskWatch: the interposer as the supervisor uses it, armed anew for each life that is watched."""

from __future__ import annotations

import errno
from pathlib import Path

from chaoskit.disk import interposer, trace as disk_trace
from chaoskit.disk.ops import SYNC_KINDS, Trace
from chaoskit.model import DiskError, Fault, Kill, PowerLoss


class DiskWatch:
    def __init__(self, control_path: Path) -> None:
        """The control file is the watch's own; it must lie outside of what is watched."""
        self._control = interposer.Control(control_path)
        self._start = disk_trace.Snapshot(nodes=(), identities=())
        self._decoded: Trace | None = None

    @property
    def control_path(self) -> Path:
        return self._control.path

    @property
    def position(self) -> int:
        return self._control.position

    @property
    def fired(self) -> bool:
        return self._control.fired == "yes"

    def arm(self, state: Path, fault: Fault | None) -> None:
        """Ready for a life in `state`, which must be quiet until the life begins."""
        self._decoded = None
        self._start = disk_trace.snapshot(state)
        self._control.arm(state, "record", action_of(fault) if fault else None)

    def trace(self) -> Trace:
        """What the life did, once it is over. SQLite's shared memory is rebuilt by every opener."""
        if self._decoded is None:
            self._decoded = disk_trace.decode(self._control.raw_trace(), self._start)
        return self._decoded

    def blind_spots(self) -> list[str]:
        """What could not be seen, and might have mattered."""
        return [warning for warning in self.trace().warnings if not warning.endswith("-shm")]

    def close(self) -> None:
        self._control.close()


def action_of(fault: Fault) -> interposer.Action | None:
    """What the interposer is told to do; a fault at a named point is not its business."""
    op = fault.point.op
    if op is None:
        return None
    if isinstance(fault, Kill):
        return interposer.kill(op, fault.when)
    if isinstance(fault, PowerLoss):
        return interposer.kill(op, "before")
    return _error(fault, op)


def _error(fault: DiskError, op: int) -> interposer.Action:
    count = interposer.FOREVER if fault.lasting else 1
    if fault.error == "short":
        return interposer.short_write(op, count=count)
    if fault.error == "lost":
        return interposer.lose_on_fsync(op, count=count)
    if fault.error == "ENOSPC" and fault.lasting:
        refused = interposer.NEEDS_SPACE | SYNC_KINDS
        return interposer.fail(op, errno.ENOSPC, kinds=refused, count=count)
    return interposer.fail(op, getattr(errno, fault.error), count=count)
