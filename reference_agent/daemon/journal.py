"""Journal: changes are checked and written one at a time, so that a check still holds when it counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reference_agent.daemon.records import Simple
from reference_agent.daemon.state import State
from reference_agent.daemon.stores import DaemonStore


class Refused(Exception):
    """What was asked cannot be done; nothing has changed. Its text is one line for whoever asked."""


class MailboxFull(Refused):
    """There is no room now; there may be later (D6)."""


class Journal:
    def __init__(self, store: DaemonStore) -> None:
        self._store = store
        self._lock = asyncio.Lock()

    @property
    def state(self) -> State:
        return self._store.state

    async def write(self, change: Simple, wanted: Callable[[], bool] = lambda: True) -> bool:
        """Durable when it returns. `wanted` is asked at the last moment; it may raise Refused."""
        async with self._lock:
            if not wanted():
                return False
            await self._store.write(change)
            return True
