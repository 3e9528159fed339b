"""Where the daemon's changes are kept: in a database, or as lines of a log; the store's kind knows."""

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
    """`state` is what is durable, and nothing else."""

    state: State

    async def write(self, change: AnyChange) -> None:
        """Durable when it returns, and part of the state; after an error it is neither."""

    async def close(self) -> None: ...


class DaemonOpening(msgspec.Struct, frozen=True):
    """What a store is given to open the daemon's state."""

    location: Location
    clock: Clock
    segment: int | None = None  # lines of a log before the next begins, for a store that has one


OpenDaemonStore = Callable[[DaemonOpening], Awaitable[DaemonStore]]


@asynccontextmanager
async def opened_store(
    location: Location, *, clock: Clock, segment: int | None = None
) -> AsyncIterator[DaemonStore]:
    """Of one process at a time; the second is refused (SessionBusy)."""
    kind = find(location.store)
    if kind.daemon is None:
        raise ValueError(f"the store {kind.name} cannot keep a daemon")
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
