"""The reference agent as a target: its tools act on the World, its promises become acks.

Runs inside the target's process, so it imports only the agent and the standard library. The keys of a
workload:

    requests   the requests, with the script of the model that answers
    options    cadence, budget, retries: `reference_agent.turn.agent.Options`
    fickle     whether the model answers differently in every life
    failures   {turn: [statuses]} of the model, before it answers
    old        a database of the previous version, to be upgraded when it is opened
    config     the content of an older config file, instead of options; loaded and saved at every start
    rules      {"most": cents, "denied": tool}: hooks cap payments, and deny a tool
    plan       whether a hook makes a plan when the first request begins
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import redirect_stdout
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from chaoskit.inside import Life
from chaoskit_scenarios import inloop
from chaoskit_scenarios.readers import read_checkpoint, read_session
from reference_agent.ids import ids_from
from reference_agent.messages import Message, Plan, Step, unanswered
from reference_agent.providers.base import Answer, ModelError, TextDelta, ToolSpec, can_pass
from reference_agent.providers.scripted import ScriptedProvider
from reference_agent.store import schema
from reference_agent.store.durable import sync_directory
from reference_agent.store.kinds import Location
from reference_agent.store.registry import DEFAULT
from reference_agent.terminal import config as settings
from reference_agent.terminal.screen import Screen
from reference_agent.terminal.setup import agent_options
from reference_agent.turn.agent import Agent
from reference_agent.turn.hooks import AgentStart, Allow, Deny, HookRegistry, ModifyArgs, PreToolUse
from reference_agent.turn.options import Options
from reference_agent.turn.runtime import Runtime
from reference_agent.turn.tools import Args, Tool, Toolbox

SESSION = "session"
msgspec.convert({}, Options)  # the first call is slow: made here, before the fork, for all lives


def main(life: Life) -> None:
    """Open (and so recover) the agent, make all requests, and inspect the result."""
    inloop.run(_main(life))


async def _main(life: Life) -> None:
    database = life.directory / "sessions.db"
    if "old" in life.workload and not database.exists():
        put_old_database(database, life.workload["old"])
    life.probe("found", **found_in(life.directory))
    report_meant(life)
    agent = await open_agent(life)
    if life.number:
        life.probe("recovered", **observe(life))
        if "shown" in life.workload:
            life.probe("shown", shown=shown(agent))
    for number, request in enumerate(life.workload["requests"]):
        with life.operation("say", request=number) as operation:
            operation.result = await agent.say(request["content"], request_id=f"request-{number}")
    await agent.catch_up()
    status = await agent.status()
    await agent.close()
    questions = [[call.tool, call.args] for call in status.open_questions]
    # With a failing disk the agent continues but acknowledges nothing, so this is not the final state.
    if status.degraded:
        life.probe("degraded", waiting=status.waiting, error=status.last_error)
    else:
        seen = observe(life)
        life.probe("end", questions=questions, **seen, **kept(life))


async def open_agent(life: Life) -> Agent:
    options = chosen(life)
    life.probe("cadence", **msgspec.structs.asdict(options.cadence))
    registry = HookRegistry()
    agent = await Agent.open(
        location(life),
        session=SESSION,
        provider=WatchedProvider(life),
        toolbox=toolbox(life),
        runtime=Runtime(
            new_id=ids_from(f"{life.seed}/{life.number}"),
            clock=life.now,
            tell=lambda name, facts: life.ack(name, **facts),
            hooks=registry,
        ),
        options=options,
    )
    install_hooks(registry, agent, life.workload)
    return agent


def location(life: Life) -> Location:
    return Location(life.directory, life.store or DEFAULT, inloop.connect)


def chosen(life: Life) -> Options:
    """The workload's options, or those of the older config file that it installs and upgrades."""
    if "config" not in life.workload:
        return msgspec.convert(life.workload.get("options", {}), Options)
    path = life.directory / "config.json"
    if not path.exists():
        put_file(path, json.dumps(life.workload["config"]).encode())
    config = settings.load(path)
    settings.save(config, path, mark="upgrade")
    return agent_options(config)


def install_hooks(registry: HookRegistry, agent: Agent, work: Any) -> None:
    def judge(event: PreToolUse) -> Allow | Deny | ModifyArgs:
        args = permitted(work["rules"], event.tool_name, event.args)
        if args is None:
            return Deny("against the rules")
        return Allow() if args == event.args else ModifyArgs(args)

    def make_plan(event: AgentStart) -> None:
        if agent.plan is None:  # once: later requests and later lives find the existing plan
            agent.plan = Plan((Step(event.task, evidence="begun"), Step("the rest")))

    if "rules" in work:
        registry.register(PreToolUse, judge)
    if "plan" in work:
        registry.register(AgentStart, make_plan)


def permitted(rules: Any, tool: str, args: Args) -> Args | None:
    """The arguments that the rules permit for a call; None if they deny it."""
    if tool == rules.get("denied"):
        return None
    if "most" in rules and "cents" in args:
        return {**args, "cents": min(args["cents"], rules["most"])}
    return args


# A tool's effect on the World, and whether two calls with the same arguments are two effects.
ACTS = {
    "pay": ("payments", "pay", False),
    "mail": ("mail", "send", False),
    "post": ("board", "post", False),
    "tip": ("payments", "pay", True),
}


# Services that tell what became of an interrupted call: one honours keys, the other can be asked.
SETTLED_BY = ("payments", "mail")


def report_meant(life: Life) -> None:
    life.probe("meant", effects=meant(life.workload), verifiable=SETTLED_BY)


def meant(work: Any) -> list[list[Any]]:
    """Every effect that the requests ask for: the undisturbed run is not always right."""
    effects: list[list[Any]] = []
    wanted = (request for request in work["requests"] if request.get("then") != "supersede")
    for step in (step for request in wanted for turn in request["steps"] for step in turn):
        args = permitted(work.get("rules", {}), step["tool"], step["args"])
        if step["tool"] in ACTS and args is not None:
            service, action, each_counts = ACTS[step["tool"]]
            effect = [service, action, args]
            if each_counts or effect not in effects:
                effects.append(effect)
    return effects


class WatchedProvider:
    """The scripted model; reports each request to the harness, with the conversation it contained."""

    name = "scripted"
    model = "scripted-1"

    def __init__(self, life: Life) -> None:
        work = life.workload
        self._told: list[Message] = []
        self._life = life
        self._failures = {int(turn): statuses for turn, statuses in work.get("failures", {}).items()}
        fickle = f"{life.seed}/{life.number}" if work.get("fickle") else None
        self._model = ScriptedProvider(work.get("script", work["requests"]), fickle=fickle)

    async def complete(
        self, conversation: Sequence[Message], *, system: str, tools: Sequence[ToolSpec]
    ) -> Answer:
        turn = 1 + sum(message.role == "assistant" for message in conversation)
        orphans = [call.id for call in unanswered(list(conversation))]
        # Messages unchanged since the last request are not reported again: they are most of the
        # conversation.
        same = len(self._told) if list(conversation[: len(self._told)]) == self._told else 0
        said = list(map(as_told, conversation[same:]))
        self._told = list(conversation)
        self._life.probe("asked", turn=turn, orphans=orphans, after=same, said=said)
        if failures := self._failures.get(turn, []):
            # Requests are counted outside: the model's failures do not end with our process.
            asked = self._life.call("model", "ask", turn=turn)["times"]
            if asked <= len(failures):
                status = failures[asked - 1]
                raise ModelError(f"HTTP {status}", retryable=can_pass(status), status=status)
        answer = await self._model.complete(conversation, system=system, tools=tools)
        tokens = answer.usage.input_tokens + answer.usage.output_tokens
        self._life.probe("answered", turn=turn, tokens=tokens)
        return answer

    def stream(
        self, conversation: Sequence[Message], *, system: str, tools: Sequence[ToolSpec]
    ) -> AsyncIterator[TextDelta | Answer]:
        return self._model.stream(conversation, system=system, tools=tools)


def as_told(message: Message) -> str:
    """All of a message that the model sees; a long one by its beginning and its hash."""
    text = msgspec.json.encode(message).decode()
    if len(text) <= 400:
        return text
    return f"{text[:200]}... ({blake2b(text.encode(), digest_size=8).hexdigest()})"


def toolbox(life: Life, *more: Tool) -> Toolbox:
    async def lookup(args: Args, _key: str) -> str:
        return f"{args['customer']} is a customer"

    async def pay(args: Args, key: str) -> str:
        return f"paid, {life.call('payments', 'pay', key=key, **args)['receipt']}"

    async def mail(args: Args, key: str) -> str:
        return f"sent, {life.call('mail', 'send', key=key, **args)['receipt']}"

    async def was_mailed(_args: Args, key: str) -> str | None:
        found = life.call("mail", "happened", key=key)
        return f"sent, {found['receipt']}" if found else None

    async def post(args: Args, _key: str) -> str:  # the board has no idempotency keys
        return f"posted, {life.call('board', 'post', **args)['receipt']}"

    async def fail(args: Args, _key: str) -> str:
        raise ValueError(args["reason"])

    async def hang(_args: Args, _key: str) -> str:
        await asyncio.Event().wait()
        return "never"

    async def big(args: Args, _key: str) -> str:
        return "x" * int(args["size"])

    return Toolbox(
        [
            Tool(name="lookup", run=lookup),
            Tool(name="pay", run=pay, mutating=True, repeatable=True),
            Tool(name="mail", run=mail, mutating=True, verify=was_mailed),
            Tool(name="post", run=post, mutating=True),
            Tool(name="tip", run=pay, mutating=True, repeatable=True, key=lambda _args, call_id: call_id),
            Tool(name="fail", run=fail),
            Tool(name="hang", run=hang, deadline=30.0),
            Tool(name="big", run=big),
            *more,
        ]
    )


def put_old_database(
    path: Path, messages: list[list[Any]], session: str = SESSION, turns: Sequence[int] | None = None
) -> None:
    """A database as an older release left it: no checkpoints, no attempts."""
    db = sqlite3.connect(":memory:")
    db.executescript(schema.V1)
    db.execute("INSERT INTO sessions VALUES (?, 'agent', 'old-model', 'old-provider', 1)", (session,))
    for number, (role, content, calls) in enumerate(messages):
        turn = turns[number] if turns else number // 2
        db.execute(
            "INSERT INTO messages (session_id, agent_id, turn, role, content, tool_args, created_at)"
            " VALUES (?, 'agent', ?, ?, ?, ?, 1)",
            (session, turn, role, content, calls),
        )
    db.execute("INSERT INTO errors VALUES (NULL, ?, 'agent', 0, 'llm_stream', 'old', 1)", (session,))
    db.execute("PRAGMA user_version = 1")
    db.commit()
    put_file(path, db.serialize())
    db.close()


def put_file(path: Path, content: bytes) -> None:
    """Write the file atomically."""
    aside = path.with_suffix(".old")
    with aside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    sync_directory(path.parent)


class Wall(io.StringIO):
    """A stream that keeps each text separate."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def write(self, text: str) -> int:
        self.texts.append(text)
        return len(text)


def shown(agent: Agent) -> list[str]:
    """What the chat shows of a resumed session: its own screen, one text per item."""
    with redirect_stdout(Wall()) as wall:
        Screen().follow(agent.conversation)
    return wall.texts


def kept(life: Life) -> dict[str, Any]:
    """Plan and budget of the last checkpoint, where the workload asks for a plan."""
    if "plan" not in life.workload:
        return {}
    return {"kept": read_checkpoint(life.directory, life.store or DEFAULT, SESSION)}


def found_in(directory: Path) -> dict[str, Any]:
    """The snapshot and the length of the log, before anything has touched either."""
    snapshot = directory / f"{SESSION}.json"
    log = directory / f"{SESSION}.messages.jsonl"
    return {
        "snapshot": snapshot.read_text(errors="replace") if snapshot.exists() else None,
        "lines": log.read_bytes().count(b"\n") if log.exists() else 0,
    }


def observe(life: Life) -> dict[str, Any]:
    """The session as it is on disk."""
    return read_session(life.directory, life.store or DEFAULT, SESSION)
