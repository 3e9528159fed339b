"""The pool: maps schedules and crash states to outcomes, in order, on several processes or in this one.

Results do not depend on the number of jobs: outcomes come in the order of what was asked for. A worker
that examines crash states walks along the same enumeration as all others and takes its own chunks.
"""

from __future__ import annotations

import gc
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from itertools import cycle, islice
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from chaoskit.inside.zygote import die_with_parent
from chaoskit.model import Schedule, Workload
from chaoskit.run.recording import CrashState, Recording, killed_states, powerless_states
from chaoskit.run.workspace import Workspace
from chaoskit.search.fuzz import ROUND, Case, Examined, Fuzzer
from chaoskit.search.rig import Bench, Outcome
from chaoskit.settings import Settings

CHUNK = 16  # states per task
STRIDE = 16
Crash = Literal["kill", "ext4", "posix"]  # what left the states of a recording: a profile is a power loss
T = TypeVar("T")
R = TypeVar("R")


class Worker:
    """What one process of the pool works with."""

    def __init__(self, settings: Settings, bench: Bench, workload: Workload, recording: Path | None) -> None:
        self._settings = settings
        self._bench = bench
        self._workload = workload
        self._fuzzer = Fuzzer(bench, settings.faults[0], settings.bias or "rare")
        self._recording = (
            msgspec.msgpack.decode(recording.read_bytes(), type=Recording) if recording else None
        )
        self._walks: dict[Crash, _Walk] = {}

    def judge(self, schedule: Schedule) -> Outcome:
        return self._bench.judge(schedule, self._workload)

    def examine(self, case: Case) -> Examined:
        return self._fuzzer.examine(case)

    def judge_chunk(self, chunk: tuple[Crash, int]) -> list[Outcome]:
        crash, number = chunk
        assert self._recording is not None
        if crash not in self._walks:
            self._walks[crash] = _Walk(self._enumerate(crash, self._recording))
        states = self._walks[crash].chunk(number)
        return [self._bench.judge_state(self._recording, s, self._workload) for s in states]

    def _enumerate(self, crash: Crash, recording: Recording) -> Iterator[CrashState]:
        settings = self._settings
        found = (
            self._kills(recording)
            if crash == "kill"
            else powerless_states(recording, crash, settings.power_states, settings.seed)
        )
        part, parts = settings.shard
        return islice(found, part, None, parts)

    def _kills(self, recording: Recording) -> Iterator[CrashState]:
        """In their order; where time may run out, so that every part of the run gets its share."""
        if self._settings.seconds is None:
            return killed_states(recording)
        states = list(killed_states(recording))
        return (state for first in range(STRIDE) for state in states[first::STRIDE])


class _Walk:
    """Along an enumeration of states; chunks come in rising order, those of others are skipped."""

    def __init__(self, states: Iterator[CrashState]) -> None:
        self._states = states
        self._next = 0  # the number of the state that the enumeration will give next

    def chunk(self, number: int) -> list[CrashState]:
        first = number * CHUNK
        for _ in islice(self._states, first - self._next):
            pass
        self._next = first + CHUNK
        return list(islice(self._states, CHUNK))


_worker: Worker | None = None  # of this process of the pool


def _start_worker(
    settings: Settings,
    directory: Path,
    session: str,
    workload: Workload,
    recording: Path | None,
    parent: int,
    cores: SimpleQueue[int],
) -> None:
    global _worker  # noqa: PLW0603 - a pool's worker has no other place for its state
    die_with_parent(parent)
    stay_on(cores.get())
    _worker = Worker(settings, Bench(settings, directory, session), workload, recording)
    gc.freeze()  # the recording stays for ever; collections need not walk it


def stay_on(core: int) -> None:
    """Here and in all that is started from here.

    A worker and the life that it watches take turns, so two cores are of no use to them; woken on another
    one each time, two workers are hardly faster than one.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def one_each(jobs: int) -> list[int]:
    """A core for each worker, of those that this process may use."""
    known = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return list(islice(cycle(known), jobs))


def _judge(schedule: Schedule) -> Outcome:
    assert _worker is not None
    return _worker.judge(schedule)


def _examine(case: Case) -> Examined:
    assert _worker is not None
    return _worker.examine(case)


def _judge_chunk(chunk: tuple[Crash, int]) -> list[Outcome]:
    assert _worker is not None
    return _worker.judge_chunk(chunk)


class Pool:
    def __init__(
        self,
        settings: Settings,
        workspace: Workspace,
        bench: Bench,
        workload: Workload,
        recording: Recording | None = None,
    ) -> None:
        path = workspace.path / "recording" if recording else None
        if path:
            path.write_bytes(msgspec.msgpack.encode(recording))
        self._jobs = settings.jobs
        self._executor: ProcessPoolExecutor | None = None
        self._inline = Worker(settings, bench, workload, path)
        if settings.jobs > 1:
            context = get_context("spawn")
            cores: SimpleQueue[int] = context.SimpleQueue()
            for core in one_each(settings.jobs):
                cores.put(core)
            arguments = (settings, workspace.path, workspace.session, workload, path, os.getpid(), cores)
            with _no_ctrl_c():
                self._executor = ProcessPoolExecutor(settings.jobs, context, _start_worker, arguments)

    def outcomes(self, schedules: Iterable[Schedule]) -> Iterator[Outcome]:
        return self._map(_judge, self._inline.judge, schedules)

    def cases(self, cases: Iterable[Case]) -> Iterator[Examined]:
        return self._map(_examine, self._inline.examine, cases)

    def states(self, crash: Crash, numbers: Iterable[int]) -> Iterator[Outcome]:
        """The outcomes of chunks 0, 1, 2... of the states that a crash left, until there are no more."""
        chunks = ((crash, number) for number in numbers)
        for chunk in self._map(_judge_chunk, self._inline.judge_chunk, chunks):
            yield from chunk
            if len(chunk) < CHUNK:
                return

    def _map(self, in_worker: Callable[[T], R], here: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        if self._executor is None:
            yield from map(here, tasks)
            return
        pending: deque[Future[R]] = deque()
        for task in tasks:
            with _no_ctrl_c():
                pending.append(self._executor.submit(in_worker, task))
            if len(pending) > min(2 * self._jobs, ROUND - 1):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def close(self) -> None:
        if self._executor:
            self._executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _no_ctrl_c() -> Iterator[None]:
    """Around whatever may start a process of the pool, which inherits the blocked signal.

    Ctrl-C is for the parent, which then ends its workers, also while they are still starting.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
