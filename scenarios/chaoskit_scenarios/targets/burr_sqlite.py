# /// script
# requires-python = ">=3.11"
# dependencies = ["burr>=0.40"]
# ///
"""Burr's SQLitePersister: the state of an application after each action, by its sequence id.

An application that restarts loads the latest state and continues from there: it does not save a sequence id
that already exists.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from burr.core import State
from burr.core.persistence import SQLitePersister

DOCS = "https://burr.dagworks.io/concepts/state-persistence"
API = "https://burr.dagworks.io/reference/persister"


class Sqlite:
    """Burr SQLitePersister, one connection, one file"""

    style = "history"
    unit = "one save(): the state after one action"
    promises = {
        "durable": ("state is saved after each action and loaded again if the process fails", DOCS),
        "loadable": ("an application is restarted where it left off", DOCS),
        "continues": ("an application continues from there", DOCS),
        "isolated": ("an app_id identifies an application in the persistence layer", DOCS),
        "immutable": ("the state of a given sequence id can be loaded, and forked from", API),
    }

    def open(self, directory: str) -> None:
        self.persister = SQLitePersister.from_values(str(Path(directory) / "burr.db"))
        self.persister.initialize()

    def close(self) -> None:
        self.persister.connection.close()

    def _load(self, session: str, n: int | None = None) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.persister.load("user", session, sequence_id=n)
        return found

    def save(self, session: str, state: dict[str, Any]) -> None:
        if self._load(session, state["n"]):
            return
        new = State({"state": state})
        self.persister.save("user", session, state["n"], "act", new, "completed")

    def load(self, session: str) -> dict[str, Any] | None:
        found = self._load(session)
        return found["state"]["state"] if found else None

    def history(self, session: str) -> list[dict[str, Any]]:
        latest = self._load(session)
        numbers = range(1, latest["sequence_id"] + 1) if latest else ()
        found = (self._load(session, n) for n in numbers)
        return [each["state"]["state"] for each in found if each]

    def settings(self) -> dict[str, Any]:
        db = self.persister.connection
        names = ("journal_mode", "synchronous")
        return {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in names} | {
            "sqlite": sqlite3.sqlite_version
        }
