"""Named persist points: count them, record each one, die at the planned one.

Method. A target calls `sys.audit("persist.point", name, phase)` before and after it persists. The
hook writes one line per call directly to a file: a write(2) that has returned survives SIGKILL. At
the planned point it writes a last line, so that the supervisor can tell this kill from any other, and
sends SIGKILL to its own process group. A signal to oneself is delivered before kill(2) returns, so
the caller does not execute another instruction.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from chaoskit.inside.protocol import NamedKill

EVENT = "persist.point"
KILLED = b"!killed\n"


class PointWatcher:
    """The audit hook. It cannot be removed, so a process has one hook that each life resets."""

    def __init__(self) -> None:
        self.position = 0  # firings so far in this life
        self._trace_fd = -1
        self._kill: tuple[str, int, str] | None = None
        self._seen: dict[tuple[str, str], int] = {}
        sys.addaudithook(self._hook)

    def begin(self, trace_path: str | None, kill: NamedKill | None) -> None:
        """Without a trace, points are not counted."""
        self.position = 0
        self._seen.clear()
        self._kill = (kill.name, kill.nth, kill.when) if kill else None
        if trace_path:
            self._trace_fd = os.open(trace_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def end(self) -> None:
        if self._trace_fd >= 0:
            os.close(self._trace_fd)
        self._trace_fd = -1

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if event == EVENT and self._trace_fd >= 0:
            self._fire(*args)

    def _fire(self, name: str, when: str) -> None:
        if when not in ("before", "after"):
            raise ValueError(f"persist point {name!r}: expected phase 'before' or 'after', got {when!r}")
        nth = self._seen[name, when] = self._seen.get((name, when), 0) + 1
        self.position += 1
        os.write(self._trace_fd, f"{when}\t{name}\n".encode())
        if self._kill == (name, nth, when):
            os.write(self._trace_fd, KILLED)
            os.killpg(0, signal.SIGKILL)
