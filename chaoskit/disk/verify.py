"""Whether a trace tells everything: its last image against the directory that the target really left.

A difference is something that the interposer did not see (a store through a mapping, a system call by
another route) or that an image cannot hold (extended attributes). States rebuilt from such a trace prove
nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from chaoskit.disk.image import DirNode, FileNode, Image, Object, SymlinkNode

SQLITE_SHARED_MEMORY = "-shm"  # mapped, and rebuilt by the first process that opens the database
MOST = 5


def differences(image: Image, directory: Path) -> list[str]:
    """One line each, for the first few."""
    found = []
    for line in _differences(image, directory):
        found.append(line)
        if len(found) == MOST:
            break
    return found


def _differences(image: Image, directory: Path) -> Iterator[str]:
    known = {path: node for path, _, node in image.walk()}
    there = {str(path.relative_to(directory)): path for path in sorted(directory.rglob("*"))}
    for name in sorted(known.keys() | there.keys()):
        if name.endswith(SQLITE_SHARED_MEMORY):
            continue
        if name not in there:
            yield f"{name} is in the trace but not in the directory"
        elif name not in known:
            yield f"{name} is in the directory, but no operation created it"
        else:
            yield from _compared(name, known[name], there[name])


def _compared(name: str, node: Object, path: Path) -> Iterator[str]:
    if isinstance(node, SymlinkNode):
        if not path.is_symlink() or str(path.readlink()) != node.target:
            yield f"{name} is not the symbolic link of the trace"
        return
    if isinstance(node, DirNode) != path.is_dir():
        yield f"{name} is of another kind than in the trace"
        return
    if isinstance(node, FileNode) and path.read_bytes() != node.data.read():
        yield f"{name} has content that no operation wrote"
    attributes = [each for each in os.listxattr(path) if each.startswith("user.")]
    if attributes:
        yield f"{name} has extended attributes ({', '.join(attributes)}), which cannot be rebuilt"
