# /// script
# requires-python = ">=3.11"
# dependencies = ["openai-agents>=0.3"]
# ///
"""Sessions of the OpenAI Agents SDK on SQLite: the items of a conversation, one database file for all.

The SDK works in asyncio's default thread pool, with a connection for each thread. Here the pool has one
thread, so that two runs execute in the same order.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")

from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession

DOCS = "https://openai.github.io/openai-agents-python/sessions/"


class Sqlite:
    """OpenAI Agents SDK SQLiteSession in a file"""

    style = "append"
    unit = "one add_items(): the new items of a run"
    promises = {
        "durable": ("new items of a run are stored; with a file, the storage is persistent", DOCS),
        "prefix": ("the history of a session, in chronological order", DOCS),
        "loadable": ("a conversation is resumed with the same session, or one on the same file", DOCS),
        "continues": ("later runs with the session continue the stored history", DOCS),
        "isolated": ("different session ids have separate conversation histories", DOCS),
    }

    async def open(self, directory: str) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        self.place = str(Path(directory) / "conversations.db")
        self.sessions: dict[str, Any] = {}
        self._session("a")  # creates the tables

    def _session(self, session: str) -> Any:
        if session not in self.sessions:
            self.sessions[session] = self._new(session)
        return self.sessions[session]

    def _new(self, session: str) -> Any:
        return SQLiteSession(session, self.place)

    async def close(self) -> None:
        for session in self.sessions.values():
            session.close()

    async def append(self, session: str, items: list[dict[str, Any]]) -> None:
        await self._session(session).add_items(
            [{"role": "assistant" if item["part"] else "user", "content": json.dumps(item)} for item in items]
        )

    async def items(self, session: str) -> list[dict[str, Any]]:
        return [json.loads(item["content"]) for item in await self._session(session).get_items()]

    async def delete(self, session: str) -> None:
        await self._session(session).clear_session()

    async def settings(self) -> dict[str, Any]:
        def read() -> dict[str, Any]:
            with self._session("a")._locked_connection() as db:  # noqa: SLF001 - its own connection
                return {n: db.execute(f"PRAGMA {n}").fetchone()[0] for n in names}

        names = ("journal_mode", "synchronous")
        return {"sqlite": sqlite3.sqlite_version} | await asyncio.to_thread(read)


class AdvancedSqlite(Sqlite):
    """OpenAI Agents SDK AdvancedSQLiteSession in a file: with the structure of the turns"""

    def _new(self, session: str) -> Any:
        return AdvancedSQLiteSession(session_id=session, db_path=self.place, create_tables=True)

    async def records(self, session: str) -> dict[str, Any]:
        """Messages written by users: as stored, and as counted by the structure of the turns."""
        mine = self._session(session)
        users = [item for item in await mine.get_items() if item["role"] == "user"]
        turns = await mine.get_conversation_turns()
        return {"user messages": len(users), "turns": len(turns)}
