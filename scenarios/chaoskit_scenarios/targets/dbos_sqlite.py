# /// script
# requires-python = ">=3.11"
# dependencies = ["dbos>=2"]
# ///
"""DBOS on SQLite: each save is a workflow with its own id, whose single step returns the state.

The ids sort in the order of the saves, because DBOS stores creation times only to the second.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID

DOCS = "https://docs.dbos.dev/python/programming-guide"
WORKFLOWS = "https://docs.dbos.dev/python/tutorials/workflow-tutorial"


@DBOS.step()
def record(state: dict[str, Any]) -> dict[str, Any]:
    return state


@DBOS.workflow()
def keep(state: dict[str, Any]) -> dict[str, Any]:
    return record(state)


def _with_prefix(prefix: str, status: str) -> list[Any]:
    """On SQLite, DBOS compares prefixes without regard to case."""
    found = DBOS.list_workflows(workflow_id_prefix=prefix, status=status)
    return [each for each in found if each.workflow_id.startswith(prefix)]


class Sqlite:
    """DBOS on SQLite, a workflow per save"""

    style = "workflow"
    unit = "one workflow: its input, the result of its step, and its own"
    promises = {
        "durable": ("the state of workflows and steps is stored in the system database", DOCS),
        "loadable": ("after a crash, workflows are recovered from their last completed step", DOCS),
        "continues": ("an application is resilient to any failure", DOCS),
        "idempotent": ("a workflow runs once per id, however often it is called", WORKFLOWS),
    }
    saves = 12
    largest = 100_000

    def open(self, directory: str) -> None:
        self.path = Path(directory) / "dbos.sqlite"
        DBOS(
            config={
                "name": "chaoskit",
                "system_database_url": f"sqlite:///{self.path}",
                "run_admin_server": False,
                "log_level": "CRITICAL",
            }
        )
        DBOS.launch()

    def settle(self) -> None:
        """Wait for interrupted workflows, which DBOS enqueues and runs from there."""
        while DBOS.list_workflows(status=["PENDING", "ENQUEUED"]):
            time.sleep(0.02)

    def close(self) -> None:
        DBOS.destroy()

    def save(self, session: str, state: dict[str, Any]) -> None:
        name = f"{session}/{state['n']:08d}"
        failed = _with_prefix(f"{name}.", "ERROR")
        # A workflow that ended in an error is final: a retry needs another id.
        with SetWorkflowID(f"{name}.{len(failed)}"):
            keep(state)

    def load(self, session: str) -> dict[str, Any] | None:
        return (self.history(session) or [None])[-1]

    def history(self, session: str) -> list[Any]:
        found = _with_prefix(f"{session}/", "SUCCESS")
        return [each.output for each in sorted(found, key=lambda each: each.workflow_id)]

    def settings(self) -> dict[str, Any]:
        """The settings of a new connection: DBOS sets neither."""
        db = sqlite3.connect(self.path)
        names = ("journal_mode", "synchronous")
        found = {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in names}
        db.close()
        return found | {"sqlite": sqlite3.sqlite_version}
