"""What files need beyond a write to be durable."""

from __future__ import annotations

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """A new or renamed file's name is durable only when its directory is synced."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, content: bytes) -> None:
    """All of the new content or all of the old, whenever the power goes.

    What a crash leaves of the temporary file is overwritten by the next call.
    """
    temporary = path.with_name(path.name + ".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(fd, "wb", buffering=0, closefd=False) as file:
            if file.write(content) != len(content):
                raise OSError(f"{temporary}: wrote less than {len(content)} bytes")
        os.fsync(fd)  # before the rename: else the new name may point to nothing
    finally:
        os.close(fd)
    temporary.replace(path)
    sync_directory(path.parent)
