"""Kill: SIGKILL to the whole process group, synchronous with the point.

Method. At a named point the process kills itself from its audit hook; at a disk operation the interposer
kills it before, after, or halfway through the write. No instruction of the process runs afterwards.
Memory is lost; every completed write survives, synced or not.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from chaoskit.disk import interposer, kill_states
from chaoskit.faults.kind import Arming, FaultKind, StateSource
from chaoskit.inside.protocol import NamedKill
from chaoskit.model import Ack, Fault, Firing, PersistPoint, Placed, When
from chaoskit.recording import CrashState, Recording, points

STRIDE = 16


class Kill(Fault, msgspec.Struct, frozen=True, tag="kill"):
    """`half`: in the middle of a write."""

    point: PersistPoint
    when: When

    def __str__(self) -> str:
        return f"{self.name} {self.point}"

    @property
    def name(self) -> str:
        return f"kill {self.when}" if self.when != "half" else "kill half-way through"

    @property
    def tier(self) -> str:
        return "torn" if self.when == "half" else "process"


def at(firing: Firing) -> list[Fault]:
    return [Kill(firing.point, firing.when)]


def arm(fault: Kill) -> Arming:
    point = fault.point
    if point.op is None:
        return Arming(named=NamedKill(point.name, point.nth, fault.when))
    return Arming(disk=interposer.kill(point.op, fault.when))


def states(recording: Recording, source: StateSource) -> Iterator[CrashState]:
    """Every state that a SIGKILL could have left, each once for the events observed by then."""
    if not source.spread:
        return _states(recording)
    found = list(_states(recording))
    return (state for first in range(STRIDE) for state in found[first::STRIDE])


def _states(recording: Recording) -> Iterator[CrashState]:
    """A sync changes nothing that a kill leaves: unless something was reported in between, the states
    before and after it are the same. Where something was acknowledged, the process may also die between
    the operation and the acknowledgement."""
    where = points(recording.trace)
    seen_at = {event.at for event in recording.events if isinstance(event, Placed)}
    acked_at = {event.at for event in recording.events if isinstance(event, Ack)}
    known = None
    for state in kill_states.kill_states(recording.trace):
        between = state.written is None
        if between and state.position in acked_at and state.position:
            fault = Kill(where[state.position - 1], "after")
            yield CrashState(state.position, state.image, fault, delivered=False)
        if state.image.digest == known and state.position not in seen_at:
            continue
        if between:
            known = state.image.digest
        yield CrashState(
            state.position, state.image, Kill(where[state.position], "before" if between else "half")
        )


KIND = FaultKind(
    name="kill",
    summary="SIGKILL at a persist point: memory is lost, every completed write survives",
    data=Kill,
    at=at,
    arm=arm,
    states=states,
)
