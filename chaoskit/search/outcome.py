"""Outcome: the summary of one run, small enough to send between processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from chaoskit.model import Event, Firing, Judgement, Probe, Run, Schedule, When

Phase = Literal["first life", "recovery", "later"]  # of a life


class Place(msgspec.Struct, frozen=True):
    """Where a fault fired, in terms that apply to any workload: the kind of fault, the phase of the life, the
    point's name, the point before it, and the operation that a client was waiting for."""

    phase: Phase
    when: When
    point: str
    after: str
    operation: str = ""  # the latest one that had not returned
    fault: str = "kill"

    def __str__(self) -> str:
        during = f", during {self.operation}" if self.operation else ""
        where = self.point if self.when == "call" else f"{self.when} {self.point}"
        return f"{self.phase}: {self.fault} {where}, after {self.after}{during}"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    schedule: Schedule
    seed: int  # of the workload
    judgement: Judgement
    fired: int
    last_trace: tuple[Firing, ...]
    recovery: int  # how many of its firings belong to recovery
    origin: str = ""  # identifies the content from which the last life recovered
    rebuilt: bool = False  # no real crash: the state was rebuilt from a recording
    confirmed: bool = False  # ... and the real crash had the same verdict
    events: tuple[Event, ...] = ()  # only if the run did not hold
    place: Place | None = None  # in a fuzz: where the last fault fired
    reached: tuple[str, ...] = ()  # of the facts that a campaign must reach
    kept: str | None = None

    @property
    def missed(self) -> int:
        """Planned faults that did not fire."""
        return len(self.schedule.faults) - self.fired


def recovery_of(run: Run, life: int | None = None) -> int:
    """The number of firings in a life, by default the last, before it reported that it had recovered.

    Without such a report nobody knows where recovery ends: all of the life may belong to it.
    """
    life = len(run.traces) - 1 if life is None else life
    probe = next((p for p in run.history.of(Probe, "recovered") if p.life == life), None)
    trace = run.traces[life]
    if probe is None:
        return len(trace)
    return sum(at < probe.at for at in positions(trace))


def positions(trace: Iterable[Firing]) -> Iterator[int]:
    """How many named points, or disk operations, come before each firing of a life."""
    named, op = 0, -1
    for firing in trace:
        if firing.point.op is not None:
            op = firing.point.op
            yield op
        elif firing.when == "call":
            yield max(named, op + 1)
        else:
            yield named
            named += 1
