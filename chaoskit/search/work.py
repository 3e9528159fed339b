"""Work: what a plan asks for, item by item, and what comes back. Plain data that can leave this machine.

An executor (`execution`) takes items and gives back Done, in the order of the items. No more than WINDOW
items are under way at once: a fuzz relies on it, see `fuzz`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from chaoskit.faults.kind import StateSource
from chaoskit.model import Schedule, Workload
from chaoskit.recording import Recording
from chaoskit.search.outcome import Outcome, Place
from chaoskit.settings import Settings

CHUNK = 16  # states per item
WINDOW = 31


class RunSchedule(msgspec.Struct, frozen=True, tag="run"):
    """A schedule, carried out for real."""

    schedule: Schedule


class JudgeStates(msgspec.Struct, frozen=True, tag="states"):
    """CHUNK crash states of a source, from number `chunk` * CHUNK on, of those that are this shard's."""

    source: StateSource
    shard: tuple[int, int]
    chunk: int


class Case(msgspec.Struct, frozen=True, kw_only=True, tag="case"):
    """A workload of its own, crashed several times: see `fuzz`."""

    number: int
    seed: int  # of its workload
    crashes: int  # in the last run of its chain
    hits: Mapping[Place, int]  # how often each place was crashed, as far as this case may know


WorkItem = RunSchedule | JudgeStates | Case


class Done(msgspec.Struct, frozen=True):
    """The outcomes of one item; `exhausted`: its source has no more states."""

    outcomes: tuple[Outcome, ...]
    exhausted: bool = False


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker must know to do any item of a campaign."""

    settings: Settings
    workload: Workload
    recording: Recording | None = None
