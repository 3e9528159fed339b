"""Workspace: one temporary directory for all runs of a campaign, removed even if the harness is killed.

On success, an exception or Ctrl-C it is removed here. If the harness itself is killed, a guardian
removes it: a small process that waits for end of file on a pipe whose other end only the harness
holds. It first kills every process that has this session's variable in its environment, and no other.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

SESSION_VARIABLE = "CHAOSKIT_SESSION"
MEMORY = Path("/dev/shm")  # noqa: S108 - a tmpfs: fsync is free there, and a real power loss is no concern


def base_directory() -> Path:
    """$CHAOSKIT_TMPDIR, else /dev/shm, else the default temporary directory."""
    chosen = os.environ.get("CHAOSKIT_TMPDIR")
    if chosen is not None:
        if not chosen or not Path(chosen).is_dir():
            raise NoWorkspace(f"expected CHAOSKIT_TMPDIR to be a directory, got {chosen!r}")
        return Path(chosen)
    return MEMORY if os.access(MEMORY, os.W_OK) else Path(tempfile.gettempdir())


class NoWorkspace(Exception):
    """CHAOSKIT_TMPDIR does not name a directory."""


class Workspace:
    """A context manager; `path` is removed at its end."""

    def __init__(self, base: Path | None = None) -> None:
        self.session = secrets.token_hex(8)
        self.path = Path(tempfile.mkdtemp(prefix="chaoskit-", dir=base or base_directory()))
        guardian = Path(__file__).with_name("guardian.py")
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", "-S", str(guardian), str(self.path), self.session],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(RecursionError):  # a tree that deep is left to the guardian
            shutil.rmtree(self.path, ignore_errors=True)
        self._guardian.communicate()  # closes the pipe; the guardian cleans up and exits
