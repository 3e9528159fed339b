"""Reader of the store `files`: the lines of the logs, as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chaoskit_scenarios.readers import Reader


def read_session(_directory: Path, _store: str, _session: str, lines: Sequence[str]) -> dict[str, Any]:
    events = [event for line in lines if (event := whole(line))]
    of: dict[str, list[Any]] = {}
    messages: list[tuple[int, list[Any]]] = []
    for event in events:
        kind, _, role = event["kind"].partition(".")
        of.setdefault(event["kind"], []).append(event)
        if kind == "message":
            row = [role, event["content"], compact(event["calls"]) if "calls" in event else None]
            messages.append((number(event["message_id"]), row))
        elif event["kind"] == "messages.rolled_back":
            last = number(event["last_message_id"])
            messages = [message for message in messages if message[0] <= last]
    checkpoints = of.get("checkpoint.written", [])
    answers = {each["request_id"]: None for each in of.get("request.accepted", [])}
    answers |= {each["request_id"]: each["answer"] for each in of.get("request.answered", [])}
    calls = {each["call_id"]: "issued" for each in of.get("call.issued", [])}
    ended = (*of.get("call.finished", []), *of.get("call.read", []))
    checkpoint = max((number(each["last_message_id"]) for each in checkpoints), default=None)
    return {
        "messages": [row for _id, row in messages],
        "answers": answers,
        "checkpoint": checkpoint,
        "versions": [max((c["version"] for c in checkpoints), default=None), len(checkpoints)],
        "usage": [
            [each["turn"], each["input_tokens"] + each["output_tokens"]]
            for each in of.get("decision.recorded", [])
        ],
        "errors": [[each["turn"], each["attempt"]] for each in of.get("error.recorded", [])],
        "checkpoints": [each["version"] for each in checkpoints],
        "beyond": 0 if checkpoint is None else sum(id_ > checkpoint for id_, _ in messages),
        "calls": calls | {each["call_id"]: each["status"] for each in ended},
    }


def whole(line: str) -> dict[str, Any] | None:
    """A line that is not an event is left to `prefix-log`."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "kind" in event else None


def number(message_id: str) -> int:
    return int(message_id.removeprefix("msg_"))


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def read_checkpoint(_directory: Path, _store: str, lines: Sequence[str]) -> dict[str, Any]:
    events = [event for line in lines if (event := whole(line))]
    written = [event for event in events if event["kind"] == "checkpoint.written"]
    plans = {e["plan"]: e["plan_content"] for e in written if e.get("plan_content")}
    return {"plan": plans.get(written[-1].get("plan")), "spent": written[-1]["spent_tokens"]}


def read_daemon(directory: Path, _store: str) -> dict[str, Any]:
    """All lines of all segments; the snapshots in them add nothing new."""
    agents: dict[str, dict[str, Any]] = {}
    parents: dict[str, str | None] = {}
    messages: dict[str, dict[str, Any]] = {}
    log: list[str] = []
    events: list[dict[str, Any]] = []
    for path in sorted(directory.glob("daemon.*.jsonl")):
        # Not str.splitlines: a line of JSON may contain U+2028 and other characters that it splits at.
        lines = [line.decode() for line in path.read_bytes().splitlines(keepends=True)]
        found = list(map(json.loads, lines))
        # Each segment counts from 1; the log is their concatenation.
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


READER = Reader(session=read_session, checkpoint=read_checkpoint, daemon=read_daemon)
