"""The reference agent as a target: its tools act on the World, its promises become acks.

Runs inside the target's process, so it imports only the agent and what is in the standard library.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from chaoskit.inside import Life
from reference_agent.agent import Agent
from reference_agent.ids import ids_from
from reference_agent.model import ScriptedModel
from reference_agent.tools import Args, Tool, Toolbox
from scenarios import inloop

SESSION = "session"


async def main(life: Life) -> None:
    """Open (and so recover) the agent, ask everything that there is to ask, and look at the result."""
    agent = await open_agent(life)
    if life.number:
        life.probe("recovered", **observe(life.directory))
    for number, request in enumerate(life.workload["requests"]):
        with life.operation("say", request=number) as operation:
            operation.result = await agent.say(request["content"], request_id=f"request-{number}")
    await agent.close()
    life.probe("end", **observe(life.directory))


async def open_agent(life: Life) -> Agent:
    return await Agent.open(
        life.directory,
        session=SESSION,
        model=ScriptedModel(life.workload["requests"]),
        toolbox=toolbox(life),
        new_id=ids_from(f"{life.seed}/{life.number}"),
        clock=life.now,
        tell=lambda name, facts: life.ack(name, **facts),
        connect=inloop.connect,
    )


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

    return Toolbox([
        Tool(name="lookup", run=lookup),
        Tool(name="pay", run=pay, mutating=True, repeatable=True),
        Tool(name="mail", run=mail, mutating=True, verify=was_mailed),
    ])  # fmt: skip


def observe(directory: Path) -> dict[str, Any]:
    """What is on disk, read without any of the agent's own code."""
    db = sqlite3.connect(f"file:{directory / 'sessions.db'}?mode=ro", uri=True)
    try:
        messages = db.execute(
            "SELECT role, content, tool_args FROM messages ORDER BY id"
        ).fetchall()
        answers = db.execute("SELECT request_id, answer FROM requests ORDER BY rowid").fetchall()
    finally:
        db.close()
    log = directory / f"{SESSION}.messages.jsonl"
    return {
        "messages": messages,
        "answers": dict(answers),
        "log": log.read_bytes().decode(errors="replace").splitlines(keepends=True),
    }
