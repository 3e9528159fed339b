# /// script
# requires-python = ">=3.11"
# dependencies = ["crewai>=1"]
# ///
"""CrewAI's SQLiteFlowPersistence: the state of a flow after each of its methods, by the flow's id."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

os.environ["CREWAI_DISABLE_TELEMETRY"] = "true"  # otherwise the import starts threads
os.environ["OTEL_SDK_DISABLED"] = "true"

from crewai.flow.persistence.sqlite import SQLiteFlowPersistence

DOCS = "https://docs.crewai.com/en/concepts/flows"


class Sqlite:
    """CrewAI SQLiteFlowPersistence, a connection for each call, one file"""

    style = "snapshot"
    unit = "one save_state(): the state after one method"
    callers = "threads"
    promises = {
        "durable": ("a flow's state is kept across restarts", DOCS),
        "loadable": ("the persisted state is loaded again when a flow is started with its id", DOCS),
        "continues": ("a flow continues from its persisted state", DOCS),
        "isolated": ("every flow state has an id of its own, by which it is saved and loaded", DOCS),
    }

    def open(self, directory: str) -> None:
        self.place = str(Path(directory) / "flow_states.db")
        self.flows = SQLiteFlowPersistence(self.place)

    def close(self) -> None:
        pass

    def save(self, session: str, state: dict[str, Any]) -> None:
        self.flows.save_state(session, "step", {"id": session, "state": state})

    def load(self, session: str) -> dict[str, Any] | None:
        found = self.flows.load_state(session)
        return found["state"] if found else None

    def settings(self) -> dict[str, Any]:
        with closing(sqlite3.connect(self.place)) as db:  # the library opens one for each call
            names = ("journal_mode", "synchronous")
            return {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in names} | {
                "sqlite": sqlite3.sqlite_version
            }
