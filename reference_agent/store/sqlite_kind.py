"""The store `sqlite`: one database for all sessions of a directory."""

from __future__ import annotations

from pathlib import Path

import aiosqlite

from reference_agent.ids import system_clock
from reference_agent.store.kinds import Location, Opening, Stored, StoreKind
from reference_agent.store.sqlite import SqliteStore

DATABASE = "sessions.db"


def kind_on(database: str, daemon: str, *, name: str, summary: str) -> StoreKind:
    """A kind that stores its sessions in this file of the state directory."""

    async def open_session(opening: Opening) -> SqliteStore:
        path = opening.location.directory / database
        connect = opening.location.connect or aiosqlite.connect
        return await SqliteStore.open(path, opening.session, opening.agent, opening.clock, connect)

    async def read_sessions(location: Location) -> list[tuple[str, int]]:
        store = await _opened(location.directory, database, "")
        if store is None:
            return []
        try:
            return await store.sessions()
        finally:
            await store.close()

    async def read_session(location: Location, session: str) -> Stored | None:
        store = await _opened(location.directory, database, session)
        if store is None:
            return None
        try:
            if session not in dict(await store.sessions()):
                return None
            return Stored(await store.messages(), await store.unfinished_requests())
        finally:
            await store.close()

    return StoreKind(
        name=name,
        summary=summary,
        open=open_session,
        read_sessions=read_sessions,
        read_session=read_session,
        daemon=daemon,
        database=database,
    )


async def _opened(directory: Path, database: str, session: str) -> SqliteStore | None:
    """None if nothing was ever stored here: reading must not create a database."""
    path = directory / database
    return await SqliteStore.open(path, session, "agent", system_clock) if path.exists() else None


KIND = kind_on(
    DATABASE,
    "reference_agent.daemon.sqlite:open_store",
    name="sqlite",
    summary="one database for all sessions",
)
