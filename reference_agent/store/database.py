"""A SQLite database, opened with care: durable, up to date, and not corrupt, or not opened at all.

WAL with synchronous=FULL: a commit is in the synced log before COMMIT returns, so that neither a kill
nor a loss of power takes back what was acknowledged (NORMAL would lose commits, never corrupt).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiosqlite

from reference_agent.points import persisting
from reference_agent.store import schema

Connect = Callable[..., aiosqlite.Connection]


class CorruptStore(Exception):
    """The file is damaged in a way that no crash of ours explains. It was not touched."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(
            f"{path} is damaged: {what}. Nothing was changed. Restore it from a backup, save what can be"
            f" read with: sqlite3 {path} .recover, or move it (and its -wal) away to start anew"
        )


class NewerStore(Exception):
    """The database was made by a later release, whose rules this one does not know."""


class Database:
    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, path: Path, connect: Connect = aiosqlite.connect) -> Database:
        """Raises CorruptStore or NewerStore rather than work on what it does not understand."""
        await cls._check(path, connect)
        connection = await connect(path, isolation_level=None)  # transactions are ours to begin
        database = cls(connection)
        try:
            await database._prepare(path)
        except BaseException:
            await connection.close()
            raise
        return database

    @staticmethod
    async def _check(path: Path, connect: Connect) -> None:
        """Read-only where it can be: any other connection would move the -wal into a damaged file.

        A crash while the database was made can leave a journal that has to be rolled back before
        anybody can read; that takes a connection that may write, and there is no -wal to move yet.
        """
        if not os.path.exists(path):  # noqa: ASYNC240, PTH110 - `path` may be :memory:
            return
        unfinished = os.path.exists(f"{path}-journal")  # noqa: ASYNC240, PTH110
        uri = f"file:{quote(str(path))}?mode={'rw' if unfinished else 'ro'}"
        connection = await connect(uri, uri=True, isolation_level=None)
        try:
            ((found,),) = await connection.execute_fetchall("PRAGMA quick_check(1)")
        except sqlite3.OperationalError:
            raise  # busy, unreadable: the machine's trouble, not the file's
        except sqlite3.DatabaseError as error:
            raise CorruptStore(path, str(error)) from None
        finally:
            await connection.close()
        if found != "ok":
            raise CorruptStore(path, found)

    async def _prepare(self, path: Path) -> None:
        try:
            await self.execute("PRAGMA journal_mode = WAL")
            await self.execute("PRAGMA synchronous = FULL")
            await self._migrate(path)
        except sqlite3.OperationalError:
            raise  # busy, full, unreadable: the machine's trouble, not the file's
        except sqlite3.DatabaseError as error:
            raise CorruptStore(path, str(error)) from None

    async def _migrate(self, path: Path) -> None:
        (version,) = await self.one("PRAGMA user_version")
        if version > schema.VERSION:
            raise NewerStore(
                f"{path} has version {version}, and this release knows {schema.VERSION}: upgrade it"
            )
        if version == schema.VERSION:
            return
        # One transaction for all steps: a crash leaves the old shape, or the new one.
        with persisting("schema.migrate"):
            async with self.transaction():
                for step in schema.MIGRATIONS[version:]:
                    for statement in step.split(";")[:-1]:
                        await self.execute(statement)
                await self.execute(f"PRAGMA user_version = {schema.VERSION}")

    async def close(self) -> None:
        await self._connection.close()

    async def execute(self, statement: str, *args: Any) -> list[Any]:
        """One trip to aiosqlite's thread; with a cursor it would be three."""
        return list(await self._connection.execute_fetchall(statement, args))

    async def one(self, query: str, *args: Any) -> Any:
        rows = await self.execute(query, *args)
        return rows[0] if rows else None

    async def write(self, point: str, statement: str, *args: Any) -> None:
        """One statement outside a transaction is a transaction of its own."""
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
