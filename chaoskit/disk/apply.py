"""From operations to images: the image before a trace, and the image after one more operation."""

from __future__ import annotations

import os

from chaoskit.disk.filedata import EMPTY, FileData, file_data
from chaoskit.disk.image import Change, DirNode, FileNode, Image, NameTable, Object, SymlinkNode
from chaoskit.disk.intmap import IntMap
from chaoskit.disk.ops import DATA_KINDS, NAME_KINDS, ROOT, Op, Trace


def initial_image(trace: Trace) -> Image:
    image = Image(IntMap(), NameTable()).with_node(ROOT, DirNode(IntMap()))
    for node in trace.initial:
        if node.file != ROOT:
            image = image.with_node(node.file, _initial_node(node.kind, node.data))
    for node in trace.initial:
        for parent, name in node.names:
            image = image.with_entry(parent, name, node.file)
    return image


def _initial_node(kind: str, data: bytes) -> Object:
    if kind == "dir":
        return DirNode(IntMap())
    return SymlinkNode(os.fsdecode(data)) if kind == "symlink" else FileNode(file_data(data))


def apply(image: Image, op: Op) -> Image:
    """The image after one operation; syncs do not change it."""
    if op.kind in DATA_KINDS:
        return image.with_data(op.file, apply_data(image.data(op.file), op))
    if op.kind in NAME_KINDS:
        return apply_name(image, op)
    return image


def apply_data(data: FileData, op: Op) -> FileData:
    if op.kind == "write":
        return data.write(op.offset, op.data)
    if op.kind == "truncate":
        return data.truncate(op.length)
    if op.kind == "punch":
        return data.punch(op.offset, op.length)
    return data if op.keep_size else data.at_least(op.offset + op.length)


def apply_name(image: Image, op: Op) -> Image:
    if image.nodes.get(op.file) is None:
        image = image.with_node(op.file, _newborn(op))
    return image.with_entries(entry_changes(image, op))


def _newborn(op: Op) -> Object:
    if op.kind == "mkdir":
        return DirNode(IntMap())
    return SymlinkNode(os.fsdecode(op.data)) if op.kind == "symlink" else FileNode(EMPTY)


def entry_changes(image: Image, op: Op) -> list[Change]:
    """The changes that a naming operation makes to the entries of watched directories. Directory -1 is
    outside them: files that are moved in or out, or that have no name yet (O_TMPFILE)."""
    return [change for change in _entry_changes(image, op) if change[0] >= 0]


def _entry_changes(image: Image, op: Op) -> list[Change]:
    if op.kind in ("create", "mkdir", "symlink"):
        return [(op.parent, op.name, op.file)]
    if op.kind in ("unlink", "rmdir"):
        return [(op.parent, op.name, None)]
    if op.kind == "link":
        return [(op.parent2, op.name2, op.file)]
    if op.parent2 >= 0 and image.entry(op.parent2, op.name2) == op.file:
        return []  # rename(2) between two names of one file does nothing
    return [(op.parent, op.name, None), (op.parent2, op.name2, op.file)]
