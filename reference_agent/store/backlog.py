"""The backlog: keeps writes in order and retries failed ones first (G8).

    write ──> [waiting ...] ──in order──> store, log ──> then(): now it may be acknowledged
                   ^   |
                   |   └── fails: stays queued, the agent continues, its state is `degraded`
                   └────── the next write, or `catch_up`, retries from the first

Nothing is acknowledged before it is durable, and no write overtakes an earlier one. A write that must be
durable before the agent may continue (the intent to make a call) is not queued: it is `require`d.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from reference_agent.ids import Sleep
from reference_agent.logs.structured import get_logger

log = get_logger(__name__)
Operation = Callable[[], Awaitable[object]]
Then = Callable[[], None]

# The errors that a full or failing disk raises, through SQLite or directly. Any other error is a bug.
FAILURES = (sqlite3.OperationalError, OSError)
TRIES = 4  # for required writes; after that many failures, another second will not help
PAUSE = 0.05  # seconds before the second try, doubled each time


class CancelledBeforeDurable(asyncio.CancelledError):
    """The caller was cancelled while the disk refused its write: the write still has to be made."""


class NotDurable(Exception):
    """A write that must be durable before continuing or acknowledging could not be made durable."""


def nothing() -> None:
    """The default callback: nothing to do after the write."""


async def to_its_end(operation: Operation) -> None:
    """Perform a write to its end, even if the caller is cancelled meanwhile: half of a write may or may not
    have happened, so it could be neither repeated nor forgotten."""
    write = asyncio.ensure_future(operation())
    try:
        await asyncio.shield(write)
    except asyncio.CancelledError:
        while not write.done():
            with suppress(asyncio.CancelledError):  # another one changes nothing
                await asyncio.wait({write})
        if not write.cancelled() and isinstance(write.exception(), FAILURES):
            raise CancelledBeforeDurable from write.exception()
        raise


class Backlog:
    def __init__(self, sleep: Sleep) -> None:
        self._waiting: deque[tuple[str, Operation, Then]] = deque()
        self._sleep = sleep
        # Parallel tool calls write too. The lock keeps two of them from running the same queued operation.
        self._one_at_a_time = asyncio.Lock()
        self.last_error: str | None = None

    @property
    def degraded(self) -> bool:
        return bool(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)

    async def write(self, name: str, operation: Operation, then: Then = nothing) -> bool:
        """Return whether the write is durable now. If not, it stays queued and is retried."""
        self._waiting.append((name, operation, then))
        return await self.catch_up()

    async def catch_up(self) -> bool:
        async with self._one_at_a_time:
            return await self._catch_up()

    async def _catch_up(self) -> bool:
        while self._waiting:
            name, operation, then = self._waiting[0]
            if not await self._finished(name, operation):
                return False
            then()
        self.last_error = None
        return True

    async def require(self, name: str, operation: Operation) -> None:
        """Make it durable after all earlier writes, or raise NotDurable. Never queued for later."""
        for attempt in range(TRIES):
            if attempt:
                await self._sleep(PAUSE * 2**attempt)
            if await self._now(name, operation):
                return
        raise NotDurable(f"{name} could not be made durable: {self.last_error}")

    async def _now(self, name: str, operation: Operation) -> bool:
        async with self._one_at_a_time:
            return await self._catch_up() and await self._try(name, operation)

    async def _finished(self, name: str, operation: Operation) -> bool:
        """Whether the first write in the queue is durable now.

        Only one that the disk refused stays there: one that raises anything else would raise it forever, and
        block all that come after it.
        """
        try:
            durable = await self._try(name, operation)
        except CancelledBeforeDurable:
            raise
        except BaseException:
            self._waiting.popleft()
            raise
        if durable:
            self._waiting.popleft()
        return durable

    async def _try(self, name: str, operation: Operation) -> bool:
        try:
            await to_its_end(operation)
        except FAILURES as error:
            self.last_error = f"{type(error).__name__}: {error}"
            log.warning("persist.failed", what=name, error=self.last_error, waiting=len(self))
            return False
        return True
