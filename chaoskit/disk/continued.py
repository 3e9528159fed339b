"""continued: the traces of two lives as one. Pure.

A process that is killed loses nothing that it wrote, but what it did not sync is still not durable when the
next process starts. A power loss in that next life can lose the writes of both. The two traces therefore
become one, in which an object keeps the number that it had in the first.
"""

from __future__ import annotations

import msgspec

from chaoskit.disk.kill_states import last_image
from chaoskit.disk.ops import ROOT, Node, Op, Trace


def continued(first: Trace, second: Trace) -> Trace:
    """`second` was recorded in the directory that `first` left; its operations come after `base`."""
    numbers, strangers = _matched(first, second)
    base = len(first.ops)
    return Trace(
        initial=(*first.initial, *strangers),
        ops=(*first.ops, *(_renumbered(op, base, numbers) for op in second.ops)),
        blind_spots=(*first.blind_spots, *second.blind_spots),
        base=base,
        closes=(*first.closes, *_closed_by_death(first), *_moved(second, base, numbers)),
    )


def _closed_by_death(first: Trace) -> list[tuple[int, int]]:
    return [(len(first.ops), number) for number in sorted(_every_number(first))]


def _moved(second: Trace, base: int, numbers: dict[int, int]) -> list[tuple[int, int]]:
    return [(base + at, numbers[file]) for at, file in second.closes if file in numbers]


def _matched(first: Trace, second: Trace) -> tuple[dict[int, int], list[Node]]:
    """The number in `first` of each object of `second`, and the objects that only `second` knows."""
    there = {path: number for path, number, _ in last_image(first).walk()}
    paths = _paths(second.initial)
    unused = 1 + max(_every_number(first))
    numbers, strangers = {ROOT: ROOT, -1: -1}, []
    for node in second.initial:
        known = there.get(paths.get(node.file, ""))
        if node.file != ROOT and known is None:
            numbers[node.file] = unused
            names = tuple((numbers.get(parent, parent), name) for parent, name in node.names)
            strangers.append(msgspec.structs.replace(node, file=unused, names=names))
            unused += 1
        elif known is not None:
            numbers[node.file] = known
    for op in second.ops:
        if op.file not in numbers:
            numbers[op.file] = unused
            unused += 1
    return numbers, strangers


def _paths(nodes: tuple[Node, ...]) -> dict[int, str]:
    """A path of each object that has a name; parents come before what is in them."""
    found = {ROOT: ""}
    for node in nodes:
        if node.names:
            parent, name = node.names[0]
            above = found.get(parent, "")
            found[node.file] = f"{above}/{name}" if above else name
    return found


def _every_number(trace: Trace) -> set[int]:
    return {ROOT, *(node.file for node in trace.initial), *(op.file for op in trace.ops)}


def _renumbered(op: Op, base: int, numbers: dict[int, int]) -> Op:
    return msgspec.structs.replace(
        op,
        index=base + op.index,
        file=numbers[op.file],
        parent=numbers.get(op.parent, -1),
        parent2=numbers.get(op.parent2, -1),
        replaced=numbers.get(op.replaced, -1),
    )
