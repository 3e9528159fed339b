"""Recording: one run without faults, operation by operation; and what crashes would have left of it.

Pure. A position is a number of operations done; an event with `at` = p was seen after p operations
and before the next one. A crash at position p therefore comes after all events up to p: whatever had
been acknowledged by then must survive it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property

import msgspec

from chaoskit.disk import kill_states as replay, power
from chaoskit.disk.image import DirNode, FileNode, Image
from chaoskit.disk.ops import ROOT, Profile, Trace
from chaoskit.disk.power_states import power_states
from chaoskit.disk.recipe import Candidate, Recipe
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
    Kill,
    Ok,
    PersistPoint,
    Placed,
    PowerLoss,
)

END = "the end"  # the name of the point after the last operation


class Recording(msgspec.Struct, frozen=True, dict=True):
    trace: Trace
    events: tuple[Event, ...]

    def until(self, position: int) -> list[Event]:
        """What had been seen when so many operations were done."""
        seen = bisect_right(self._placed, position, key=lambda event: event.at)
        return [Born(0), *self._placed[:seen]]

    @cached_property
    def _placed(self) -> list[Placed]:
        """In the order in which they were told, so their positions never fall."""
        return [event for event in self.events if isinstance(event, Placed)]

    def claims(self) -> list[int]:
        """Positions at which something was acknowledged or done to the World."""
        return [e.at for e in self.events if isinstance(e, Ack | Effect)]


class CrashState:
    """A state that a crash could have left: what is on the disk, and what had been seen."""

    __slots__ = ("fault", "image", "position")

    def __init__(self, position: int, image: Image, fault: Fault) -> None:
        self.position = position
        self.image = image
        self.fault = fault

    def events(self, recording: Recording) -> list[Event]:
        """The history up to and including the crash."""
        seen = recording.until(self.position)
        return [*seen, *unfinished(seen, 0), Crashed(0, self.position, self.fault), Ended(0, "crashed")]


def unfinished(events: Iterable[Event], life: int) -> list[Event]:
    """Operations of a life that were asked for and not answered: they may or may not have happened."""
    asked: dict[int, Info] = {}
    for event in events:
        if isinstance(event, Invoke) and event.life == life:
            asked[event.op] = Info(life, event.op)
        elif isinstance(event, Ok | Fail) and event.life == life:
            asked.pop(event.op, None)
    return list(asked.values())


# --- points ------------------------------------------------------------------------------------


def points(trace: Trace) -> list[PersistPoint]:
    """One per operation, named after what it did to which file; and one for the end."""
    seen: Counter[str] = Counter()
    found = []
    for label, op in zip(labels(trace), trace.ops, strict=True):
        seen[label] += 1
        found.append(PersistPoint(label, seen[label], op.index))
    return [*found, PersistPoint(END, 1, len(found))]


def labels(trace: Trace) -> Iterator[str]:
    homes = {node.file: node.names[0] for node in trace.initial if node.names}
    for op in trace.ops:
        if op.kind in ("create", "mkdir", "symlink"):
            homes[op.file] = (op.parent, op.name)
        yield f"{op.kind} {_path(homes, op.file)}"
        if op.kind == "rename":
            homes[op.file] = (op.parent2, op.name2)


def _path(homes: dict[int, tuple[int, str]], file: int) -> str:
    if file == ROOT:
        return "."
    parent, name = homes.get(file, (ROOT, "?"))
    return name if parent <= ROOT else f"{_path(homes, parent)}/{name}"


def firings_of(trace: Trace, events: Iterable[Event], life: int) -> tuple[Firing, ...]:
    """Where a kill can strike a life that left this trace.

    Before each operation, and half-way through each write. A kill after an operation leaves the same
    disk as one before the next, so it is worth a run only where something was seen in between.
    """
    seen_at = {e.at for e in events if isinstance(e, Placed) and e.life == life}
    found = []
    for point, op in zip(points(trace), trace.ops, strict=False):
        found.append(Firing(point, "before"))
        if op.kind == "write" and len(op.data) > 1:
            found.append(Firing(point, "half"))
        if op.index + 1 in seen_at or op.index + 1 == len(trace.ops):
            found.append(Firing(point, "after"))
    return tuple(found)


# --- states ------------------------------------------------------------------------------------


def killed_states(recording: Recording) -> Iterator[CrashState]:
    """Every state that a SIGKILL could have left, and what had been seen by then: each of them once.

    A sync changes nothing that a kill would leave: without a word in between, before and after are one.
    """
    where = points(recording.trace)
    seen_at = {event.at for event in recording.events if isinstance(event, Placed)}
    known = None
    for state in replay.kill_states(recording.trace):
        if state.image.digest == known and state.position not in seen_at:
            continue
        if state.written is None:
            known = state.image.digest
        fault = Kill(where[state.position], "before" if state.written is None else "half")
        yield CrashState(state.position, state.image, fault)


def powerless_states(recording: Recording, profile: Profile, budget: int, seed: int) -> Iterator[CrashState]:
    """States that a loss of power could have left, the most telling first, at most `budget`."""
    where = points(recording.trace)
    found = power_states(
        recording.trace, recording.claims(), profile, budget, seed=seed, logical_key=_outline
    )
    for state in found:
        yield state_of(state.candidate, where)


def state_of(candidate: Candidate, where: list[PersistPoint]) -> CrashState:
    recipe = candidate.recipe
    fault = PowerLoss(
        where[candidate.at],
        candidate.profile,
        recipe.way,
        recipe.positions,
        recipe.cut,
        recipe.tail,
        recipe.words(),
    )
    return CrashState(candidate.at, candidate.image, fault)


def _outline(image: Image) -> tuple[tuple[str, int], ...]:
    """States with the same names and sizes probably read the same: they are tried last."""
    return tuple(
        (path, node.data.size if isinstance(node, FileNode) else -1)
        for path, _, node in image.walk()
        if not isinstance(node, DirNode)
    )


def candidate_of(trace: Trace, fault: PowerLoss) -> Candidate:
    """The state that a power loss leaves, built again from its recipe."""
    recipe = msgspec.convert(
        {"way": fault.way, "positions": fault.positions, "cut": fault.cut, "tail": fault.tail}, Recipe
    )
    assert fault.point.op is not None
    return power.rebuild(trace, min(fault.point.op, len(trace.ops)), fault.profile, recipe)
