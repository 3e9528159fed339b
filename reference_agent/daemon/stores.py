"""Where the daemon's changes are stored: in a database, or as lines of a log. The store's kind decides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec

from reference_agent.daemon.records import AnyChange
from reference_agent.daemon.state import State
from reference_agent.ids import Clock
from reference_agent.references import load
from reference_agent.store.kinds import Location, find
from reference_agent.store.lock import SessionLock


class DaemonStore(Protocol):
    """`state` contains exactly what is durable."""

    state: State

    async def write(self, change: AnyChange) -> None:
        """On return the change is durable and part of the state; after an error it is neither."""

    async def close(self) -> None: ...


class DaemonOpening(msgspec.Struct, frozen=True):
    """What a store gets in order to open the daemon's state."""

    location: Location
    clock: Clock
    segment: int | None = None  # lines per log segment, for a store that has segments


OpenDaemonStore = Callable[[DaemonOpening], Awaitable[DaemonStore]]


@asynccontextmanager
async def opened_store(
    location: Location, *, clock: Clock, segment: int | None = None
) -> AsyncIterator[DaemonStore]:
    """Open the store for one process at a time; a second process gets SessionBusy."""
    kind = find(location.store)
    if kind.daemon is None:
        raise ValueError(f"the store {kind.name} does not support a daemon")
    open_daemon: OpenDaemonStore = load(kind.daemon)
    lock = SessionLock(location.directory / "daemon.lock")
    try:
        store = await open_daemon(DaemonOpening(location, clock, segment))
        try:
            yield store
        finally:
            await store.close()
    finally:
        lock.release()
