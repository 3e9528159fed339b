"""Kill states: what a SIGKILL leaves after each operation of a trace.

A kill forgets nothing: the state is the trace's prefix, applied. Position i means "the first i
operations are done"; position 0 is before the first. A write may also have been cut short: then the
state lies between two positions, and `written` says how many bytes of the next write are there.

Each step costs the size of its operation, however long the trace is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from chaoskit.disk.apply import apply, initial_image
from chaoskit.disk.image import Image
from chaoskit.disk.ops import Op, Trace


class KillState:
    __slots__ = ("image", "position", "written")

    def __init__(self, position: int, image: Image, written: int | None = None) -> None:
        self.position = position
        self.image = image
        self.written = written  # bytes of operation number `position`; None: between operations

    @property
    def label(self) -> str:
        if self.written is not None:
            return f"killed after {self.written} bytes of operation {self.position}"
        return f"killed after {self.position} operations"


def images(trace: Trace) -> Iterator[Image]:
    """One image per position, 0 to len(trace.ops)."""
    image = initial_image(trace)
    yield image
    for op in trace.ops:
        image = apply(image, op)
        yield image


def kill_states(trace: Trace, *, halves: bool = True, torn: Sequence[int] = ()) -> Iterator[KillState]:
    """Every position, and inside each write: its first half, and after each of `torn` bytes
    (negative: counted from the end)."""
    for position, image in enumerate(images(trace)):
        yield KillState(position, image)
        if position < len(trace.ops):
            yield from inside(trace.ops[position], position, image, halves, torn)


def inside(op: Op, position: int, before: Image, halves: bool, torn: Sequence[int]) -> Iterator[KillState]:
    if op.kind != "write":
        return
    for size in cuts(len(op.data), halves, torn):
        data = before.data(op.file).write(op.offset, op.data[:size])
        yield KillState(position, before.with_data(op.file, data), size)


def cuts(length: int, halves: bool, torn: Iterable[int]) -> list[int]:
    wanted = [size if size >= 0 else length + size for size in torn]
    if halves:
        wanted.append(length // 2)
    return sorted({size for size in wanted if 0 < size < length})


def image_at(trace: Trace, position: int) -> Image:
    image = initial_image(trace)
    for op in trace.ops[:position]:
        image = apply(image, op)
    return image
