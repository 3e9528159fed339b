"""The backlog: writes in their order, those that failed first of all (G8).

    write ──> [waiting ...] ──in order──> store, log ──> then(): from now on it may be claimed
                   ^   |
                   |   └── fails: stays here, the agent goes on, its state is `degraded`
                   └────── the next write, or `catch_up`, tries again from the first

Nothing is claimed before it is durable, nothing overtakes what came before it. What must be durable
before the agent may go on (that a call will be made) is not put here: it is `require`d.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable

from reference_agent.ids import Sleep
from reference_agent.logs.structured import get_logger

log = get_logger(__name__)
Operation = Callable[[], Awaitable[object]]
Then = Callable[[], None]

# What a full or failing disk raises, through SQLite or directly. Anything else is a bug.
FAILURES = (sqlite3.OperationalError, OSError)
TRIES = 4  # of what is required; a disk that fails that often will not be better in a second
PAUSE = 0.05  # seconds before the second try, doubled each time


class NotDurable(Exception):
    """What has to be durable before going on, or before it is claimed, could not be made so."""


def nothing() -> None:
    """To be done after a write that nobody waits for."""


class Backlog:
    def __init__(self, sleep: Sleep) -> None:
        self._waiting: deque[tuple[str, Operation, Then]] = deque()
        self._sleep = sleep
        # Parallel calls write too: one at a time, or what one has begun another begins again.
        self._one_at_a_time = asyncio.Lock()
        self.last_error: str | None = None

    @property
    def degraded(self) -> bool:
        return bool(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)

    async def write(self, name: str, operation: Operation, then: Then = nothing) -> bool:
        """Whether it is durable now; if not, it will be tried again."""
        self._waiting.append((name, operation, then))
        return await self.catch_up()

    async def catch_up(self) -> bool:
        async with self._one_at_a_time:
            return await self._catch_up()

    async def _catch_up(self) -> bool:
        while self._waiting:
            name, operation, then = self._waiting[0]
            if not await self._try(name, operation):
                return False
            self._waiting.popleft()
            then()
        self.last_error = None
        return True

    async def require(self, name: str, operation: Operation) -> None:
        """Durable, after everything before it, or NotDurable; never kept for later."""
        for attempt in range(TRIES):
            if attempt:
                await self._sleep(PAUSE * 2**attempt)
            if await self._now(name, operation):
                return
        raise NotDurable(f"{name} could not be made durable: {self.last_error}")

    async def _now(self, name: str, operation: Operation) -> bool:
        async with self._one_at_a_time:
            return await self._catch_up() and await self._try(name, operation)

    async def _try(self, name: str, operation: Operation) -> bool:
        try:
            await operation()
        except FAILURES as error:
            self.last_error = f"{type(error).__name__}: {error}"
            log.warning("persist.failed", what=name, error=self.last_error, waiting=len(self))
            return False
        return True
