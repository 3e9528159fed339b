"""How a command ends other than by succeeding: an exit code and one line that says why and what to do (C4).

Imported before the command is known, so it imports next to nothing.
"""

from __future__ import annotations

import errno
import os
import sys

FAILED, WRONG_USE, INTERNAL, INTERRUPTED, TERMINATED = 1, 2, 4, 130, 143
# The path itself is wrong, so the user has to choose another one.
WRONG_PATH = {
    errno.EEXIST,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ENXIO,
}
REMEDIES = {
    errno.ENOSPC: "free some space, then run the command again",
    errno.EDQUOT: "free some of your quota, then run the command again",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f), then run the command again",
    errno.EMFILE: "raise the limit of open files (ulimit -n), then run the command again",
    errno.EACCES: "change its permissions, or choose another place",
    errno.EPERM: "change its permissions, or choose another place",
    errno.EROFS: "choose a place that can be written to",
}
NO_REMEDY = "run the command again; --debug shows where it failed"


class Problem(Exception):
    """One line for the user, and the exit code if the program cannot continue."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code


class NoReader(Exception):
    """Standard output is a pipe that nobody reads any more: `| head -1` has seen enough."""


class CannotWrite(Exception):
    """Standard output cannot be written to. Nothing that the chat does can continue."""

    def __init__(self, error: OSError) -> None:
        super().__init__(with_remedy(error, "standard output"))


def put(text: str) -> None:
    """Write to standard output, at once."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise NoReader from None
    except OSError as error:
        raise CannotWrite(error) from error


def with_remedy(error: OSError, place: str = "") -> str:
    """What failed, where, and what to do about it. `place` is for an error that does not name a file."""
    where = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else place
    return f"{where}: {error.strerror or error}: {REMEDIES.get(error.errno or 0, NO_REMEDY)}"


def wrong_path(option: str, path: str | os.PathLike[str], error: OSError) -> Problem:
    """For an option that names a path which cannot be used."""
    if error.errno in WRONG_PATH:
        return Problem(f"{option} {os.fspath(path)}: {error.strerror}", WRONG_USE)
    remedy = REMEDIES.get(error.errno or 0, NO_REMEDY)
    return Problem(f"{option} {os.fspath(path)}: {error.strerror}: {remedy}", INTERNAL)
