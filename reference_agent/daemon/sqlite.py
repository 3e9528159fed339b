"""The daemon's changes in SQLite: one statement each, which is its own transaction.

A settled message moves to another table and evicts the oldest one there, so the data that is read at
startup, checked for damage and kept on disk does not grow with the number of messages ever sent (D8).
Triggers do this, so that it remains a single statement.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
import msgspec

from reference_agent.daemon import records
from reference_agent.daemon.records import AgentRecord, AnyChange, Message
from reference_agent.daemon.state import REMEMBERED, State
from reference_agent.daemon.stores import DaemonOpening
from reference_agent.points import persisting
from reference_agent.store.database import Connect, Database, NewerStore

DATABASE = "daemon.db"
VERSION = 1
TABLES = """
CREATE TABLE agents (
    agent_id TEXT PRIMARY KEY,
    provider TEXT NOT NULL,
    model    TEXT NOT NULL,
    state    TEXT NOT NULL,
    blob     TEXT NOT NULL,
    handled  TEXT,
    reply    TEXT
);
CREATE TABLE links (
    number INTEGER PRIMARY KEY,
    child  TEXT NOT NULL UNIQUE REFERENCES agents(agent_id),
    parent TEXT REFERENCES agents(agent_id)
);
CREATE TABLE messages (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id  TEXT NOT NULL UNIQUE,
    sender      TEXT NOT NULL,
    receiver    TEXT NOT NULL,
    content     TEXT NOT NULL,
    wants_reply INTEGER NOT NULL,
    reply_to    TEXT,
    failed      INTEGER NOT NULL,
    tries       INTEGER NOT NULL
);
CREATE TABLE settled (
    place       INTEGER PRIMARY KEY,
    number      INTEGER NOT NULL,
    message_id  TEXT NOT NULL,
    sender      TEXT NOT NULL,
    receiver    TEXT NOT NULL,
    content     TEXT NOT NULL,
    wants_reply INTEGER NOT NULL,
    reply_to    TEXT,
    failed      INTEGER NOT NULL,
    tries       INTEGER NOT NULL,
    outcome     TEXT NOT NULL
);
"""
TRIGGER = f"""
CREATE TRIGGER settle AFTER INSERT ON settled BEGIN
    DELETE FROM messages WHERE number = new.number;
    DELETE FROM settled WHERE place <= new.place - {REMEMBERED};
END
"""
COLUMNS = "message_id, sender, receiver, content, wants_reply, reply_to, failed, tries"
UNDELIVERED = f"SELECT {COLUMNS} FROM messages ORDER BY number"
SETTLED = f"SELECT {COLUMNS}, outcome FROM settled ORDER BY place"
SETTLE = f"""INSERT INTO settled (number, {COLUMNS}, outcome)
    SELECT number, {COLUMNS}, ? FROM messages WHERE message_id = ?"""

T = TypeVar("T", AgentRecord, Message)


class _Database(Database):
    """A Database with the daemon's tables instead of the sessions'."""

    async def _migrate(self, path: Path) -> None:
        (version,) = await self.one("PRAGMA user_version")
        if version > VERSION:
            raise NewerStore(
                f"{path} has schema version {version}; this release supports up to {VERSION}: upgrade it"
            )
        if version < VERSION:
            with persisting("schema.migrate"):
                async with self.transaction():
                    for statement in [*TABLES.split(";")[:-1], TRIGGER]:
                        await self.execute(statement)
                    await self.execute(f"PRAGMA user_version = {VERSION}")


class SqliteDaemonStore:
    """Use `open`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.state = State()

    @classmethod
    async def open(cls, path: Path, connect: Connect = aiosqlite.connect) -> SqliteDaemonStore:
        store = cls(await _Database.open(path, connect))
        try:
            await store._load()
        except BaseException:
            await store.close()
            raise
        return store

    async def close(self) -> None:
        await self._database.close()

    async def write(self, change: AnyChange) -> None:
        await self._database.write(records.point_of(change), *statement_of(change))
        self.state.add(change)

    async def _load(self) -> None:
        query, add = self._database.execute, self.state.add
        for row in await query(
            "SELECT agent_id, provider, model, state, blob, handled, reply FROM agents ORDER BY rowid"
        ):
            add(records.Recorded(_read(row, AgentRecord)))
        for child, parent in await query("SELECT child, parent FROM links ORDER BY number"):
            add(records.Linked(child, parent))
        for *row, outcome in await query(SETTLED):
            add(records.Remembered(_read(row, Message), outcome))
        for row in await query(UNDELIVERED):
            add(records.Enqueued(_read(row, Message)))


async def open_store(opening: DaemonOpening) -> SqliteDaemonStore:
    connect = opening.location.connect or aiosqlite.connect
    return await SqliteDaemonStore.open(opening.location.directory / DATABASE, connect)


def _read(row: Any, kind: type[T]) -> T:
    """Columns are in the order of the fields; SQLite has no booleans."""
    return msgspec.convert(dict(zip(kind.__struct_fields__, row, strict=True)), kind, strict=False)


def statement_of(change: AnyChange) -> tuple[Any, ...]:
    """The statement and its parameters."""
    found: tuple[Any, ...]
    match change:
        case records.Recorded(record):
            row = msgspec.structs.astuple(record)
            found = "INSERT OR REPLACE INTO agents VALUES (?, ?, ?, ?, ?, ?, ?)", *row
        case records.Removed(agent):
            found = "DELETE FROM agents WHERE agent_id = ?", agent
        case records.Linked(agent, parent):
            found = "INSERT INTO links (child, parent) VALUES (?, ?)", agent, parent
        case records.TurnSaved(agent, blob, message_id, reply):
            found = (
                "UPDATE agents SET blob = ?, handled = ?, reply = ? WHERE agent_id = ?",
                blob,
                message_id,
                reply,
                agent,
            )
        case records.Suspended(agent, blob):
            found = "UPDATE agents SET state = 'SUSPENDED', blob = ? WHERE agent_id = ?", blob, agent
        case records.Resumed(agent):
            found = "UPDATE agents SET state = 'ACTIVE' WHERE agent_id = ?", agent
        case records.Stopped(agents):
            within = "agent_id IN (SELECT value FROM json_each(?))"
            named = msgspec.json.encode(agents).decode()
            found = f"UPDATE agents SET state = 'STOPPED' WHERE {within}", named
        case records.Enqueued(message):
            found = (
                f"INSERT INTO messages ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                *msgspec.structs.astuple(message),
            )
        case records.Tried(message_id, tries):
            found = "UPDATE messages SET tries = ? WHERE message_id = ?", tries, message_id
        case records.Settled(message_id, outcome):
            found = SETTLE, outcome, message_id
        case _:
            raise AssertionError(
                f"{change} cannot be written on its own"
            )  # changes that occur only in snapshots
    return found
