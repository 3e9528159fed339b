"""Standard output that may be closed, full, or a terminal.

A reader that leaves (`chaoskit run payments | head -1`) is no error: what nobody reads is dropped, and the
command still ends with the exit code of its verdict. A device that is full is an error, reported once.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TextIO

STANDARD_OUTPUT = 1


class CannotPrint(Exception):
    """Standard output does not accept what is written to it."""


class _Output(io.FileIO):
    """File descriptor 1. After an error everything is dropped: buffers are flushed once more at exit."""

    _over = False

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        if self._over:
            return len(data)
        try:
            return super().write(data)
        except BrokenPipeError:
            self._over = True
            return len(data)
        except OSError as error:
            self._over = True
            raise CannotPrint(f"cannot write to standard output: {error.strerror}") from None


def _nowhere() -> TextIO:
    return open(os.devnull, "w")  # noqa: PTH123 - open until the process ends


def protect_output() -> None:
    """Replaces `sys.stdout`; text that it cannot encode is escaped."""
    if sys.stderr is None:  # closed before we started
        sys.stderr = _nowhere()
    if sys.stdout is None:
        sys.stdout = _nowhere()
        return
    with suppress(OSError):
        before = sys.stdout
        raw = _Output(STANDARD_OUTPUT, "wb", closefd=False)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=before.encoding,
            errors="backslashreplace",
            line_buffering=bool(before.line_buffering),
        )
