"""Where a session lives between two lives of the process: in a database, or in its log alone.

sqlite   `sessions.db` for all sessions of a directory; `<session>.messages.jsonl` follows it
files    `<session>.messages.jsonl` is all there is
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from reference_agent.ids import Clock, system_clock
from reference_agent.messages import StoredMessage
from reference_agent.store.database import Connect
from reference_agent.store.event_log import EventLog
from reference_agent.store.files import SUFFIX, FilesStore, folded, read_fold, read_folds, unfinished
from reference_agent.store.lines import SessionCreated
from reference_agent.store.protocol import SessionStore
from reference_agent.store.records import Request
from reference_agent.store.sqlite import SqliteStore

__all__ = [
    "STORES",
    "SessionStore",
    "StoreKind",
    "Stored",
    "WrongStore",
    "open_log",
    "open_store",
    "read_session",
    "read_sessions",
]

StoreKind = Literal["sqlite", "files"]
STORES: tuple[StoreKind, ...] = ("sqlite", "files")
DATABASE = "sessions.db"


class WrongStore(Exception):
    """The session lives in the other kind of store: opened in this one, it would begin anew."""


class Stored(msgspec.Struct, frozen=True):
    """A session as it lies there."""

    messages: list[StoredMessage]
    unfinished: list[Request]


def open_log(directory: Path, session: str, clock: Clock) -> EventLog:
    path = directory / f"{session}{SUFFIX}"
    return EventLog(path, clock, judge=lambda events: folded(events, path))


async def open_store(
    kind: StoreKind, log: EventLog, session: str, agent: str, clock: Clock, connect: Connect
) -> SessionStore:
    """The store of a session whose log is open."""
    kinds = {event.get("kind") for event in log.events}
    lives = "files" if SessionCreated.__struct_config__.tag in kinds else "sqlite"
    has_begun = lives == "files" or "run.started" in kinds  # other lines say nothing of a store
    if has_begun and lives != kind:
        raise WrongStore(f"session {session} is in the store {lives}: it cannot be opened in {kind}")
    if kind == "files":
        return FilesStore(log, agent)
    return await SqliteStore.open(log.path.parent / DATABASE, session, agent, clock, connect)


async def read_sessions(directory: Path, kind: StoreKind) -> list[tuple[str, int]]:
    """Every session of this kind in a directory, and how many messages it has; beside any agent."""
    if kind == "files":
        return [(session, len(fold.messages)) for session, fold in read_folds(directory).items()]
    store = await _database(directory, "")
    if store is None:
        return []
    try:
        return await store.sessions()
    finally:
        await store.close()


async def read_session(directory: Path, session: str, kind: StoreKind) -> Stored | None:
    """One of them, beside any agent that has it open; None if there is none of that name."""
    if kind == "files":
        fold = read_fold(directory / f"{session}{SUFFIX}")
        return Stored(fold.messages, unfinished(fold)) if fold else None
    store = await _database(directory, session)
    if store is None:
        return None
    try:
        if session not in dict(await store.sessions()):
            return None
        return Stored(await store.messages(), await store.unfinished_requests())
    finally:
        await store.close()


async def _database(directory: Path, session: str) -> SqliteStore | None:
    """None when nothing was ever stored here: looking must not make a database."""
    path = directory / DATABASE
    return await SqliteStore.open(path, session, "agent", system_clock) if path.exists() else None
