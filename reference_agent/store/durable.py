"""What a file needs besides a write to be durable."""

from __future__ import annotations

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """The name of a new or renamed file is durable only after its directory is synced."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, content: bytes) -> None:
    """Replace the file atomically: after a power failure it holds all of the new content or all of the old.

    The next call overwrites a temporary file that a crash left behind.
    """
    temporary = path.with_name(path.name + ".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(fd, "wb", buffering=0, closefd=False) as file:
            if file.write(content) != len(content):
                raise OSError(f"{temporary}: wrote less than {len(content)} bytes")
        os.fsync(fd)  # before the rename: otherwise the new name may point to an empty file
    finally:
        os.close(fd)
    temporary.replace(path)
    sync_directory(path.parent)
