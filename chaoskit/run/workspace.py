"""Workspace: one temporary directory for all runs of a campaign, and the certainty that it goes away.

Ordinary ends (success, an exception, Ctrl-C) remove it here. If the harness itself is killed, a
guardian does it: a process of a few lines that waits for the end of file on a pipe whose other end
only the harness holds. It first kills what still carries this session's variable in its
environment: that, and only that, is how it knows a process as ours.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SESSION_VARIABLE = "CHAOSKIT_SESSION"
MEMORY = Path("/dev/shm")  # noqa: S108 - a tmpfs: fsync costs nothing there, and we never lose power


def base_directory() -> Path:
    """$CHAOSKIT_TMPDIR, else memory, else wherever temporary files go."""
    chosen = os.environ.get("CHAOSKIT_TMPDIR")
    if chosen:
        return Path(chosen)
    return MEMORY if os.access(MEMORY, os.W_OK) else Path(tempfile.gettempdir())


class Workspace:
    """Use as a context manager; `path` is gone when it ends, however it ends."""

    def __init__(self) -> None:
        self.session = secrets.token_hex(8)
        self.path = Path(tempfile.mkdtemp(prefix="chaoskit-", dir=base_directory()))
        guardian = Path(__file__).with_name("guardian.py")
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", "-S", str(guardian), str(self.path), self.session],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._guardian.communicate()  # closes the pipe; the guardian sweeps up and leaves
