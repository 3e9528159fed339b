# /// script
# requires-python = ">=3.11"
# dependencies = ["langgraph-checkpoint-sqlite>=3"]
# ///
"""LangGraph's savers: every checkpoint is kept; a graph resumes from the latest."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

SUITE = "langgraph-checkpoint-conformance"
DOCS = "https://docs.langchain.com/oss/python/langgraph/persistence"


def _checkpoint(state: dict[str, Any]) -> dict[str, Any]:
    checkpoint = empty_checkpoint()
    # Checkpoint ids sort by time, as a graph's own do.
    checkpoint["id"] = f"{state['n']:08d}-0000-6000-8000-000000000000"
    checkpoint["channel_values"] = {"state": state}
    checkpoint["channel_versions"] = {"state": state["n"]}
    return checkpoint


def _put(session: str, state: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments that a graph's loop passes to put()."""
    config = {"configurable": {"thread_id": session, "checkpoint_ns": ""}}
    metadata = {"source": "loop", "step": state["n"]}
    return config, _checkpoint(state), metadata, {"state": state["n"]}


def _thread(session: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": session}}


def _state(found: Any) -> dict[str, Any]:
    return found.checkpoint["channel_values"]["state"]


class _Promised:
    style = "history"
    unit = "one put(): the checkpoint and its metadata"
    promises = {
        "durable": ("checkpoints are saved to a thread at every super-step and can be resumed from", DOCS),
        "atomic": ("a checkpoint is a snapshot of the graph state", DOCS),
        "prefix": ("the full state history of a thread, in chronological order", DOCS),
        "loadable": ("if a node fails, the graph restarts from the last successful step", DOCS),
        "continues": ("execution continues from the last checkpoint", DOCS),
        "isolated": ("each thread_id has its own series of checkpoints", DOCS),
        "immutable": ("prior checkpoints can be replayed and forked", DOCS),
    }


class _Sync(_Promised):
    saver: Any

    def save(self, session: str, state: dict[str, Any]) -> None:
        self.saver.put(*_put(session, state))

    def load(self, session: str) -> dict[str, Any] | None:
        found = self.saver.get_tuple(_thread(session))
        return _state(found) if found else None

    def history(self, session: str) -> list[dict[str, Any]]:
        return [_state(each) for each in self.saver.list(_thread(session))][::-1]

    def delete(self, session: str) -> None:
        self.saver.delete_thread(session)


class Sqlite(_Sync):
    """LangGraph SqliteSaver, one connection, one file"""

    kind = SqliteSaver
    callers = "threads"  # it has a lock; its documentation shares the connection between threads
    suite = (SUITE, "conformance.py", "langgraph.checkpoint.sqlite:SqliteSaver")

    def open(self, directory: str) -> None:
        self.db = sqlite3.connect(Path(directory) / "checkpoints.db", check_same_thread=False)
        self.saver = self.kind(self.db)
        self.saver.setup()

    def close(self) -> None:
        self.db.close()

    def settings(self) -> dict[str, Any]:
        names = ("journal_mode", "synchronous")
        return {name: self.db.execute(f"PRAGMA {name}").fetchone()[0] for name in names} | {
            "sqlite": sqlite3.sqlite_version
        }


class UncommittedSaver(SqliteSaver):
    """A control: SqliteSaver that never commits a checkpoint. Its own connection sees all of them."""

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        with super().cursor(transaction=False) as cursor:
            yield cursor


class Uncommitted(Sqlite):
    """A control that loses data: LangGraph SqliteSaver with its commit disabled"""

    kind = UncommittedSaver
    suite = (SUITE, "conformance.py", "langgraph_sqlite.py:UncommittedSaver")


class Memory(_Sync):
    """A control that loses data: LangGraph InMemorySaver, which keeps nothing on disk"""

    suite = (SUITE, "conformance.py", "langgraph.checkpoint.memory:InMemorySaver")
    promises = {}  # documented as "for debugging or testing purposes"

    def open(self, directory: str) -> None:
        self.saver = InMemorySaver()

    def close(self) -> None:
        pass


class AsyncSqlite(_Promised):
    """LangGraph AsyncSqliteSaver, one connection, one file"""

    suite = (SUITE, "conformance.py", "langgraph.checkpoint.sqlite.aio:AsyncSqliteSaver")
    callers = "tasks"

    async def open(self, directory: str) -> None:
        self.stack = AsyncExitStack()
        place = str(Path(directory) / "checkpoints.db")
        self.saver = await self.stack.enter_async_context(AsyncSqliteSaver.from_conn_string(place))
        await self.saver.setup()

    async def close(self) -> None:
        await self.stack.aclose()

    async def save(self, session: str, state: dict[str, Any]) -> None:
        await self.saver.aput(*_put(session, state))

    async def load(self, session: str) -> dict[str, Any] | None:
        found = await self.saver.aget_tuple(_thread(session))
        return _state(found) if found else None

    async def history(self, session: str) -> list[dict[str, Any]]:
        return [_state(each) async for each in self.saver.alist(_thread(session))][::-1]

    async def delete(self, session: str) -> None:
        await self.saver.adelete_thread(session)

    async def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = {"sqlite": sqlite3.sqlite_version}
        for name in ("journal_mode", "synchronous"):
            async with self.saver.conn.execute(f"PRAGMA {name}") as cursor:
                found[name] = (await cursor.fetchone())[0]
        return found
