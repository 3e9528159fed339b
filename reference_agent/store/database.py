"""A SQLite database that is opened only if it can be made durable and current, and is not corrupt.

WAL with synchronous=FULL: a commit is in the synced log before COMMIT returns, so neither a kill nor a
power failure loses an acknowledged commit. (NORMAL could lose commits, though it would not corrupt the
file.)
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiosqlite

from reference_agent.points import persisting
from reference_agent.store import schema

TRIES, PAUSE = 100, 0.05  # of a change that SQLite does not wait for: as long as it waits elsewhere
Connect = Callable[..., aiosqlite.Connection]


class CorruptStore(Exception):
    """The file is damaged in a way that a crash of the agent cannot cause. It was left untouched."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(
            f"{path} is damaged: {what}. Nothing was changed. Restore it from a backup, recover what is"
            f" readable with: sqlite3 {path} .recover, or move it (and its -wal) aside to start over"
        )


class NewerStore(Exception):
    """A later release created the database; this one does not know its schema."""


class Database:
    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, path: Path, connect: Connect = aiosqlite.connect) -> Database:
        """Raise CorruptStore or NewerStore instead of working on a file it does not understand."""
        is_new = _is_missing(path)
        database = cls(await connect(path, isolation_level=None))  # transactions are begun explicitly
        try:
            await database._prepare(path, is_new=is_new)
        except BaseException:
            await database._close_as_found(path, connect)
            raise
        return database

    async def _prepare(self, path: Path, *, is_new: bool) -> None:
        try:
            if not is_new:
                await self._check(path)
            await self._write_ahead()
            await self.execute("PRAGMA synchronous = FULL")
            await self._migrate(path)
        except sqlite3.OperationalError:
            raise  # busy, full, unreadable: a problem of the machine, not of the file
        except sqlite3.DatabaseError as error:
            raise CorruptStore(path, str(error)) from None

    async def _check(self, path: Path) -> None:
        """Read the whole file without changing it."""
        (found,) = await self.one("PRAGMA quick_check(1)")
        if found != "ok":
            raise CorruptStore(path, " ".join(found.split()))  # the report spans two lines

    async def _close_as_found(self, path: Path, connect: Connect) -> None:
        """A read-only connection closes last: any other would move the -wal into the file on closing."""
        last = None
        with suppress(sqlite3.Error):  # the original error is the one to report
            last = await connect(f"file:{quote(str(path))}?mode=ro", uri=True)
            await last.execute_fetchall("PRAGMA schema_version")  # opens the -wal
        await self.close()
        if last:
            await last.close()

    async def _write_ahead(self) -> None:
        """Another process may be creating the same database. SQLite does not wait for it here, as it does
        elsewhere."""
        for _ in range(TRIES):
            try:
                await self.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
                await asyncio.sleep(PAUSE)
            else:
                return
        await self.execute("PRAGMA journal_mode = WAL")

    async def _version(self, path: Path) -> int:
        (version,) = await self.one("PRAGMA user_version")
        if version > schema.VERSION:
            raise NewerStore(
                f"{path} has schema version {version}; this release supports up to {schema.VERSION}:"
                " upgrade it"
            )
        return int(version)

    async def _migrate(self, path: Path) -> None:
        if await self._version(path) == schema.VERSION:
            return
        # One transaction for all steps: a crash leaves either the old schema or the new one.
        with persisting("schema.migrate"):
            async with self.transaction():
                # Read again: another process may have migrated it while this one waited for the lock.
                for step in schema.MIGRATIONS[await self._version(path) :]:
                    for statement in step.split(";")[:-1]:
                        await self.execute(statement)
                await self.execute(f"PRAGMA user_version = {schema.VERSION}")

    async def close(self) -> None:
        await self._connection.close()

    async def execute(self, statement: str, *args: Any) -> list[Any]:
        """One round trip to aiosqlite's thread; a cursor would need three."""
        return list(await self._connection.execute_fetchall(statement, args))

    async def one(self, query: str, *args: Any) -> Any:
        rows = await self.execute(query, *args)
        return rows[0] if rows else None

    async def write(self, point: str, statement: str, *args: Any) -> None:
        """A single statement outside a transaction is its own transaction."""
        with persisting(point):
            await self.execute(statement, *args)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        await self.execute("BEGIN IMMEDIATE")
        try:
            yield
            await self.execute("COMMIT")
        except BaseException:
            # A failed COMMIT may or may not have ended the transaction.
            if self._connection.in_transaction:
                await self.execute("ROLLBACK")
            raise


def _is_missing(path: Path) -> bool:
    return not path.exists()
