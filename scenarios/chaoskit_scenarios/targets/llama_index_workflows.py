# /// script
# requires-python = ">=3.11"
# dependencies = ["llama-index-workflows[server]>=2"]
# ///
"""LlamaIndex workflows' store on SQLite: the state of a run, as a step writes it through its context."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from llama_agents.server import SqliteWorkflowStore

DOCS = "https://developers.llamaindex.ai/python/llamaagents/workflows/durable_workflow_server/"


class Sqlite:
    """LlamaIndex workflows SqliteWorkflowStore, the state of a run"""

    style = "snapshot"
    unit = "one change of a run's state"
    callers = "tasks"
    promises = {
        "durable": ("every state transition is written to the database", DOCS),
        "loadable": ("runs are recovered and resumed after a server crash", DOCS),
        "continues": ("a resumed run continues from its last checkpoint", DOCS),
        "isolated": ("each handler tracks a run of its own", DOCS),
    }

    async def open(self, directory: str) -> None:
        self.path = Path(directory) / "workflows.db"
        self.store = SqliteWorkflowStore(db_path=str(self.path))
        await self.store.start()

    def close(self) -> None: ...

    async def save(self, session: str, state: dict[str, Any]) -> None:
        async with self.store.create_state_store(session).edit_state() as kept:
            kept["state"] = state

    async def load(self, session: str) -> dict[str, Any] | None:
        found = await self.store.create_state_store(session).get("state", default=None)
        return dict(found) if found is not None else None

    def settings(self) -> dict[str, Any]:
        """The settings of a new connection; the store opens one for each call."""
        db = sqlite3.connect(self.path)
        names = ("journal_mode", "synchronous")
        found = {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in names}
        db.close()
        return found | {"sqlite": sqlite3.sqlite_version}
