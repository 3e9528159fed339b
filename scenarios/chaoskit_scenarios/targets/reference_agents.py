"""The complete reference agent: sessions that survive being killed, resumed by repeating the same request.

A payment may be repeated, because the service recognises its key. A mail can be neither repeated nor
queried: an interrupted one becomes an open question to the user, and is never blindly sent again.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from chaoskit_scenarios import inloop
from reference_agent.messages import Message, ToolCall
from reference_agent.providers.base import Answer, TextDelta, ToolSpec, Usage
from reference_agent.store.kinds import Location
from reference_agent.turn.agent import Agent
from reference_agent.turn.calls import Waits
from reference_agent.turn.runtime import Results, Runtime, nothing_yet
from reference_agent.turn.tools import Args, Tool, Toolbox

GUARANTEES = "reference_agent/__init__.py"
REQUEST = "request"
APPROVAL = ToolCall("approval_1", "approval", {})


class Sqlite:
    """The reference agent on SQLite"""

    unit = "one write to its journal: a decision, an issued call, or its result"
    promises = {
        "resumes": ("an accepted request is fulfilled after any crash (G1)", GUARANTEES),
        "effects-kept": ("an issued call is settled or reported as unknown (G5)", GUARANTEES),
        "effects-once": (
            "a completed call is never run again, an interrupted one never blindly (G4, G5)",
            GUARANTEES,
        ),
        "surfaced": ("if the outcome of a call is unknown, the user is asked (G5)", GUARANTEES),
        "same-answer": ("the model is never asked for a decision again (G3)", GUARANTEES),
        "model-once": ("a decision is durable before it is acted upon (G3)", GUARANTEES),
        "no-orphan": ("recovery removes incomplete turns (G2)", GUARANTEES),
        "valid": ("a line is durable before it counts; a damaged database is reported (G6, G9)", GUARANTEES),
        "consume-once": ("one process per session: the second is refused (G9)", GUARANTEES),
    }
    store = "sqlite"

    async def start(self, directory: str, world: Any) -> str:
        agent = await self._open(directory, world)
        try:
            return await agent.say(world.task, request_id=REQUEST)
        finally:
            await agent.close()

    async def resume(self, directory: str, world: Any) -> str:
        """Repeat the same request: this resumes it, or returns its answer again."""
        return await self.start(directory, world)

    async def validate(self, directory: str) -> None:
        """Opening recovers the session, which reads everything."""
        agent = await self._open(directory, None)
        await agent.close()

    async def park(self, directory: str, world: Any) -> None:
        agent = await self._open(directory, world, gate=True)
        try:
            await agent.say(world.task, request_id=REQUEST)
        except Waits:
            return
        finally:
            await agent.close()

    async def approve(self, directory: str, world: Any) -> None:
        agent = await self._open(directory, world, gate=True, results=lambda _call: "approved")
        try:
            await agent.resume()
        finally:
            await agent.close()

    async def _open(
        self, directory: str, world: Any, *, gate: bool = False, results: Results = nothing_yet
    ) -> Agent:
        def tell(name: str, facts: dict[str, Any]) -> None:
            if name == "surfaced":
                world.surface(facts["call"], facts["args"])

        return await Agent.open(
            Location(Path(directory), self.store, inloop.connect),
            session="session",
            provider=Scripted(world, gate),
            toolbox=tools(world),
            runtime=Runtime(
                new_id=lambda kind: f"{kind}_{uuid.uuid4().hex[:12]}", tell=tell, results=results
            ),
        )


class Files(Sqlite):
    """The reference agent on files: one log of lines"""

    store = "files"


class Scripted:
    """The world's model as a Provider; with a gate, it asks for an approval before anything else."""

    name = "scripted"
    model = "scripted-1"

    def __init__(self, world: Any, gate: bool) -> None:
        self._world = world
        self._gate = gate

    async def complete(self, conversation: Sequence[Message], **_also: object) -> Answer:
        if self._gate and not any(message.role == "assistant" for message in conversation):
            return Answer(Message("assistant", "", calls=(APPROVAL,)), Usage(1, 1))
        mine = [m for m in conversation if APPROVAL not in m.calls and m.call_id != APPROVAL.id]
        said = self._world.model(
            [{"role": m.role, "calls": [call.id for call in m.calls], "call_id": m.call_id} for m in mine]
        )
        if "answer" in said:
            return Answer(Message("assistant", said["answer"]), Usage(1, 1))
        call = ToolCall(said["id"], said["tool"], said["args"])
        return Answer(Message("assistant", "", calls=(call,)), Usage(1, 1))

    async def stream(
        self, conversation: Sequence[Message], *, system: str, tools: Sequence[ToolSpec]
    ) -> AsyncIterator[TextDelta | Answer]:
        yield await self.complete(conversation, system=system, tools=tools)


def tools(world: Any) -> Toolbox:
    async def pay(args: Args, key: str) -> str:
        return str(world.act("payments", "pay", key=key, **args))

    async def mail(args: Args, _key: str) -> str:  # mail has no idempotency keys
        return str(world.act("mail", "send", **args))

    return Toolbox(
        [
            Tool(name="pay", run=pay, mutating=True, repeatable=True),
            Tool(name="mail", run=mail, mutating=True),
            Tool(name=APPROVAL.name, mutating=True, waits_for="approval"),
        ]
    )
