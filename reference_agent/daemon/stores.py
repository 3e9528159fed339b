"""Where the daemon's changes are kept: in a database, or as lines of a log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import aiosqlite

from reference_agent.daemon.files import SEGMENT, FilesDaemonStore
from reference_agent.daemon.records import AnyChange
from reference_agent.daemon.sqlite import SqliteDaemonStore
from reference_agent.daemon.state import State
from reference_agent.ids import Clock
from reference_agent.store.database import Connect
from reference_agent.store.kinds import StoreKind
from reference_agent.store.lock import SessionLock

DATABASE = "daemon.db"


class DaemonStore(Protocol):
    """`state` is what is durable, and nothing else."""

    state: State

    async def write(self, change: AnyChange) -> None:
        """Durable when it returns, and part of the state; after an error it is neither."""

    async def close(self) -> None: ...


@asynccontextmanager
async def opened_store(
    directory: Path,
    kind: StoreKind,
    *,
    clock: Clock,
    connect: Connect = aiosqlite.connect,
    segment: int = SEGMENT,
) -> AsyncIterator[DaemonStore]:
    """Of one process at a time; the second is refused (SessionBusy). `segment`: lines, on files."""
    lock = SessionLock(directory / "daemon.lock")
    try:
        store: DaemonStore
        if kind == "files":
            store = FilesDaemonStore(directory, clock, segment)
        else:
            store = await SqliteDaemonStore.open(directory / DATABASE, connect)
        try:
            yield store
        finally:
            await store.close()
    finally:
        lock.release()
