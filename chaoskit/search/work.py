"""Work: the items of a plan and their results, as plain data that could be sent to another machine.

An executor (`executors`) takes items and returns one Done for each, in the same order. No more than WINDOW
items are in flight at once; `fuzz` relies on it.
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
    """A schedule to execute for real."""

    schedule: Schedule


class JudgeStates(msgspec.Struct, frozen=True, tag="states"):
    """CHUNK crash states of a source, from number `chunk` * CHUNK on, counted within this shard."""

    source: StateSource
    shard: tuple[int, int]
    chunk: int


class JudgeRecovery(msgspec.Struct, frozen=True, tag="recovery"):
    """The crash states of a life that recovers from `earlier`, as many as the source's budget allows."""

    source: StateSource
    earlier: Schedule


class Case(msgspec.Struct, frozen=True, kw_only=True, tag="case"):
    """A fresh workload, crashed several times: see `fuzz`."""

    number: int
    seed: int  # of its workload
    draws: str  # decides its crashes
    crashes: int  # in the last run of its chain
    hits: Mapping[Place, int]  # crashes per place, from the rounds that this case may use


WorkItem = RunSchedule | JudgeStates | JudgeRecovery | Case


class Done(msgspec.Struct, frozen=True):
    """The outcomes of one item. `exhausted`: its source has no more states; `cut`: time ran out within it."""

    outcomes: tuple[Outcome, ...]
    exhausted: bool = False
    cut: bool = False


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker needs to execute any item of a campaign."""

    settings: Settings
    workload: Workload
    recording: Recording | None = None
