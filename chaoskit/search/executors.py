"""Executors: the interface between the work and the place where it is done. Items in, outcomes out.

An executor returns one Done per item, in the order of the items, so results do not depend on the executor.
`InProcess` works in this process, `LocalProcesses` on all cores of this machine. Every worker enumerates
the same crash states and judges only its own chunks.
"""

from __future__ import annotations

import gc
import json
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from itertools import cycle, islice
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Protocol

import msgspec

from chaoskit import registry
from chaoskit.faults.kind import StateSource, decode_hook, kind
from chaoskit.inside.zygote import die_with_parent
from chaoskit.model import Json
from chaoskit.recording import CrashState, Recording
from chaoskit.run.supervisor import OutOfTime
from chaoskit.run.workspace import MEMORY, Workspace
from chaoskit.search.fuzz import Fuzzer
from chaoskit.search.outcome import Outcome
from chaoskit.search.rig import Rig
from chaoskit.search.work import (
    CHUNK,
    WINDOW,
    Case,
    Done,
    Job,
    JudgeRecovery,
    JudgeStates,
    RunSchedule,
    WorkItem,
)


class Executor(Protocol):
    def do(self, items: Iterable[WorkItem], until: float | None = None) -> Iterator[Done]:
        """One Done per item, in the same order; items are consumed lazily.

        What is not finished at `until` (monotonic clock) is abandoned, and its Done is `cut`.
        """
        ...

    def close(self) -> None: ...


def can_share_work() -> bool:
    """Whether several workers are possible: their queue has semaphores, which are files in shared memory."""
    return os.access(MEMORY, os.W_OK | os.X_OK)


def executor_for(job: Job, rig: Rig, workspace: Workspace) -> Executor:
    jobs = job.settings.jobs
    return LocalProcesses(job, workspace, jobs) if jobs > 1 else InProcess(Worker(job, rig))


class Worker:
    """Executes items of one job on its own rig."""

    def __init__(self, job: Job, rig: Rig) -> None:
        self._job = job
        self._rig = rig
        self._fuzzer = Fuzzer(rig, job.settings)
        self._walks: dict[tuple[StateSource, tuple[int, int]], _Walk] = {}

    def do(self, item: WorkItem, until: float | None = None) -> Done:
        self._rig.stop_at(until)
        try:
            if isinstance(item, RunSchedule):
                return Done((self._rig.judge(item.schedule, self._job.workload),))
            if isinstance(item, Case):
                return Done(self._fuzzer.examine(item))
            if isinstance(item, JudgeRecovery):
                return self._judge_recovery(item)
        except OutOfTime:
            return Done((), cut=True)
        return self._judge_states(item)

    def _judge_recovery(self, item: JudgeRecovery) -> Done:
        recording = self._rig.record_recovery(item.earlier, self._job.workload)
        if recording is None:
            return Done(())
        states = [s for s in _enumerated(recording, item.source) if recording.can_crash_at(s.position)]
        judged = list(self._while_time(recording, states))
        return Done(tuple(judged), cut=len(judged) < len(states))

    def _judge_states(self, item: JudgeStates) -> Done:
        recording = self._job.recording
        assert recording is not None, "states are rebuilt from a recording"
        states = self._walk(item).chunk(item.chunk)
        judged = list(self._while_time(recording, states))
        return Done(tuple(judged), exhausted=len(states) < CHUNK, cut=len(judged) < len(states))

    def _while_time(self, recording: Recording, states: Iterable[CrashState]) -> Iterator[Outcome]:
        with suppress(OutOfTime):
            for state in states:
                yield self._rig.judge_state(recording, state, self._job.workload)

    def _walk(self, item: JudgeStates) -> _Walk:
        key = item.source, item.shard
        if key not in self._walks:
            assert self._job.recording is not None
            part, parts = item.shard
            found = _enumerated(self._job.recording, item.source)
            self._walks[key] = _Walk(islice(found, part, None, parts))
        return self._walks[key]


def _enumerated(recording: Recording, source: StateSource) -> Iterator[CrashState]:
    enumerate_states = kind(source.fault).states
    assert enumerate_states is not None, f"{source.fault} has no states to rebuild"
    return enumerate_states(recording, source)


class _Walk:
    """A cursor over an enumeration of states: takes chunks in ascending order and skips those between."""

    def __init__(self, states: Iterator[CrashState]) -> None:
        self._states = states
        self._next = 0  # the number of the next state

    def chunk(self, number: int) -> list[CrashState]:
        first = number * CHUNK
        for _ in islice(self._states, first - self._next):
            pass
        self._next = first + CHUNK
        return list(islice(self._states, CHUNK))


class InProcess:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def do(self, items: Iterable[WorkItem], until: float | None = None) -> Iterator[Done]:
        return (self._worker.do(item, until) for item in items)

    def close(self) -> None:
        """Nothing to close: the caller owns the rig."""


# --- local processes -----------------------------------------------------------------------------

_mine: list[Worker] = []  # in a process of the pool: its one worker


class LocalProcesses:
    def __init__(self, job: Job, workspace: Workspace, jobs: int) -> None:
        path = workspace.path / "job"
        path.write_bytes(msgspec.msgpack.encode(_with_content(job, json.dumps)))
        context = get_context("spawn")
        cores: SimpleQueue[int] = context.SimpleQueue()
        for core in one_each(jobs):
            cores.put(core)
        arguments = (path, workspace.path, workspace.session, os.getpid(), cores)
        self._window = min(2 * jobs, WINDOW)
        with _no_signals():
            self._pool = ProcessPoolExecutor(jobs, context, _start_worker, arguments)

    def do(self, items: Iterable[WorkItem], until: float | None = None) -> Iterator[Done]:
        pending: deque[Future[Done]] = deque()
        for item in items:
            with _no_signals():
                pending.append(self._pool.submit(_do, item, until))
            if len(pending) > self._window:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def _start_worker(path: Path, directory: Path, session: str, parent: int, cores: SimpleQueue[int]) -> None:
    die_with_parent(parent)
    stay_on(cores.get())
    job = msgspec.msgpack.decode(path.read_bytes(), type=Job, dec_hook=decode_hook)
    job = _with_content(job, json.loads)
    _mine.append(Worker(job, Rig(registry.resolve(job.settings), directory, session)))
    gc.freeze()  # the recording is never freed; keep it out of collections


def _with_content(job: Job, change: Callable[[Json], Json]) -> Job:
    """A workload may have values that only Python's JSON can express, such as halves of surrogate pairs."""
    workload = msgspec.structs.replace(job.workload, content=change(job.workload.content))
    return msgspec.structs.replace(job, workload=workload)


def _do(item: WorkItem, until: float | None) -> Done:
    (worker,) = _mine
    return worker.do(item, until)


def stay_on(core: int) -> None:
    """Pin this process, and all that it starts, to one core.

    A worker and the life that it watches take turns, so a second core does not help them. Without pinning
    they migrate between cores, and two workers are hardly faster than one.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def one_each(jobs: int) -> list[int]:
    """A core for each worker, from those available to this process."""
    known = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return list(islice(cycle(known), jobs))


@contextmanager
def _no_signals() -> Iterator[None]:
    """Use around anything that may start a process of the pool, which inherits the blocked signals.

    Only the parent handles Ctrl-C and SIGTERM; it then ends its workers, even while they are still starting.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
