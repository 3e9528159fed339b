"""Reader of the store `sqlite`: plain SQL over a read-only connection."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chaoskit_scenarios.readers import Reader

MESSAGES = """
SELECT message_id, sender, receiver, outcome, number FROM settled UNION ALL
SELECT message_id, sender, receiver, NULL, number FROM messages ORDER BY number
"""


def reader_of(sessions: str, daemon: str) -> Reader:
    """For a store that has its tables in these two files of the state directory."""

    def read_session(directory: Path, _store: str, session: str, _lines: Sequence[str]) -> dict[str, Any]:
        with _opened(directory / sessions) as db:
            return _session(db, session)

    def read_checkpoint(directory: Path, _store: str, _lines: Sequence[str]) -> dict[str, Any]:
        with _opened(directory / sessions) as db:
            plan, spent = db.execute(
                "SELECT content, spent_tokens FROM checkpoints LEFT JOIN plans ON hash = plan"
                " ORDER BY version DESC LIMIT 1"
            ).fetchone()
        return {"plan": json.loads(plan or "null"), "spent": spent}

    def read_daemon(directory: Path, _store: str) -> dict[str, Any]:
        with _opened(directory / daemon) as db:
            return _daemon(db)

    return Reader(session=read_session, checkpoint=read_checkpoint, daemon=read_daemon)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        yield db
    finally:
        db.close()


def _session(db: sqlite3.Connection, session: str) -> dict[str, Any]:
    def rows(columns: str, table: str, order: str = "rowid", more: str = "", *args: Any) -> list[Any]:
        query = f"SELECT {columns} FROM {table} WHERE session_id = ? {more} ORDER BY {order}"  # noqa: S608
        return db.execute(query, (session, *args)).fetchall()

    messages = rows("role, content, tool_args", "messages", "id")
    answers = rows("request_id, answer", "requests")
    (found,) = rows("MAX(last_msg_id), MAX(version), COUNT(*)", "checkpoints", "1")
    usage = rows("turn, input_tokens + output_tokens", "token_usage")
    errors = rows("turn, attempt", "errors", "id")
    versions = rows("version", "checkpoints", "id")
    ((beyond,),) = rows("COUNT(*)", "messages", "1", "AND id > ?", found[0] or 0)
    calls = rows("call_id, status", "tool_calls")
    return {
        "messages": messages,
        "answers": dict(answers),
        "checkpoint": found[0],
        "versions": list(found[1:]),
        "usage": usage,
        "errors": errors,
        "checkpoints": [version for (version,) in versions],
        "beyond": 0 if found[0] is None else beyond,
        "calls": dict(calls),
    }


def _daemon(db: sqlite3.Connection) -> dict[str, Any]:
    agents = db.execute("SELECT agent_id, state, blob FROM agents").fetchall()
    links = db.execute("SELECT child, parent FROM links").fetchall()
    messages = db.execute(MESSAGES).fetchall()
    # The immutable part of a message is the log. A workload sends too few messages for any to be forgotten.
    log = [
        json.dumps({"seq": number, "id": id_, "sender": sender, "receiver": receiver}) + "\n"
        for id_, sender, receiver, _, number in messages
    ]
    return {
        "agents": {agent: {"state": state, "blob": blob} for agent, state, blob in agents},
        "parents": dict(links),
        "messages": {message[0]: {"outcome": message[3]} for message in messages},
        "log": log,
    }


READER = reader_of("sessions.db", "daemon.db")
