"""Outcome: the summary of one run, small enough to send between processes."""

from __future__ import annotations

from typing import Literal

import msgspec

from chaoskit.model import Event, Firing, Judgement, Probe, Run, Schedule, When

Phase = Literal["first life", "recovery", "later"]  # of a life


class Place(msgspec.Struct, frozen=True):
    """Where a fault fired, in terms that apply to any workload: the point's name, the point before it, and
    the phase of the life."""

    phase: Phase
    when: When
    point: str
    after: str

    def __str__(self) -> str:
        return f"{self.phase}: {self.when} {self.point}, after {self.after}"


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
    kept: str | None = None

    @property
    def missed(self) -> int:
        """Planned faults that did not fire."""
        return len(self.schedule.faults) - self.fired


def recovery_of(run: Run) -> int:
    """The number of firings in the last life before it reported that it had recovered.

    Without such a report nobody knows where recovery ends: all of the life may belong to it.
    """
    last = len(run.traces) - 1
    probe = next((p for p in run.history.of(Probe, "recovered") if p.life == last), None)
    trace = run.traces[-1]
    if probe is None:
        return len(trace)
    return sum((f.point.op if f.point.op is not None else n) < probe.at for n, f in enumerate(trace))
