"""Recording: one run without faults, operation by operation, and the states that crashes would have left.

Pure. A position is a number of completed operations; an event with `at` = p was observed after p operations
and before the next one. A crash at position p therefore comes after all events up to p: everything
acknowledged by then must survive it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice

import msgspec

from chaoskit.disk.image import Image
from chaoskit.disk.ops import DATA_KINDS, NAME_KINDS, ROOT, Trace
from chaoskit.model import (
    Ack,
    Born,
    Crashed,
    Effect,
    Ended,
    Event,
    Fail,
    Fault,
    Firing,
    Info,
    Invoke,
    Ok,
    PersistPoint,
    Placed,
    Schedule,
)

END = "the end"  # the name of the point after the last operation


class Recording(msgspec.Struct, frozen=True, dict=True):
    """Of the first life or, if `earlier` names the faults of the lives before it, of a later one.

    The trace of a later life continues those of the lives before it: see `Trace.base`.
    """

    trace: Trace
    events: tuple[Event, ...]  # of the recorded life
    unseen: tuple[str, ...] = ()  # how the directory differs from what the trace tells
    earlier: Schedule = Schedule()
    before: tuple[Event, ...] = ()  # of the lives before it

    @property
    def life(self) -> int:
        return len(self.earlier.faults)

    @cached_property
    def maps_files(self) -> bool:
        return any(op.mapped for op in self.trace.ops)

    def can_crash_at(self, position: int) -> bool:
        """A life that failed is over after its last operation: there is nothing left to crash."""
        failed = any(isinstance(event, Ended) and event.how != "completed" for event in self.events)
        return not failed or position < len(self.trace.ops)

    def until(self, position: int, *, delivered: bool = True) -> list[Event]:
        """What had been seen when so many operations were done.

        After the last operation of a save there are two moments: the caller has its answer, or not yet.
        """
        find = bisect_right if delivered else bisect_left
        seen = find(self._placed, position - self.trace.base, key=lambda event: event.at)
        return [*self.before, Born(self.life), *self._placed[:seen]]

    def times(self, position: int) -> dict[int, int]:
        """The operation that last modified each file and directory, of those before this position."""
        return {
            file: touched[found - 1]
            for file, touched in self._touched.items()
            if (found := bisect_left(touched, position))
        }

    @cached_property
    def _touched(self) -> dict[int, list[int]]:
        return touched_by(self.trace)

    @cached_property
    def _placed(self) -> list[Placed]:
        """In the order in which they were reported, so their positions never decrease."""
        return [event for event in self.events if isinstance(event, Placed)]

    def ack_positions(self) -> list[int]:
        """Positions of acknowledgements and of effects on the World."""
        told = (Ack, Effect)
        base = self.trace.base
        return [
            *(e.at for e in self.before if isinstance(e, told)),
            *(base + e.at for e in self.events if isinstance(e, told)),
        ]


class CrashState:
    """A state that a crash could have left: the content of the disk, and the history up to the crash.

    `delivered`: what was reported after the last operation had reached its reader.
    """

    __slots__ = ("delivered", "fault", "image", "position")

    def __init__(self, position: int, image: Image, fault: Fault, *, delivered: bool = True) -> None:
        self.position = position
        self.image = image
        self.fault = fault
        self.delivered = delivered

    def events(self, recording: Recording) -> list[Event]:
        """The history up to and including the crash."""
        seen = recording.until(self.position, delivered=self.delivered)
        life, at = recording.life, self.position - recording.trace.base
        return [*seen, *unfinished(seen, life), Crashed(life, at, self.fault), Ended(life, "crashed")]


def touched_by(trace: Trace) -> dict[int, list[int]]:
    """For each file and directory, the numbers of the operations that modified it, in order."""
    found: dict[int, list[int]] = {}
    for op in trace.ops:
        objects = {op.file} if op.kind in DATA_KINDS or op.kind in ("create", "mkdir") else set()
        if op.kind in NAME_KINDS:
            objects |= {parent for parent in (op.parent, op.parent2) if parent >= 0}
        for number in objects:
            found.setdefault(number, []).append(op.index)
    return found


def unfinished(events: Iterable[Event], life: int) -> list[Event]:
    """Operations of a life that were invoked and did not return: they may or may not have happened."""
    asked: dict[int, Info] = {}
    for event in events:
        if isinstance(event, Invoke) and event.life == life:
            asked[event.op] = Info(life, event.op)
        elif isinstance(event, Ok | Fail) and event.life == life:
            asked.pop(event.op, None)
    return list(asked.values())


# --- points ------------------------------------------------------------------------------------


def points(trace: Trace) -> list[PersistPoint]:
    """One per operation of the last life, named after the operation and its file, and one for the end."""
    seen: Counter[str] = Counter()
    found = []
    for label, op in islice(zip(labels(trace), trace.ops, strict=True), trace.base, None):
        seen[label] += 1
        found.append(PersistPoint(label, seen[label], op.index - trace.base))
    return [*found, PersistPoint(END, 1, len(found))]


def labels(trace: Trace) -> Iterator[str]:
    homes = {node.file: node.names[0] for node in trace.initial if node.names}
    for op in trace.ops:
        if op.kind in ("create", "mkdir", "symlink"):
            homes[op.file] = (op.parent, op.name)
        yield f"{'store' if op.mapped else op.kind} {_path(homes, op.file)}"
        if op.kind == "rename":
            homes[op.file] = (op.parent2, op.name2)


def _path(homes: dict[int, tuple[int, str]], file: int) -> str:
    if file == ROOT:
        return "."
    parent, name = homes.get(file, (ROOT, "?"))
    return name if parent <= ROOT else f"{_path(homes, parent)}/{name}"


def firings_of(trace: Trace, events: Iterable[Event], life: int) -> tuple[Firing, ...]:
    """Where a kill can strike a life that left this trace.

    Before each operation, and halfway through each write. A kill after an operation leaves the same
    disk as a kill before the next one, so it is tried only where an event was observed in between. Nothing
    can strike a write of the interposer itself.
    """
    seen_at = {e.at for e in events if isinstance(e, Placed) and e.life == life}
    found = []
    for point, op in zip(points(trace), trace.ops, strict=False):
        if op.reverted:
            continue
        if not op.joined:
            found.append(Firing(point, "before"))
        if op.kind == "write" and len(op.data) > 1 and not op.mapped:
            found.append(Firing(point, "half"))
        if op.index + 1 in seen_at or op.index + 1 == len(trace.ops):
            found.append(Firing(point, "after"))
    return tuple(found)
