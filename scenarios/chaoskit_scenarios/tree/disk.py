"""What a daemon has left on disk, read without any of its code: an oracle must not share its mistakes."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

MESSAGES = """
SELECT message_id, sender, receiver, outcome, number FROM settled UNION ALL
SELECT message_id, sender, receiver, NULL, number FROM messages ORDER BY number
"""


def look(directory: Path, store: str | None) -> dict[str, Any]:
    """`agents` (state and turns), `parents`, `messages` (with outcomes), `log`, and `damage`."""
    found = _files(directory) if store == "files" else _sqlite(directory)
    damage: list[str] = []
    for agent, record in found["agents"].items():
        try:
            turns = json.loads(record.pop("blob"))["turns"]
            record["turns"] = [[turn["message_id"], turn["reply"]] for turn in turns]
        except (ValueError, KeyError, TypeError) as error:
            record["turns"] = []
            damage.append(f"the blob of {agent} cannot be read: {error!r}")
    return {**found, "damage": damage}


def _sqlite(directory: Path) -> dict[str, Any]:
    place = f"file:{directory / 'daemon.db'}?mode=ro"
    with closing(sqlite3.connect(place, uri=True)) as database:
        agents = database.execute("SELECT agent_id, state, blob FROM agents").fetchall()
        links = database.execute("SELECT child, parent FROM links").fetchall()
        messages = database.execute(MESSAGES).fetchall()
    # The part of a message that never changes is the log. A workload has fewer than are ever forgotten.
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


def _files(directory: Path) -> dict[str, Any]:
    """All lines of all segments; the snapshots in them say nothing new."""
    agents: dict[str, dict[str, Any]] = {}
    parents: dict[str, str | None] = {}
    messages: dict[str, dict[str, Any]] = {}
    log: list[str] = []
    events: list[dict[str, Any]] = []
    for path in sorted(directory.glob("daemon.*.jsonl")):
        # Not str.splitlines: a line of JSON may contain U+2028 and others that it takes for its end.
        lines = [line.decode() for line in path.read_bytes().splitlines(keepends=True)]
        found = list(map(json.loads, lines))
        # Each segment counts from 1; the log is all of them.
        log += (
            lines
            if not log
            else [json.dumps({**event, "seq": event["seq"] + len(log)}) + "\n" for event in found]
        )
        events += found
    for event in events:
        kind = event["kind"]
        if kind == "session.recorded":
            record = event["record"]
            agents[record["agent_id"]] = {"state": record["state"], "blob": record["blob"]}
        elif kind == "session.removed":
            del agents[event["agent_id"]]
        elif kind == "tree.linked":
            parents[event["agent_id"]] = event["parent"]
        elif kind == "tree.stopped":
            for agent in event["agents"]:
                agents[agent]["state"] = "STOPPED"
        elif kind == "session.resumed":
            agents[event["agent_id"]]["state"] = "ACTIVE"
        elif kind == "session.suspended":
            agents[event["agent_id"]] = {"state": "SUSPENDED", "blob": event["blob"]}
        elif kind == "send.completed":
            agents[event["agent_id"]]["blob"] = event["blob"]
        elif kind == "message.enqueued":
            messages[event["message"]["message_id"]] = {"outcome": None}
        elif kind == "message.delivered":
            messages[event["message_id"]]["outcome"] = event["outcome"]
    return {"agents": agents, "parents": parents, "messages": messages, "log": log}
