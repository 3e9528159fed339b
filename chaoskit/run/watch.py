"""DiskWatch: the supervisor's interface to the interposer, armed again for each watched life."""

from __future__ import annotations

from pathlib import Path

from chaoskit.disk import interposer, trace as disk_trace
from chaoskit.disk.ops import BlindSpot, Trace
from chaoskit.disk.verify import is_shared_memory


class DiskWatch:
    def __init__(self, control_path: Path) -> None:
        """Creates the control file, which must be outside the watched directory."""
        self._control = interposer.Control(control_path)
        self._start = disk_trace.Snapshot(nodes=(), identities=())
        self._decoded: Trace | None = None
        self._has_then = False

    @property
    def control_path(self) -> Path:
        return self._control.path

    @property
    def position(self) -> int:
        return self._control.position

    @property
    def fired(self) -> bool:
        """Whether the action did, with the kill that was to follow it, if any."""
        return self._control.fired == "yes" and (self._then_fired or not self._has_then)

    @property
    def _then_fired(self) -> bool:
        return self._control.then_fired

    def arm(self, state: Path, action: interposer.Action | None, *, check: bool = False) -> None:
        """Prepares for a life in `state`, which must not change until the life begins."""
        self._decoded = None
        self._has_then = action is not None and action.then_kill != "none"
        self._start = disk_trace.snapshot(state)
        self._control.arm(state, "record", action, check=check)

    def trace(self) -> Trace:
        """The operations of a finished life."""
        if self._decoded is None:
            self._decoded = disk_trace.decode(self._control.raw_trace(), self._start)
        return self._decoded

    def blind_spots(self) -> list[BlindSpot]:
        """Operations that could not be traced and may matter."""
        spots = self.trace().blind_spots
        return [spot for spot in spots if not is_shared_memory(Path(spot.subject))]

    def close(self) -> None:
        self._control.close()
