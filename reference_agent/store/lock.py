"""One process per session: a second one is rejected. The kernel holds the lock, so a kill releases it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class SessionBusy(Exception):
    """Another process has the session open."""


class SessionLock:
    def __init__(self, path: Path) -> None:
        # O_CLOEXEC (Python's default) keeps a tool's child process from holding the lock after this process
        # ends.
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(self._fd, 20).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise SessionBusy(
                f"session {path.stem} is open in another process (pid {holder}): stop it first"
            ) from None
        try:
            os.ftruncate(self._fd, 0)
            os.write(self._fd, str(os.getpid()).encode())
        except BaseException:  # a full disk: otherwise this process would hold the lock until it exits
            os.close(self._fd)
            raise

    def release(self) -> None:
        os.close(self._fd)
