"""Makes an asyncio program repeatable: SQLite in the loop's own thread, and a virtual clock.

aiosqlite passes each call to a thread through a queue. The time until it returns depends on the machine,
and each call needs two thread switches, which are most of its cost. Here the call runs immediately. Neither
the agent's code nor what reaches the disk changes. The loop no longer runs while SQLite works, but a crash
test does not need that.

The virtual loop never waits: when nothing is ready, its clock jumps to the next timer. A tool that hangs
until its deadline, or a retry after a minute, takes no real time.

A deterministic run explores only one interleaving, while a real program encounters many. Two things can
therefore be drawn from a seed: the order of tasks that are ready at the same time, and the latency of a
statement to the thread and back, during which other tasks overtake it.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import sqlite3
from collections.abc import Callable, Coroutine, MutableSequence, Sequence
from typing import Any

import aiosqlite

BUSY_TIMEOUT, PAUSE = 5.0, 0.01  # seconds: sqlite3's default, and between two attempts
OFTEN, LONGEST = (0.3, 0.02)  # how often a statement delays its caller, and by how many seconds at most
# The C callbacks with which asyncio schedules a task's next step; a test fails if a release renames them.
STEP, WAKEUPS = "TaskStepMethWrapper", ("task_wakeup", "TaskWakeupMethWrapper")


class _AtOnce:
    """Replaces the queue. The future is done before anything awaits it."""

    @staticmethod
    def put_nowait(item: tuple[asyncio.Future[Any] | None, Callable[[], Any]]) -> None:
        future, function = item
        try:
            result = function()
        except BaseException as error:
            if future is None:
                raise
            future.set_exception(error)
        else:
            if future is not None:
                future.set_result(result)


class _NoThread:
    @staticmethod
    def start() -> None:
        """There is nothing to start."""


_NEEDED = (
    (None, "_tx"),
    (None, "_thread"),
    (aiosqlite.Connection, "_conn"),
    (aiosqlite.Connection, "execute_fetchall"),
)


def connect(database: Any, **options: Any) -> aiosqlite.Connection:
    connection: Any = aiosqlite.connect(database, **options)
    # Private names; if a release renames them, the check below fails at once.
    for place, name in _NEEDED:
        assert hasattr(place or connection, name), f"this aiosqlite has no {name}: update {__name__}"
    connection._tx = _AtOnce()
    connection._thread = _NoThread()

    async def execute_fetchall(statement: str, args: Sequence[Any] = ()) -> list[Any]:
        """Nearly every statement goes through this: a future for each would cost as much as SQLite."""
        rows: list[Any] = connection._conn.execute(statement, args).fetchall()
        return rows

    connection.execute_fetchall = execute_fetchall
    opened: aiosqlite.Connection = connection
    return opened


def connecting(delays: random.Random) -> Callable[..., aiosqlite.Connection]:
    """Like `connect`, but statements take (virtual) time, as with a thread.

    SQLite waits for a lock by sleeping, which would stop the loop, and with it the task that holds the lock.
    So it does not wait at all, and the statement is repeated after a virtual pause, for as long as sqlite3
    would have waited. A change of the journal mode does not wait in SQLite either (measured).
    """

    async def pass_time() -> None:
        if delays.random() < OFTEN:
            await asyncio.sleep(delays.random() * LONGEST)

    async def patiently(at_once: Any, statement: str, args: Sequence[Any]) -> list[Any]:
        waits = not statement.startswith("PRAGMA journal_mode")
        until = asyncio.get_running_loop().time() + BUSY_TIMEOUT * waits
        while True:
            try:
                return list(await at_once(statement, args))
            except sqlite3.OperationalError as error:
                if (
                    error.sqlite_errorcode != sqlite3.SQLITE_BUSY
                    or asyncio.get_running_loop().time() >= until
                ):
                    raise
            await asyncio.sleep(PAUSE)

    def connect_slowly(database: Any, **options: Any) -> aiosqlite.Connection:
        opened = connect(database, **{"timeout": 0, **options})
        connection: Any = opened
        at_once = connection.execute_fetchall

        async def execute_fetchall(statement: str, args: Sequence[Any] = ()) -> list[Any]:
            await pass_time()
            rows = await patiently(at_once, statement, args)
            await pass_time()
            return rows

        connection.execute_fetchall = execute_fetchall
        return opened

    return connect_slowly


RealLoop: Any = asyncio.SelectorEventLoop  # with its private methods, which the type stubs omit


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, order: random.Random | None = None) -> None:
        """`order` decides which of the ready tasks runs first; None: first come, first served."""
        super().__init__()
        self._jumped = 0.0
        self._order = order
        self.remains: set[asyncio.Task[Any]] | None = None  # the tasks of a program that died

    def time(self) -> float:
        return self._jumped

    def _run_once(self) -> None:
        loop: Any = self
        ready, scheduled = loop._ready, loop._scheduled
        while scheduled and scheduled[0]._cancelled:  # asyncio would drop it, and then really wait
            loop._timer_cancelled_count -= 1
            heapq.heappop(scheduled)._scheduled = False
        if not ready and scheduled and not loop._selector.select(0):  # nothing has arrived, either
            self._jumped = max(self._jumped, scheduled[0].when())
        if self._order is not None and len(ready) > 1:
            mix(ready, self._order)
        RealLoop._run_once(self)


def mix(ready: MutableSequence[asyncio.Handle], order: random.Random) -> None:
    """Shuffle the steps of tasks among each other, and nothing else.

    Other callbacks are asyncio's own (a future notifying its waiters, a timer) and may rely on the order in
    which they were scheduled. A task with two steps in the queue keeps their order.
    """
    steps = {place: task for place, handle in enumerate(ready) if (task := stepping(handle))}
    if len(set(steps.values())) != len(steps) or len(steps) < 2:
        return
    handles = [ready[place] for place in steps]
    order.shuffle(handles)
    for place, handle in zip(steps, handles, strict=True):
        ready[place] = handle


def stepping(handle: Any) -> asyncio.Task[Any] | None:
    """The task that this handle advances: its first step, or a wake-up when its awaited result is ready."""
    callback = handle._callback
    task = getattr(callback, "__self__", None)
    is_step = type(callback).__name__ == STEP or getattr(callback, "__name__", "") in WAKEUPS
    return task if is_step and isinstance(task, asyncio.Task) else None


def run(main: Coroutine[Any, Any, None], order: random.Random | None = None) -> None:
    """Like asyncio.run, without what a crash test never uses: signals, executors."""
    loop = VirtualLoop(order)
    try:
        loop.run_until_complete(main)
    finally:
        _end(loop)


class Died(Exception):
    """The program ended as if its process had died: no task was cancelled, nothing was cleaned up."""


async def die() -> None:
    """End the program in the middle: its tasks take no further step."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.remains = asyncio.all_tasks(loop)
    loop.stop()
    await loop.create_future()


def run_mortal(main: Coroutine[Any, Any, None], order: random.Random | None = None) -> None:
    """Like `run`; raises Died if the program calls `die`.

    What a dead program leaves in memory is never collected: collecting a coroutine would run its cleanup.
    A process in which a program has died should not be reused.
    """
    loop = VirtualLoop(order)
    _keep.append(loop)
    try:
        loop.run_until_complete(main)
    except RuntimeError:
        if loop.remains is None:
            raise
        raise Died from None
    finally:
        if loop.remains is None:
            _end(loop)
            _keep.remove(loop)


_keep: list[VirtualLoop] = []


def _end(loop: Any) -> None:
    try:
        if left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        if loop._asyncgens:
            loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
