"""Kill: SIGKILL to the whole process group, synchronous with the point.

Method. At a named point the process kills itself from its audit hook; at a disk operation the interposer
kills it before, after, or halfway through the write. No instruction of the process runs afterwards.
Memory is lost; every completed write survives, synced or not.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, zip_longest

import msgspec

from chaoskit.disk import interposer, kill_states
from chaoskit.faults.kind import Arming, FaultKind, StateSource
from chaoskit.inside.protocol import NamedKill
from chaoskit.model import Ack, Fault, Firing, PersistPoint, Placed, When
from chaoskit.recording import CrashState, Recording, points

# Files that differ only in a number or an id are of one kind.
NUMBERS = re.compile(r"[0-9a-f]{6,}|[0-9]+")


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
    return [Kill(firing.point, firing.when)] if firing.when != "call" else []


def arm(fault: Kill) -> Arming:
    point = fault.point
    if point.op is None:
        return Arming(named=NamedKill(point.name, point.nth, fault.when))
    assert fault.when != "call", "a kill strikes the target, not its calls"
    return Arming(disk=interposer.kill(point.op, fault.when))


def states(recording: Recording, source: StateSource) -> Iterator[CrashState]:
    """Every state that a SIGKILL could have left, each once for the events observed by then.

    If there is not enough time or budget for all of them, the states that differ most come first.
    """
    found = _states(recording)
    return islice(distinctive_first(recording, found) if source.spread else found, source.budget)


def distinctive_first(recording: Recording, states: Iterable[CrashState]) -> Iterator[CrashState]:
    """One state of each kind, then a second one of each, and so on; alternating with one of each save.

    A kind is: the next operation, its file, its place within the save, and whether it is cut short. So the
    first save, the creation of each file and a compaction every 64th save come before the thirtieth save
    that does the same as the others. But every step of a long schema's creation is of its own kind: the
    other half of the states keeps it from using up all the time.
    """
    acks = sorted({event.at for event in recording.events if isinstance(event, Ack)})
    rounds: dict[int, list[CrashState]] = {}
    saves: dict[int, list[CrashState]] = {}
    met: Counter[tuple[str, str, int, bool]] = Counter()
    for state in states:
        assert isinstance(state.fault, Kill)
        before = bisect_right(acks, state.position - (not state.delivered))
        within = state.position - (acks[before - 1] if before else 0)
        kind = (NUMBERS.sub("#", state.fault.point.name), state.fault.when, within, state.delivered)
        met[kind] += 1
        rounds.setdefault(met[kind], []).append(state)
        saves.setdefault(before, []).append(state)
    by_kind = chain.from_iterable(rounds[number] for number in sorted(rounds))
    return _each_once(_alternating(by_kind, _in_turn(saves.values())))


def _in_turn(groups: Iterable[Sequence[CrashState]]) -> Iterator[CrashState]:
    """One state of each group, then another of each: each group begins at another place."""
    turned = [[*group[n % len(group) :], *group[: n % len(group)]] for n, group in enumerate(groups)]
    return (state for turn in zip_longest(*turned) for state in turn if state is not None)


def _alternating(*streams: Iterator[CrashState]) -> Iterator[CrashState]:
    return (state for turn in zip_longest(*streams) for state in turn if state is not None)


def _each_once(states: Iterable[CrashState]) -> Iterator[CrashState]:
    seen: set[int] = set()
    for state in states:
        if id(state) not in seen:
            seen.add(id(state))
            yield state


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
