"""The reference agent as a target: its tools act on the World, its promises become acks.

Runs inside the target's process, so it imports only the agent and what is in the standard library.
What a workload may say:

    requests   what is asked, with the script of the model that answers
    options    cadence, budget, retries: `reference_agent.agent.Options`
    fickle     whether the model answers differently in every life
    failures   {turn: [statuses]} of the model, before it answers
    old        a database of the version before, to be upgraded when it is opened
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from chaoskit.inside import Life
from reference_agent.agent import Agent, Options
from reference_agent.files import sync_directory
from reference_agent.ids import ids_from
from reference_agent.messages import Message, unanswered
from reference_agent.providers.base import Answer, ModelError, TextDelta, ToolSpec, can_pass
from reference_agent.providers.scripted import ScriptedProvider
from reference_agent.store import StoreKind, schema
from reference_agent.tools import Args, Tool, Toolbox
from scenarios import inloop

SESSION = "session"
msgspec.convert({}, Options)  # the first time takes a while: here, before the fork, for all lives


def main(life: Life) -> None:
    """Open (and so recover) the agent, ask everything that there is to ask, and look at the result."""
    inloop.run(_main(life))


async def _main(life: Life) -> None:
    database = life.directory / "sessions.db"
    if "old" in life.workload and not database.exists():
        put_old_database(database, life.workload["old"])
    life.probe("meant", effects=meant(life.workload))
    agent = await open_agent(life)
    if life.number:
        life.probe("recovered", **observe(life.directory, life.store))
    for number, request in enumerate(life.workload["requests"]):
        with life.operation("say", request=number) as operation:
            operation.result = await agent.say(request["content"], request_id=f"request-{number}")
    await agent.catch_up()
    status = await agent.status()
    await agent.close()
    questions = [[call.tool, call.args] for call in status.open_questions]
    # With a failing disk the agent goes on, but claims nothing; then this is not the end of the story.
    if status.degraded:
        life.probe("degraded", waiting=status.waiting, error=status.last_error)
    else:
        life.probe("end", questions=questions, **observe(life.directory, life.store))


async def open_agent(life: Life) -> Agent:
    options = msgspec.convert(life.workload.get("options", {}), Options)
    return await Agent.open(
        life.directory,
        session=SESSION,
        provider=WatchedProvider(life),
        toolbox=toolbox(life),
        new_id=ids_from(f"{life.seed}/{life.number}"),
        clock=life.now,
        tell=lambda name, facts: life.ack(name, **facts),
        options=options,
        store=msgspec.convert(life.store, StoreKind),
        connect=inloop.connect,
    )


# What a tool does to the World, and whether two calls with the same arguments are meant as two.
ACTS = {"pay": ("payments", "pay", False), "mail": ("mail", "send", False),
        "post": ("board", "post", False), "tip": ("payments", "pay", True)}  # fmt: skip


def meant(work: Any) -> list[list[Any]]:
    """Every effect that the requests ask for: what happens without a crash is not always right."""
    effects: list[list[Any]] = []
    for step in (
        step for request in work["requests"] for turn in request["steps"] for step in turn
    ):
        if step["tool"] in ACTS:
            service, action, each_counts = ACTS[step["tool"]]
            effect = [service, action, step["args"]]
            if each_counts or effect not in effects:
                effects.append(effect)
    return effects


class WatchedProvider:
    """The scripted model; tells the harness each time that it is asked, and of what state."""

    name = "scripted"
    model = "scripted-1"

    def __init__(self, life: Life) -> None:
        work = life.workload
        self._life = life
        self._failures = {
            int(turn): statuses for turn, statuses in work.get("failures", {}).items()
        }
        fickle = f"{life.seed}/{life.number}" if work.get("fickle") else None
        self._model = ScriptedProvider(work.get("script", work["requests"]), fickle=fickle)

    async def complete(
        self, conversation: Sequence[Message], *, system: str, tools: Sequence[ToolSpec]
    ) -> Answer:
        turn = 1 + sum(message.role == "assistant" for message in conversation)
        orphans = [call.id for call in unanswered(list(conversation))]
        self._life.probe("asked", turn=turn, orphans=orphans)
        if failures := self._failures.get(turn, []):
            # How often it was asked is known outside: a model's troubles do not end with our process.
            asked = self._life.call("model", "ask", turn=turn)["times"]
            if asked <= len(failures):
                status = failures[asked - 1]
                raise ModelError(f"HTTP {status}", retryable=can_pass(status), status=status)
        return await self._model.complete(conversation, system=system, tools=tools)

    def stream(
        self, conversation: Sequence[Message], *, system: str, tools: Sequence[ToolSpec]
    ) -> AsyncIterator[TextDelta | Answer]:
        return self._model.stream(conversation, system=system, tools=tools)


def toolbox(life: Life) -> Toolbox:
    async def lookup(args: Args, key: str) -> str:  # noqa: ARG001 - the signature of every tool
        return f"{args['customer']} is a customer"

    async def pay(args: Args, key: str) -> str:
        return f"paid, {life.call('payments', 'pay', key=key, **args)['receipt']}"

    async def mail(args: Args, key: str) -> str:
        return f"sent, {life.call('mail', 'send', key=key, **args)['receipt']}"

    async def was_mailed(args: Args, key: str) -> str | None:  # noqa: ARG001
        found = life.call("mail", "happened", key=key)
        return f"sent, {found['receipt']}" if found else None

    async def post(args: Args, key: str) -> str:  # noqa: ARG001 - the board knows no keys
        return f"posted, {life.call('board', 'post', **args)['receipt']}"

    async def fail(args: Args, key: str) -> str:  # noqa: ARG001
        raise ValueError(args["reason"])

    async def hang(args: Args, key: str) -> str:  # noqa: ARG001
        await asyncio.Event().wait()
        return "never"

    async def big(args: Args, key: str) -> str:  # noqa: ARG001
        return "x" * int(args["size"])

    return Toolbox([
        Tool(name="lookup", run=lookup),
        Tool(name="pay", run=pay, mutating=True, repeatable=True),
        Tool(name="mail", run=mail, mutating=True, verify=was_mailed),
        Tool(name="post", run=post, mutating=True),
        Tool(name="tip", run=pay, mutating=True, repeatable=True, key=lambda _args, call_id: call_id),
        Tool(name="fail", run=fail),
        Tool(name="hang", run=hang, deadline=30.0),
        Tool(name="big", run=big),
    ])  # fmt: skip


def put_old_database(path: Path, messages: list[list[Any]]) -> None:
    """What an older release left behind: no checkpoints, no attempts. All of it, or nothing."""
    db = sqlite3.connect(":memory:")
    db.executescript(schema.V1)
    db.execute(
        "INSERT INTO sessions VALUES (?, 'agent', 'old-model', 'old-provider', 1)", (SESSION,)
    )
    for turn, (role, content, calls) in enumerate(messages):
        db.execute(
            "INSERT INTO messages (session_id, agent_id, turn, role, content, tool_args, created_at)"
            " VALUES (?, 'agent', ?, ?, ?, ?, 1)", (SESSION, turn // 2, role, content, calls),
        )  # fmt: skip
    db.execute(
        "INSERT INTO errors VALUES (NULL, ?, 'agent', 0, 'llm_stream', 'old', 1)", (SESSION,)
    )
    db.execute("PRAGMA user_version = 1")
    db.commit()
    aside = path.with_suffix(".old")
    with aside.open("wb") as file:
        file.write(db.serialize())
        file.flush()
        os.fsync(file.fileno())
    db.close()
    aside.replace(path)
    sync_directory(path.parent)


# --- what is on disk, read without any of the agent's own code


def observe(directory: Path, store: str | None, session: str = SESSION) -> dict[str, Any]:
    content = (directory / f"{session}.messages.jsonl").read_bytes()
    # Not str.splitlines: a line of JSON may contain U+2028 and others that it takes for its end.
    lines = [line.decode(errors="replace") for line in content.splitlines(keepends=True)]
    found = in_files(lines) if store == "files" else in_database(directory / "sessions.db")
    return {**found, "log": lines}


def in_database(path: Path) -> dict[str, Any]:
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        query = "SELECT role, content, tool_args FROM messages ORDER BY id"
        messages = db.execute(query).fetchall()
        answers = db.execute("SELECT request_id, answer FROM requests ORDER BY rowid").fetchall()
        found = db.execute(
            "SELECT MAX(last_msg_id), MAX(version), COUNT(*) FROM checkpoints"
        ).fetchone()
        usage = db.execute("SELECT turn, input_tokens + output_tokens FROM token_usage").fetchall()
        errors = db.execute("SELECT turn, attempt FROM errors ORDER BY id").fetchall()
    finally:
        db.close()
    return {
        "messages": messages,
        "answers": dict(answers),
        "checkpoint": found[0],
        "versions": list(found[1:]),
        "usage": usage,
        "errors": errors,
    }


def in_files(lines: Sequence[str]) -> dict[str, Any]:
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
    return {
        "messages": [row for _id, row in messages],
        "answers": answers,
        "checkpoint": max((number(each["last_message_id"]) for each in checkpoints), default=None),
        "versions": [max((c["version"] for c in checkpoints), default=None), len(checkpoints)],
        "usage": [
            [each["turn"], each["input_tokens"] + each["output_tokens"]]
            for each in of.get("decision.recorded", [])
        ],
        "errors": [[each["turn"], each["attempt"]] for each in of.get("error.recorded", [])],
    }


def whole(line: str) -> dict[str, Any] | None:
    """A line that is no event is for `prefix-log` to judge."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "kind" in event else None


def number(message_id: str) -> int:
    return int(message_id.removeprefix("msg_"))


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
