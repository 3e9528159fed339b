"""Kill states: what a SIGKILL leaves after each operation of a trace.

A kill loses nothing that was written: the state is the applied prefix of the trace. Position i means
"the first i operations are done". A write may also be cut short: then the state lies between two
positions, and `written` is the number of bytes of the next write that are present.

Stores through a mapping that were found together have no known order: there is no state between them.

The cost of each step depends on the operation, not on the length of the trace.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaoskit.disk.apply import apply, initial_image
from chaoskit.disk.image import Image
from chaoskit.disk.ops import Op, Trace


class KillState:
    __slots__ = ("image", "position", "written")

    def __init__(self, position: int, image: Image, written: int | None = None) -> None:
        self.position = position
        self.image = image
        self.written = written  # bytes of operation number `position`; None: between operations


def images(trace: Trace) -> Iterator[Image]:
    """One image per position, 0 to len(trace.ops)."""
    image = initial_image(trace)
    yield image
    for op in trace.ops:
        image = apply(image, op)
        yield image


def last_image(trace: Trace) -> Image:
    """The directory at the end of the trace, as far as the trace knows."""
    image = initial_image(trace)
    for op in trace.ops:
        image = apply(image, op)
    return image


def kill_states(trace: Trace) -> Iterator[KillState]:
    """Every position, and the first half of each write."""
    for position, image in enumerate(images(trace)):
        op = trace.ops[position] if position < len(trace.ops) else None
        if op is None or not op.joined:
            yield KillState(position, image)
        if op is not None and not op.mapped:
            yield from _half_written(op, position, image)


def _half_written(op: Op, position: int, before: Image) -> Iterator[KillState]:
    size = len(op.data) // 2 if op.kind == "write" else 0
    if size:
        data = before.data(op.file).write(op.offset, op.data[:size])
        yield KillState(position, before.with_data(op.file, data), size)
