# /// script
# requires-python = ">=3.11"
# dependencies = ["langgraph-checkpoint-sqlite>=3"]
# ///
"""LangGraph's savers on SQLite: every checkpoint is kept, the latest is what a graph resumes from."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

DOCS = "https://docs.langchain.com/oss/python/langgraph/persistence"


class Sqlite:
    """LangGraph SqliteSaver, one connection, one file"""

    style = "history"
    unit = "one put(): the checkpoint and its metadata"
    promises = {
        "durable": (
            "checkpoints are saved to a thread at every super-step and can be resumed from",
            DOCS,
        ),
        "atomic": ("a checkpoint is a snapshot of the graph state", DOCS),
        "prefix": ("the full state history of a thread, in chronological order", DOCS),
        "loadable": ("if a node fails, the graph restarts from the last successful step", DOCS),
        "continues": ("execution goes on from the last checkpoint", DOCS),
        "isolated": ("a thread_id identifies a series of checkpoints of its own", DOCS),
        "immutable": ("prior checkpoints can be replayed and forked", DOCS),
    }

    def open(self, directory: str) -> None:
        self.db = sqlite3.connect(Path(directory) / "checkpoints.db", check_same_thread=False)
        self.saver = SqliteSaver(self.db)
        self.saver.setup()

    def close(self) -> None:
        self.db.close()

    def save(self, session: str, state: dict[str, Any]) -> None:
        checkpoint = empty_checkpoint()
        # Ids of checkpoints sort by time; a graph's own do.
        checkpoint["id"] = f"{state['n']:08d}-0000-6000-8000-000000000000"
        checkpoint["channel_values"] = {"state": state}
        checkpoint["channel_versions"] = {"state": state["n"]}
        config = {"configurable": {"thread_id": session, "checkpoint_ns": ""}}
        self.saver.put(
            config, checkpoint, {"source": "loop", "step": state["n"]}, {"state": state["n"]}
        )

    def load(self, session: str) -> dict[str, Any] | None:
        found = self.saver.get_tuple({"configurable": {"thread_id": session}})
        return found.checkpoint["channel_values"]["state"] if found else None

    def history(self, session: str) -> list[dict[str, Any]]:
        found = self.saver.list({"configurable": {"thread_id": session}})
        return [each.checkpoint["channel_values"]["state"] for each in found][::-1]

    def delete(self, session: str) -> None:
        self.saver.delete_thread(session)

    def settings(self) -> dict[str, Any]:
        names = ("journal_mode", "synchronous")
        return {name: self.db.execute(f"PRAGMA {name}").fetchone()[0] for name in names} | {
            "sqlite": sqlite3.sqlite_version
        }
