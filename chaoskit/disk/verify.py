"""Whether a trace tells everything: its last image against the directory that the target really left.

A difference is something that the interposer did not see (a store through a mapping that was made writable
later, a system call by another route) or that an image cannot hold (extended attributes). States rebuilt
from such a trace prove nothing.

The last state alone would not show what was overwritten, moved or removed in between. So each operation also
keeps what it found (`Trace.found`): that, too, must be what the trace knows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from chaoskit.disk.image import DirNode, FileNode, Image, Object, SymlinkNode
from chaoskit.disk.kill_states import images, last_image
from chaoskit.disk.ops import SYNC_KINDS, Found, Trace

SQLITE_SHARED_MEMORY = "-shm"  # mapped, and rebuilt by the first process that opens the database
SQLITE_DATABASE = b"SQLite format 3\0"
SQLITE_INDEX = (3007000).to_bytes(4, sys.byteorder)  # how that memory begins
LMDB_LOCKS = ("lock.mdb", "-lock")  # likewise
LMDB_MAGIC = (0xBEEFC0DE).to_bytes(4, sys.byteorder)
LMDB_MAGIC_AT = 16  # in the database, after the head of its first page
BYTECODE = "__pycache__"
MOST = 5


def differences(image: Image, directory: Path) -> list[str]:
    """One line each, for the first few."""
    return list(islice(_differences(image, directory), MOST))


def surprises(trace: Trace) -> list[str]:
    """Operations that found something else than the trace knows; the first few."""
    return list(islice(_surprises(trace), MOST))


def written_elsewhere(trace: Trace, harness: Path) -> list[str]:
    """Files outside the directory that were written to and are still there; not those of the harness."""
    lasting = (
        path
        for path in trace.elsewhere
        if Path(path).is_file() and harness not in Path(path).parents and BYTECODE not in Path(path).parts
    )
    return [f"{path} was written to, outside of the directory" for path in islice(lasting, MOST)]


def never_synced(trace: Trace) -> list[str]:
    """Files that were changed through a mapping and not synced afterwards. Nothing orders such stores, and
    only a few of the moments between them are tried."""
    synced = {op.file: op.index for op in trace.ops if op.kind in SYNC_KINDS and op.kind != "sync"}
    last = max((op.index for op in trace.ops if op.kind == "sync"), default=-1)
    stores = {op.file: op.index for op in trace.ops if op.mapped}
    late = [file for file, index in stores.items() if index > max(last, synced.get(file, -1))]
    end = last_image(trace) if late else None
    names = [end.path(file) for file in late if end is not None]  # a file that is gone does not matter
    return [f"stores through a mapping of {name} were never synced (msync)" for name in names[:MOST] if name]


def links_out(trace: Trace) -> list[str]:
    """Symbolic links to what is not in the trace: also absolute ones, for a rebuilt state is elsewhere."""
    if not any(op.kind == "symlink" for op in trace.ops):
        return []
    found = []
    for op, image in zip(trace.ops, islice(images(trace), 1, None), strict=True):
        node = image.nodes.get(op.file)
        if op.kind == "symlink" and isinstance(node, SymlinkNode):
            path = image.path(op.file) or op.name
            if os.path.normpath(Path(path).parent / node.target).startswith(("/", "..")):
                found.append(f"the symbolic link {path} leads out of the directory, to {node.target}")
    return found[:MOST]


def is_shared_memory(path: Path) -> bool:
    """A file that is mapped, and made anew by whoever opens its database first: SQLite's index, LMDB's table
    of readers. Not every file of that name: it belongs to a database, or begins as theirs do."""
    if path.name.endswith(SQLITE_SHARED_MEMORY):
        database = path.with_name(path.name.removesuffix(SQLITE_SHARED_MEMORY))
        return _has(database, SQLITE_DATABASE) or _has(path, SQLITE_INDEX)
    if path.name.endswith(LMDB_LOCKS):
        database = path.with_name("data.mdb" if path.name == "lock.mdb" else path.name.removesuffix("-lock"))
        return _has(path, LMDB_MAGIC) or _has(database, LMDB_MAGIC, LMDB_MAGIC_AT)
    return False


def _has(path: Path, expected: bytes, offset: int = 0) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(len(expected)) == expected
    except OSError:
        return False


def _belongs_to_sqlite(image: Image, number: int) -> bool:
    """The same question within an image."""
    node = image.nodes.get(number)
    for parent, name in node.links if node else ():
        database = image.entry(parent, name.removesuffix(SQLITE_SHARED_MEMORY))
        if name.endswith(SQLITE_SHARED_MEMORY) and database is not None:
            return image.data(database).read_range(0, len(SQLITE_DATABASE)) == SQLITE_DATABASE
    return False


def _surprises(trace: Trace) -> Iterator[str]:
    waiting: dict[int, list[Found]] = {}
    for each in trace.found:
        waiting.setdefault(each.at, []).append(each)
    if not waiting:
        return
    for position, image in enumerate(images(trace)):
        for found in waiting.get(position, ()):
            known = image.data(found.file)
            size = known.size if found.whole else len(found.data)
            same = known.read_range(found.offset, size) == found.data
            if not same and not _belongs_to_sqlite(image, found.file):
                name = image.path(found.file) or "a file without a name"
                yield f"before operation {position}, {name} had content that no operation wrote"


def _differences(image: Image, directory: Path) -> Iterator[str]:
    known = {path: node for path, _, node in image.walk()}
    there = {str(path.relative_to(directory)): path for path in sorted(directory.rglob("*"))}
    for name in sorted(known.keys() | there.keys()):
        if is_shared_memory(directory / name):
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
