"""Journal: checks and writes one change at a time, so that a check still holds when its change is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reference_agent.daemon.records import Simple
from reference_agent.daemon.state import State
from reference_agent.daemon.stores import DaemonStore


class Refused(Exception):
    """The operation is not possible; nothing has changed. The message is one line for the caller."""


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
        """Write the change, durable on return. `wanted` runs at the last moment and may raise Refused."""
        async with self._lock:
            if not wanted():
                return False
            await self._store.write(change)
            return True
