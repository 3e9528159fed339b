"""Op: one operation that changed, or made durable, something below the watched directory.

Objects are inodes, not paths: a file keeps its number through renames, and a new file that reuses
an inode number gets a new one. Number 0 is the watched directory itself. Names belong to directories:
an operation on a name gives the directory (`parent`) and the entry (`name`).
"""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

Kind = Literal[
    "create",  # file appears as parent/name, empty
    "mkdir",
    "symlink",  # data = its target
    "link",  # file gets a second name, parent2/name2 (parent/name is the old one)
    "rename",  # parent/name becomes parent2/name2; `replaced` is the object that lost the name, or -1
    "unlink",
    "rmdir",
    "write",  # data at offset (append and writev are resolved to offsets)
    "truncate",  # size becomes `length`
    "allocate",  # fallocate: size grows to at least offset+length unless keep_size
    "punch",  # a hole: zeros from offset for length
    "fsync",  # of a file or, when `file` is a directory, of its entries
    "fdatasync",
    "sync",  # sync() / syncfs(): everything
]

ALL_KINDS: Final[frozenset[Kind]] = frozenset(get_args(Kind))
NAME_KINDS: Final[frozenset[Kind]] = frozenset(
    {"create", "mkdir", "symlink", "link", "rename", "unlink", "rmdir"}
)
DATA_KINDS: Final[frozenset[Kind]] = frozenset({"write", "truncate", "allocate", "punch"})
SYNC_KINDS: Final[frozenset[Kind]] = frozenset({"fsync", "fdatasync", "sync"})

# What a power loss may lose: as these file systems do with their defaults, or anything that the fsync
# contract permits.
Profile = Literal["ext4", "xfs", "btrfs", "posix"]

ROOT: Final = 0


class Op(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    kind: Kind
    file: int
    parent: int = -1
    name: str = ""  # os.fsdecode'd
    parent2: int = -1
    name2: str = ""
    replaced: int = -1
    offset: int = 0
    length: int = 0
    data: bytes = b""
    keep_size: bool = False
    durable: bool = False  # made by an O_SYNC/O_DSYNC descriptor: on disk when it returned
    mapped: bool = False  # a write that stands for stores through a mapping
    reverted: bool = False  # made by the interposer: what a sync that failed has lost
    joined: bool = False  # found together with the one before: which of them came first is not known
    pid: int = 0

    def __deepcopy__(self, memo: object) -> Op:
        return self  # immutable: copies of a model share it


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """An object that existed, and was durable, before the trace began."""

    file: int
    kind: Literal["file", "dir", "symlink"]
    names: tuple[tuple[int, str], ...]  # (parent, name): more than one for hard links; () for the root
    data: bytes = b""


class BlindSpot(msgspec.Struct, frozen=True):
    """Something that the interposer noticed but could not record."""

    at: int  # before this operation
    what: str
    subject: str = ""  # the path concerned, if any

    def __str__(self) -> str:
        return f"before operation {self.at}: {self.what}{self.subject}"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation found in a file that it was about to change, move or remove."""

    at: int  # before this operation
    file: int
    offset: int
    data: bytes
    whole: bool = False  # the whole file


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    initial: tuple[Node, ...]  # the root first
    ops: tuple[Op, ...]
    blind_spots: tuple[BlindSpot, ...] = ()  # stores through a mapping, static programs...
    base: int = 0  # operations before this one belong to earlier lives (`continued`)
    found: tuple[Found, ...] = ()  # if that was asked for
    elsewhere: tuple[str, ...] = ()  # files outside the directory that were written to
    closes: tuple[tuple[int, int], ...] = ()  # (position, file): closed before that operation


def closes_of(trace: Trace) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for position, file in trace.closes:
        found.setdefault(position, set()).add(file)
    return found
