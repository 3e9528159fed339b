"""From the interposer's bytes to a Trace: pure decoding, and a snapshot of the initial directory.

The interposer identifies files by device and inode. Here they get numbers that identify one object for
the whole trace: a reused inode is a new object, a renamed file keeps its number.

The writes to a file that is moved in from outside the watched directory are not in the trace. It becomes
a Node without names in `Trace.initial`, with its content on arrival, and the rename or link that moved it
has no old name (`parent` is -1). A file made by O_TMPFILE is a `create` with `parent` -1 and no name,
until a `link`, again without an old name, gives it one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from chaoskit.disk.ops import ROOT, BlindSpot, Found, Kind, Node, Op, Trace
from chaoskit.inside import layout

NodeKind = Literal["file", "dir", "symlink"]
Note = Literal["warning", "before image", "sync_file_range", "elsewhere", "close"]  # not operations
Identity = tuple[int, int]  # device, inode

KIND_NUMBERS: Final[dict[Kind, int]] = {
    "create": layout.KIND_CREATE,
    "mkdir": layout.KIND_MKDIR,
    "symlink": layout.KIND_SYMLINK,
    "link": layout.KIND_LINK,
    "rename": layout.KIND_RENAME,
    "unlink": layout.KIND_UNLINK,
    "rmdir": layout.KIND_RMDIR,
    "write": layout.KIND_WRITE,
    "truncate": layout.KIND_TRUNCATE,
    "allocate": layout.KIND_ALLOCATE,
    "punch": layout.KIND_PUNCH,
    "fsync": layout.KIND_FSYNC,
    "fdatasync": layout.KIND_FDATASYNC,
    "sync": layout.KIND_SYNC,
}
NOTE_NUMBERS: Final[dict[Note, int]] = {
    "warning": layout.KIND_WARNING,
    "before image": layout.KIND_BEFORE_IMAGE,
    "sync_file_range": layout.KIND_SYNC_RANGE,
    "elsewhere": layout.KIND_ELSEWHERE,
    "close": layout.KIND_CLOSE,
}
_OPERATIONS: Final = {number: kind for kind, number in KIND_NUMBERS.items()}
_NOTES: Final = {number: note for note, number in NOTE_NUMBERS.items()}
_NOBODY: Final = (0, 0)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The watched directory before activation. `identities[i]` belongs to `nodes[i]`."""

    nodes: tuple[Node, ...]
    identities: tuple[Identity, ...]


class RawTrace(msgspec.Struct, frozen=True, kw_only=True):
    data: bytes
    overflow: bool = False
    missed: int = 0  # operations that could not be recorded
    interrupted: bool = False  # a process was killed from outside during an operation


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One record of the trace: an operation or a note."""

    kind: Kind | Note
    index: int
    flags: int
    pid: int
    file: Identity
    parent: Identity
    parent2: Identity
    replaced: Identity
    offset: int
    length: int
    name: str
    name2: str
    data: bytes


def snapshot(directory: str | os.PathLike[str]) -> Snapshot:
    """Everything below `directory`, which must not change meanwhile; numbered in order of names."""
    return _Listing(Path(directory).resolve()).snapshot()


class _Listing:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._names: list[list[tuple[int, str]]] = []
        self._found: list[tuple[NodeKind, bytes]] = []
        self._numbers: dict[Identity, int] = {}

    def snapshot(self) -> Snapshot:
        self._number_of(self._root, self._root.stat())
        self._list(self._root, ROOT)
        nodes = tuple(
            Node(file=number, kind=kind, names=tuple(names), data=data)
            for number, ((kind, data), names) in enumerate(zip(self._found, self._names, strict=True))
        )
        return Snapshot(nodes=nodes, identities=tuple(self._numbers))

    def _list(self, directory: Path, parent: int) -> None:
        for path in sorted(directory.iterdir()):
            status = path.lstat()
            if not _is_modelled(status.st_mode):
                continue
            number = self._number_of(path, status)
            self._names[number].append((parent, path.name))
            if stat.S_ISDIR(status.st_mode):
                self._list(path, number)

    def _number_of(self, path: Path, status: os.stat_result) -> int:
        identity = (status.st_dev, status.st_ino)
        if identity not in self._numbers:
            self._numbers[identity] = len(self._numbers)
            self._found.append(_content(path, status.st_mode))
            self._names.append([])
        return self._numbers[identity]


def _is_modelled(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _content(path: Path, mode: int) -> tuple[NodeKind, bytes]:
    if stat.S_ISDIR(mode):
        return "dir", b""
    if stat.S_ISLNK(mode):
        return "symlink", os.fsencode(path.readlink())
    return "file", path.read_bytes()


def records(data: bytes) -> Iterator[Record]:
    """Every record, including the notes between operations."""
    at = 0
    while at < len(data):
        head = layout.RECORD.unpack_from(data, at)
        size, _, kind, flags, pid, index = head[:6]
        data_size, name_size, name2_size = head[16:]
        name_at = at + layout.RECORD.size
        name2_at = name_at + name_size
        data_at = name2_at + name2_size
        yield Record(
            kind=_OPERATIONS.get(kind) or _NOTES[kind],
            index=index,
            flags=flags,
            pid=pid,
            file=head[6:8],
            parent=head[8:10],
            parent2=head[10:12],
            replaced=head[12:14],
            offset=head[14],
            length=head[15],
            name=os.fsdecode(data[name_at:name2_at]),
            name2=os.fsdecode(data[name2_at:data_at]),
            data=data[data_at : data_at + data_size],
        )
        at += size


def decode(raw: RawTrace, start: Snapshot) -> Trace:
    """The operations in order: `ops[i].index == i`. Anything that could not be recorded is a blind spot."""
    return _Decoder(start).decode(raw)


class _Decoder:
    def __init__(self, start: Snapshot) -> None:
        self._nodes = list(start.nodes)
        self._numbers = {
            identity: node.file for identity, node in zip(start.identities, start.nodes, strict=True)
        }
        self._next = len(start.nodes)
        self._ops: list[Op] = []
        self._blind_spots: list[BlindSpot] = []
        self._found: list[Found] = []
        self._elsewhere: list[str] = []
        self._closes: list[tuple[int, int]] = []
        self._sizes = {node.file: len(node.data) for node in start.nodes}

    def decode(self, raw: RawTrace) -> Trace:
        for record in records(raw.data):
            match record.kind:
                case "warning":
                    self._warn(record.index, os.fsdecode(record.data), record.name)
                case "before image":
                    self._note_found(record)
                case "elsewhere":
                    self._elsewhere.append(record.name)
                case "sync_file_range":
                    pass
                case "close":
                    self._note_close(record)
                case kind:
                    self._note_operation(self._operation(record, kind))
        self._warn_about_losses(raw)
        return Trace(
            initial=tuple(self._nodes),
            ops=tuple(self._ops),
            blind_spots=tuple(self._blind_spots),
            found=tuple(self._found),
            elsewhere=tuple(self._elsewhere),
            closes=tuple(self._closes),
        )

    def _note_operation(self, op: Op) -> None:
        """Stores through a mapping are recorded as whole pages, also where the file ends within one."""
        size = self._sizes.get(op.file, 0)
        if op.mapped:
            data = op.data[: max(0, size - op.offset)]
            op = msgspec.structs.replace(op, data=data, length=len(data))
        elif op.kind == "truncate":
            self._sizes[op.file] = op.length
        elif op.kind == "write" or (op.kind == "allocate" and not op.keep_size):
            self._sizes[op.file] = max(size, op.offset + op.length)
        self._ops.append(op)

    def _note_close(self, record: Record) -> None:
        number = self._numbers.get(record.file)
        if number is not None:
            self._closes.append((record.index, number))

    def _note_found(self, record: Record) -> None:
        number = self._numbers.get(record.file)
        if number is not None:  # else the operation itself is reported
            whole = bool(record.flags & layout.FLAG_WHOLE)
            self._found.append(
                Found(at=record.index, file=number, offset=record.offset, data=record.data, whole=whole)
            )

    def _warn(self, index: int, what: str, subject: str = "") -> None:
        self._blind_spots.append(BlindSpot(index, what, subject))

    def _warn_about_losses(self, raw: RawTrace) -> None:
        end = len(self._ops)
        if raw.overflow:
            self._warn(end, "the trace is full; later operations are not in it")
        if raw.missed:
            self._warn(end, f"{raw.missed} operations could not be recorded")
        if raw.interrupted:
            self._warn(end, "a process was killed from outside in the middle of an operation")

    def _operation(self, record: Record, kind: Kind) -> Op:
        parent = _NOBODY if record.flags & layout.FLAG_NAMELESS else record.parent
        return Op(
            index=record.index,
            kind=kind,
            file=self._object(record, kind),
            parent=self._known(record, parent),
            name=record.name,
            parent2=self._known(record, record.parent2),
            name2=record.name2,
            replaced=self._known(record, record.replaced),
            offset=record.offset,
            length=0 if record.flags & layout.FLAG_MOVED_IN else record.length,
            data=b"" if record.flags & layout.FLAG_MOVED_IN else record.data,
            keep_size=bool(record.flags & layout.FLAG_KEEP_SIZE),
            durable=bool(record.flags & layout.FLAG_DURABLE),
            mapped=bool(record.flags & layout.FLAG_MAPPED),
            reverted=bool(record.flags & layout.FLAG_REVERTED),
            joined=bool(record.flags & layout.FLAG_JOINED),
            pid=record.pid,
        )

    def _object(self, record: Record, kind: Kind) -> int:
        if kind == "sync":
            return ROOT
        if record.flags & layout.FLAG_MOVED_IN:
            return self._arrival(record)
        if record.flags & layout.FLAG_MOVED_OUT:
            self._warn(record.index, f"moved out of the watched directory: {record.name}")
        if kind in ("create", "mkdir", "symlink"):
            return self._new(record.file)
        return self._known(record, record.file)

    def _new(self, identity: Identity) -> int:
        self._numbers[identity] = self._next
        self._next += 1
        return self._next - 1

    def _arrival(self, record: Record) -> int:
        name = record.name2
        self._warn(
            record.index,
            f"moved into the watched directory: {name}; its content on arrival is taken as durable",
        )
        return self._nameless(record.file, _node_kind(record.length), record.data)

    def _nameless(self, identity: Identity, kind: NodeKind, data: bytes) -> int:
        number = self._new(identity)
        self._nodes.append(Node(file=number, kind=kind, names=(), data=data))
        return number

    def _known(self, record: Record, identity: Identity) -> int:
        if identity == _NOBODY:
            return -1
        if identity not in self._numbers:
            self._warn(
                record.index, f"{record.kind} of a file whose creation was not traced: inode {identity[1]}"
            )
            return self._nameless(identity, "file", b"")
        return self._numbers[identity]


def _node_kind(mode: int) -> NodeKind:
    if stat.S_ISDIR(mode):
        return "dir"
    return "symlink" if stat.S_ISLNK(mode) else "file"
