"""The services around the agent as a target: waits, tokens, deadlines, boots. The client runs here too.

Runs inside the target's process. A request of the workload may specify what its client does when it has to
wait: `then` is one of

    resume     delivers the result with the token
    supersede  sends a new message instead: the next request
    time out   lets the deadline pass, is refused, continues, and resumes with the new token
    race       three clients deliver different results with the same token; the winner repeats its request
    rotate     has lost the token, gets another, and resumes with that one
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from chaoskit.inside import Life
from chaoskit_scenarios import inloop
from chaoskit_scenarios.agent.target import (
    SESSION,
    WatchedProvider,
    chosen,
    found_in,
    location,
    observe,
    report_meant,
    toolbox,
)
from reference_agent.ids import ids_from
from reference_agent.recovery.manager import RecoveryManager
from reference_agent.service.coordinator import Coordinator
from reference_agent.service.outcome import Outcome
from reference_agent.sessions.record import SessionRecord
from reference_agent.sessions.tokens import TokenRefused, TokenService
from reference_agent.turn.agent import Agent
from reference_agent.turn.opening import HeldLog
from reference_agent.turn.runtime import Listener, Results, Runtime
from reference_agent.turn.tools import Tool

APPROVE = Tool(
    name="approve", mutating=True, waits_for="approval", deadline=600.0, key=lambda _args, call_id: call_id
)
NEVER_STORED = "secret_"  # begins the secret of every token
TOO_LATE = 700.0  # seconds: longer than the wait's deadline


class Clock:
    """The life's clock, which can be moved forward."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self.ahead = 0.0

    def __call__(self) -> float:
        return self._life.now() + self.ahead


class Services:
    """The coordinator of one boot, wired as in a server, with ids and secrets from the seed."""

    def __init__(self, life: Life) -> None:
        life.probe("found", **found_in(life.directory))
        self.life = life
        self.clock = Clock(life)
        self.new_id = ids_from(f"{life.seed}/{life.number}")
        self.boot = self.new_id("boot")
        self.coordinator = Coordinator(
            life.directory,
            open_agent=self._open_agent,
            clock=self.clock,
            recovery=RecoveryManager(self.boot, self.clock),
            token_service=self._tokens,
            tell=lambda name, facts: life.ack(name, **facts),
        )

    async def _open_agent(self, record: SessionRecord, results: Results, tell: Listener) -> Agent:
        return await Agent.open(
            location(self.life),
            session=record.session,
            provider=WatchedProvider(self.life),
            toolbox=toolbox(self.life, APPROVE),
            runtime=Runtime(new_id=self.new_id, clock=self.clock, tell=tell, results=results),
            options=chosen(self.life),
            held=HeldLog(record.log, self.boot),
        )

    def _tokens(self, record: SessionRecord) -> TokenService:
        return TokenService(record, self.clock, new_secret=lambda: self.new_id("secret"), new_id=self.new_id)

    async def start(self) -> None:
        """Boot and open the session; afterwards everything is recovered."""
        self.coordinator.boot()
        await self.coordinator.create(SESSION, title="payments", provider="scripted", model="scripted-1")
        await self.report_status()
        await self.coordinator.read(SESSION)
        if self.life.number:
            self.life.probe("recovered", **observe(self.life))

    async def report_status(self) -> None:
        """Report the status and everything it is derived from: the oracle derives it again."""
        session = await self.coordinator.session(SESSION)
        now = self.clock()
        view = self.coordinator.look(session)
        self.life.probe(
            "status", status=view.status, boot=self.boot, now=now, lines=len(session.record.events)
        )

    async def finish(self) -> None:
        await self.report_status()
        await self.coordinator.close()
        self.life.probe(
            "end", questions=[], never=NEVER_STORED, files=files_of(self.life.directory), **observe(self.life)
        )


def waiting(life: Life) -> None:
    inloop.run(_waiting(life))


async def _waiting(life: Life) -> None:
    services = Services(life)
    report_meant(life)
    await services.start()
    client = Client(services)
    for number, request in enumerate(life.workload["requests"]):
        with life.operation("say", request=number) as operation:
            operation.result = (await client.ask(number, request)).answer
        await services.report_status()
    await services.finish()


def interrupted(life: Life) -> None:
    inloop.run(_interrupted(life))


async def _interrupted(life: Life) -> None:
    """Boot, boot again, sweep: each interruption is recorded once. Then resume everything."""
    services = Services(life)
    report_meant(life)
    services.coordinator.boot()
    await services.start()
    await services.coordinator.sweep()
    await services.report_status()
    client = Client(services)
    for number, request in enumerate(life.workload["requests"]):
        with life.operation("say", request=number) as operation:
            operation.result = (await client.ask(number, request)).answer
        await asyncio.gather(services.coordinator.sweep(), services.coordinator.sweep())
    await services.finish()


class Client:
    """A client of the coordinator; it remembers the responses it got outside of this process."""

    def __init__(self, services: Services) -> None:
        self._life = services.life
        self._services = services
        self._coordinator = services.coordinator

    async def ask(self, number: int, request: dict[str, Any]) -> Outcome:
        name = f"request-{number}"
        await self._try_an_old_token(name)
        posted = await self._coordinator.post(SESSION, request["content"], name)
        outcome = await self._coordinator.outcome(SESSION, name) or posted
        if outcome.state == "waiting":
            await self._services.report_status()
            outcome = await self._wait(name, request["then"], outcome)
        return outcome

    async def _try_an_old_token(self, name: str) -> None:
        """Try a token from an earlier life: it must not resume anything that it did not resume then."""
        kept = self._life.call("client", "recall", key=name)
        if kept:
            await self._resume(name, kept["token"], "yes", again=True)

    async def _wait(self, name: str, then: str, outcome: Outcome) -> Outcome:
        token = given(outcome)
        if then == "supersede":
            return outcome
        if then == "race":
            await asyncio.gather(*(self._resume(f"{name}/{n}", token, "yes") for n in range(3)))
            await self._resume(f"{name}/0", token, "yes", again=True)
            return await self._outcome(name)
        if then == "time out":
            self._services.clock.ahead += TOO_LATE
            await self._coordinator.sweep()
            await self._services.report_status()
            await self._resume(name, token, "too late")
            await self._coordinator.go_on(SESSION)
            token = given(await self._outcome(name))
        if then == "rotate":
            old, token = token, given(await self._coordinator.rotate(SESSION))
            await self._resume(name, old, "with the old one")
        self._life.call("client", "remember", key=name, token=token)
        await self._resume(name, token, "yes")
        return await self._outcome(name)

    async def _resume(self, name: str, token: str, result: str, *, again: bool = False) -> None:
        facts = {"token": token.partition(".")[0], "request": name, "again": again}
        try:
            await self._coordinator.resume(SESSION, token, name, result)
        except TokenRefused as refusal:
            self._life.ack("refused", code=refusal.code, **facts)
        else:
            self._life.ack("resumed", result=result, **facts)

    async def _outcome(self, name: str) -> Outcome:
        outcome = await self._coordinator.outcome(SESSION, name)
        assert outcome is not None
        return outcome


def given(outcome: Outcome) -> str:
    assert outcome.token, f"expected a token, found {outcome}"
    return outcome.token


def log_of(directory: Path) -> list[str]:
    return (directory / f"{SESSION}.messages.jsonl").read_text().splitlines(keepends=True)


def files_of(directory: Path) -> list[str]:
    """What is stored as text, and any other file that contains what must not be there."""
    found = ((path, path.read_bytes()) for path in sorted(directory.iterdir()) if path.is_file())
    return [
        content.decode(errors="replace")
        for path, content in found
        if path.suffix in (".json", ".jsonl") or NEVER_STORED.encode() in content
    ]
