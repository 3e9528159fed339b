"""Operations as text, with their paths at that time, and as a timeline around a crash."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from chaoskit.disk.apply import apply, initial_image
from chaoskit.disk.image import Image
from chaoskit.disk.ops import DATA_KINDS, NAME_KINDS, ROOT, Op, Trace

AROUND = 2  # operations shown before and after a lost one


def in_words(op: Op, before: Image, after: Image) -> str:
    path = path_of(op, before, after)
    if op.kind == "write":
        return f"write {path} {op.offset}..{op.offset + len(op.data)}"
    if op.kind == "truncate":
        return f"truncate {path} to {op.length}"
    if op.kind in ("allocate", "punch"):
        return f"{op.kind} {path} {op.offset}..{op.offset + op.length}"
    if op.kind in ("rename", "link"):
        return f"{op.kind} {_joined(before, op.parent, op.name)} -> {path}"
    return op.kind if op.kind == "sync" else f"{op.kind} {path}"


def path_of(op: Op, before: Image, after: Image) -> str:
    """The path of the operation's object; for a naming operation, the new path."""
    if op.kind in ("rename", "link"):
        return _joined(before, op.parent2, op.name2)
    if op.kind in NAME_KINDS:
        return _joined(before, op.parent, op.name)
    if op.file == ROOT:
        return "."
    return after.path(op.file) or before.path(op.file) or f"(unnamed file {op.file})"


def _joined(image: Image, directory: int, name: str) -> str:
    home = image.path(directory)
    return f"{home}/{name}" if home else name


class Words:
    """The text of selected operations, collected in one pass over the trace."""

    def __init__(self, trace: Trace, positions: Iterable[int]) -> None:
        self.words: dict[int, str] = {}
        self.paths: dict[int, str] = {}
        self.homes: dict[int, str] = {}  # of naming operations: the directory that they changed
        self.origins: dict[int, str] = {}  # of renames to another directory: the one before
        self.appends: set[int] = set()  # writes at the end of a file that has content
        wanted = set(positions)
        image = initial_image(trace)
        for position, op in enumerate(trace.ops[: max(wanted, default=-1) + 1]):
            after = apply(image, op)
            if position in wanted:
                self._note(position, op, image, after)
            image = after

    def _note(self, position: int, op: Op, before: Image, after: Image) -> None:
        self.words[position] = in_words(op, before, after)
        self.paths[position] = path_of(op, before, after)
        if op.kind == "write" and 0 < before.data(op.file).size <= op.offset:
            self.appends.add(position)
        if op.kind in NAME_KINDS:
            home = op.parent2 if op.kind in ("rename", "link") else op.parent
            self.homes[position] = before.path(home) or "."
        if op.kind == "rename" and op.parent not in (-1, op.parent2):
            self.origins[position] = before.path(op.parent) or "."


def timeline(trace: Trace, at: int, lost: Collection[int], ack: int | None) -> str:
    """The lost operations with their neighbours, the acknowledgement and the power loss."""
    shown = _shown(at, lost, ack)
    words = Words(trace, shown).words
    lines: list[str] = []
    previous = -1
    for position in shown:
        if ack is not None and previous < ack <= position:
            lines.append("        -- acknowledged --")
        if position > previous + 1:
            lines.append("        ...")
        mark = ">" if position in lost else " "
        fate = _fate(trace.ops[position], position in lost)
        lines.append(f"  {mark} {position:>5}  {words[position]}{fate}")
        previous = position
    if ack is not None and previous < ack <= at:
        lines.append("        -- acknowledged --")
    return "\n".join([*lines, "        ** power lost **"])


def _shown(at: int, lost: Collection[int], ack: int | None) -> list[int]:
    centres = [*sorted(lost)[:2], *sorted(lost)[-2:], at - 1]
    if ack is not None:
        centres.append(ack - 1)
    near = {c + d for c in centres for d in range(-AROUND, AROUND + 1)}
    return sorted(position for position in near if 0 <= position < at)


def _fate(op: Op, lost: bool) -> str:
    if lost:
        return "   lost" if op.kind in DATA_KINDS else "   lost (a name)"
    return ""
