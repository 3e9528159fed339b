"""What makes an asyncio program repeatable: SQLite in the loop's own thread, and a virtual clock.

aiosqlite hands each call to a thread through a queue. When it answers depends on the machine's mood,
and a call costs two switches between threads, which is most of what it costs. Here the call is made at
once. The agent's code does not change, nor what reaches the disk; what is lost is that the loop goes on
while SQLite works, which a crash test does not need.

The virtual loop never waits: when nothing is ready, its clock jumps to the next timer. A tool that
hangs until its deadline, and a retry that waits for a minute, take no time at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import aiosqlite


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


_NEEDED = ((None, "_tx"), (None, "_thread"), (aiosqlite.Connection, "_conn"),
           (aiosqlite.Connection, "execute_fetchall"))  # fmt: skip


def connect(database: Any, **options: Any) -> aiosqlite.Connection:
    connection = aiosqlite.connect(database, **options)
    # Private names; if a release renames them, the check below fails at once.
    for place, name in _NEEDED:
        assert hasattr(place or connection, name), f"this aiosqlite has no {name}: mend {__name__}"
    connection._tx = _AtOnce()  # type: ignore[assignment]
    connection._thread = _NoThread()  # type: ignore[assignment]

    async def execute_fetchall(statement: str, args: Sequence[Any] = ()) -> list[Any]:
        """What nearly every statement goes through: a future for each would cost as much as SQLite."""
        return connection._conn.execute(statement, args).fetchall()

    connection.execute_fetchall = execute_fetchall  # type: ignore[assignment]
    return connection


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._jumped = 0.0

    def time(self) -> float:
        return self._jumped

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        if not ready and scheduled:
            self._jumped = max(self._jumped, scheduled[0].when())
        super()._run_once()  # type: ignore[misc]


def run(main: Coroutine[Any, Any, None]) -> None:
    """As asyncio.run does, without what a crash test never uses: signals, executors."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(main)
        if left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    finally:
        loop.close()
