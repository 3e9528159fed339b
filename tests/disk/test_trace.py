"""Decoding: bytes in, Trace out. The bytes are made here by hand, in the layout of `inside.layout`."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from chaoskit.disk.ops import Node
from chaoskit.disk.trace import (
    KIND_NUMBERS,
    NOTE_NUMBERS,
    Identity,
    RawTrace,
    Snapshot,
    decode,
    records,
    snapshot,
)
from chaoskit.inside.layout import (
    FLAG_DURABLE,
    FLAG_KEEP_SIZE,
    FLAG_MOVED_IN,
    FLAG_MOVED_OUT,
    FLAG_NAMELESS,
    FLAG_TORN,
    RECORD,
)

NUMBERS: dict[str, int] = {**KIND_NUMBERS, **NOTE_NUMBERS}
NOBODY = (0, 0)
HERE = (7, 1)  # device and inode of the watched directory
EMPTY = Snapshot(nodes=(Node(file=0, kind="dir", names=()),), identities=(HERE,))


def record(
    kind: str,
    index: int,
    file: Identity = NOBODY,
    *,
    flags: int = 0,
    parent: Identity = NOBODY,
    parent2: Identity = NOBODY,
    replaced: Identity = NOBODY,
    offset: int = 0,
    length: int | None = None,
    name: bytes = b"",
    name2: bytes = b"",
    data: bytes = b"",
) -> bytes:
    size = (RECORD.size + len(name) + len(name2) + len(data) + 7) // 8 * 8
    head = RECORD.pack(
        size,
        0,
        NUMBERS[kind],
        flags,
        99,
        index,
        *file,
        *parent,
        *parent2,
        *replaced,
        offset,
        len(data) if length is None else length,
        len(data),
        len(name),
        len(name2),
    )
    return (head + name + name2 + data).ljust(size, b"\0")


def create(index: int, inode: int, name: bytes) -> bytes:
    return record("create", index, (7, inode), parent=HERE, name=name)


def raw(*parts: bytes) -> RawTrace:
    return RawTrace(data=b"".join(parts))


def test_an_operation_keeps_everything_that_was_recorded() -> None:
    parts = [
        create(0, 5, b"name"),
        record("write", 1, (7, 5), flags=FLAG_DURABLE, offset=10, data=b"bytes"),
        record("allocate", 2, (7, 5), flags=FLAG_KEEP_SIZE, offset=3, length=4),
        record("fsync", 3, HERE),
    ]
    trace = decode(raw(*parts), EMPTY)
    made, written, allocated, synced = trace.ops
    assert (made.kind, made.file, made.parent, made.name, made.pid) == ("create", 1, 0, "name", 99)
    assert (written.file, written.offset, written.data, written.durable) == (1, 10, b"bytes", True)
    assert (allocated.offset, allocated.length, allocated.keep_size) == (3, 4, True)
    assert (synced.kind, synced.file) == ("fsync", 0)
    assert [op.index for op in trace.ops] == [0, 1, 2, 3]
    assert trace.blind_spots == ()


def test_an_inode_that_is_created_again_is_another_object() -> None:
    parts = [
        create(0, 5, b"a"),
        record("unlink", 1, (7, 5), parent=HERE, name=b"a"),
        record("write", 2, (7, 5), data=b"still open"),
        create(3, 5, b"b"),
        record("write", 4, (7, 5), data=b"the new one"),
    ]
    assert [op.file for op in decode(raw(*parts), EMPTY).ops] == [1, 1, 1, 2, 2]


def test_the_same_inode_number_on_another_device_is_another_object() -> None:
    other = record("create", 1, (8, 5), parent=HERE, name=b"b")
    assert [op.file for op in decode(raw(create(0, 5, b"a"), other), EMPTY).ops] == [1, 2]


def test_a_rename_says_what_it_replaced() -> None:
    rename = record("rename", 2, (7, 5), parent=HERE, name=b"a", parent2=HERE, name2=b"b", replaced=(7, 6))
    op = decode(raw(create(0, 5, b"a"), create(1, 6, b"b"), rename), EMPTY).ops[2]
    assert (op.file, op.replaced, op.name, op.name2) == (1, 2, "a", "b")
    plain = record("rename", 1, (7, 5), parent=HERE, name=b"a", parent2=HERE, name2=b"b")
    assert decode(raw(create(0, 5, b"a"), plain), EMPTY).ops[1].replaced == -1


def test_a_file_moved_in_from_outside_becomes_a_node_without_names() -> None:
    arrival = record(
        "rename",
        0,
        (7, 9),
        flags=FLAG_MOVED_IN,
        parent2=HERE,
        name2=b"new",
        data=b"content",
        length=stat.S_IFREG | 0o644,
    )
    trace = decode(raw(arrival), EMPTY)
    assert trace.initial[1] == Node(file=1, kind="file", names=(), data=b"content")
    assert (trace.ops[0].file, trace.ops[0].parent, trace.ops[0].data) == (1, -1, b"")
    assert len(trace.blind_spots) == 1


def test_a_file_moved_out_is_an_unlink_and_a_warning() -> None:
    leaving = record("unlink", 1, (7, 5), flags=FLAG_MOVED_OUT, parent=HERE, name=b"a")
    trace = decode(raw(create(0, 5, b"a"), leaving), EMPTY)
    assert trace.ops[1].kind == "unlink"
    assert "moved out" in str(trace.blind_spots[0])


def test_a_file_made_without_a_name_has_no_parent() -> None:
    made = record("create", 0, (7, 5), flags=FLAG_NAMELESS, parent=HERE)
    assert decode(raw(made), EMPTY).ops[0].parent == -1


def test_an_unknown_file_is_a_warning_and_not_an_error() -> None:
    trace = decode(raw(record("write", 0, (7, 77), data=b"x")), EMPTY)
    assert trace.ops[0].file == 1
    assert trace.initial[1].names == ()
    assert "inode 77" in str(trace.blind_spots[0])


def test_notes_are_not_operations() -> None:
    parts = [
        create(0, 5, b"a"),
        record("warning", 1, data=b"something was not seen"),
        record("sync_file_range", 1, (7, 5)),
        record("close", 1, (7, 5)),
        record("close", 1, (7, 99)),
        record("before image", 1, (7, 5), data=b"old"),
        record("write", 1, (7, 5), flags=FLAG_TORN, data=b"ha"),
    ]
    trace = decode(raw(*parts), EMPTY)
    assert [op.kind for op in trace.ops] == ["create", "write"]
    assert trace.closes == ((1, 1),)
    assert list(map(str, trace.blind_spots)) == ["before operation 1: something was not seen"]
    assert [found.flags for found in records(b"".join(parts))][-1] == FLAG_TORN


@pytest.mark.parametrize(
    ("flaw", "words"),
    [
        ({"overflow": True}, "full"),
        ({"missed": 2}, "2 operations"),
        ({"interrupted": True}, "killed from outside"),
    ],
)
def test_lost_records_are_reported(flaw: dict[str, int], words: str) -> None:
    assert words in str(decode(RawTrace(data=b"", **flaw), EMPTY).blind_spots[0])  # type: ignore[arg-type]
    assert decode(RawTrace(data=b""), EMPTY).blind_spots == ()


def test_names_that_are_not_utf8_survive() -> None:
    name = b"\xff\xfe name"
    assert os.fsencode(decode(raw(create(0, 5, name)), EMPTY).ops[0].name) == name


def test_the_snapshot_knows_hard_links_symbolic_links_and_directories(tmp_path: Path) -> None:
    (tmp_path / "dir" / "inner").mkdir(parents=True)
    (tmp_path / "dir" / "file").write_bytes(b"content")
    (tmp_path / "again").hardlink_to(tmp_path / "dir" / "file")
    (tmp_path / "soft").symlink_to("dir/file")
    os.mkfifo(tmp_path / "fifo")
    found = snapshot(tmp_path)
    assert found.nodes == (
        Node(file=0, kind="dir", names=()),
        Node(file=1, kind="file", names=((0, "again"), (2, "file")), data=b"content"),
        Node(file=2, kind="dir", names=((0, "dir"),)),
        Node(file=3, kind="dir", names=((2, "inner"),)),
        Node(file=4, kind="symlink", names=((0, "soft"),), data=b"dir/file"),
    )
    status = (tmp_path / "again").stat()
    assert found.identities[1] == (status.st_dev, status.st_ino)
