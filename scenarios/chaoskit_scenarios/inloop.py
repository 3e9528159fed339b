"""What makes an asyncio program repeatable: SQLite in the loop's own thread, and a virtual clock.

aiosqlite hands each call to a thread through a queue. When it answers depends on the machine's mood,
and a call costs two switches between threads, which is most of what it costs. Here the call is made at
once. The agent's code does not change, nor what reaches the disk; what is lost is that the loop goes on
while SQLite works, which a crash test does not need.

The virtual loop never waits: when nothing is ready, its clock jumps to the next timer. A tool that
hangs until its deadline, and a retry that waits for a minute, take no time at all.

What is repeatable is also always the same, while a real program meets many orders. Two things can be
drawn from a seed, then: in which order tasks go on that are ready at once, and how long a statement
takes on its way to the thread and back, which is when other tasks overtake it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, MutableSequence, Sequence
from typing import Any

import aiosqlite

OFTEN, LONGEST = (0.3, 0.02)  # how often a statement keeps its caller waiting, and for how many seconds
# What asyncio schedules to let a task go on, in C; a test says so if a release renames it.
STEP, WAKEUPS = "TaskStepMethWrapper", ("task_wakeup", "TaskWakeupMethWrapper")


class _AtOnce:
    """In the place of the queue. The future is done before anybody waits for it."""

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
        assert hasattr(place or connection, name), f"this aiosqlite has no {name}: mend {__name__}"
    connection._tx = _AtOnce()
    connection._thread = _NoThread()

    async def execute_fetchall(statement: str, args: Sequence[Any] = ()) -> list[Any]:
        """What nearly every statement goes through: a future for each would cost as much as SQLite."""
        rows: list[Any] = connection._conn.execute(statement, args).fetchall()
        return rows

    connection.execute_fetchall = execute_fetchall
    opened: aiosqlite.Connection = connection
    return opened


def connecting(delays: random.Random) -> Callable[..., aiosqlite.Connection]:
    """`connect`, for statements that take (virtual) time: as long as a thread might."""

    async def pass_time() -> None:
        if delays.random() < OFTEN:
            await asyncio.sleep(delays.random() * LONGEST)

    def connect_slowly(database: Any, **options: Any) -> aiosqlite.Connection:
        opened = connect(database, **options)
        connection: Any = opened
        at_once = connection.execute_fetchall

        async def execute_fetchall(statement: str, args: Sequence[Any] = ()) -> list[Any]:
            await pass_time()
            rows = list(await at_once(statement, args))
            await pass_time()
            return rows

        connection.execute_fetchall = execute_fetchall
        return opened

    return connect_slowly


RealLoop: Any = asyncio.SelectorEventLoop  # with its private methods, of which the types say nothing


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, order: random.Random | None = None) -> None:
        """`order` decides which of the tasks that are ready goes first; None: the first come."""
        super().__init__()
        self._jumped = 0.0
        self._order = order

    def time(self) -> float:
        return self._jumped

    def _run_once(self) -> None:
        loop: Any = self
        ready, scheduled = loop._ready, loop._scheduled
        if not ready and scheduled:
            self._jumped = max(self._jumped, scheduled[0].when())
        if self._order is not None and len(ready) > 1:
            mix(ready, self._order)
        RealLoop._run_once(self)


def mix(ready: MutableSequence[asyncio.Handle], order: random.Random) -> None:
    """Steps of tasks change places with each other, and with nothing else.

    Other callbacks are asyncio's own (a future that tells who waits for it, a timer), which may rely on
    the order in which they were scheduled; a task that has two steps in the queue keeps their order.
    """
    steps = {place: task for place, handle in enumerate(ready) if (task := stepping(handle))}
    if len(set(steps.values())) != len(steps) or len(steps) < 2:
        return
    handles = [ready[place] for place in steps]
    order.shuffle(handles)
    for place, handle in zip(steps, handles, strict=True):
        ready[place] = handle


def stepping(handle: Any) -> asyncio.Task[Any] | None:
    """The task that goes on with it: its first step, or because what it waited for is there."""
    callback = handle._callback
    task = getattr(callback, "__self__", None)
    is_step = type(callback).__name__ == STEP or getattr(callback, "__name__", "") in WAKEUPS
    return task if is_step and isinstance(task, asyncio.Task) else None


def run(main: Coroutine[Any, Any, None], order: random.Random | None = None) -> None:
    """As asyncio.run does, without what a crash test never uses: signals, executors."""
    loop = VirtualLoop(order)
    try:
        loop.run_until_complete(main)
    finally:
        _end(loop)


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
