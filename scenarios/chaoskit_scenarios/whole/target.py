"""The whole agent as a target: boots, sessions, clients, and at the end a calm boot that finishes everything.

    boot ──> steps of the workload, some of which restart the process's services ──> calm boot ──> finish

A client that survives the crash continues where it was: the World remembers the step. An operation that was
interrupted is repeated, as by a client whose response was lost.
"""

from __future__ import annotations

import asyncio
import random
import resource
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import msgspec

from chaoskit.inside import Life
from chaoskit_scenarios import inloop
from chaoskit_scenarios.agent.target import put_old_database
from chaoskit_scenarios.readers import read_session
from chaoskit_scenarios.sessions.target import NEVER_STORED
from chaoskit_scenarios.whole.client import Client, InProcess, Service
from chaoskit_scenarios.whole.plugins import Model, Tools, install
from chaoskit_scenarios.whole.values import real, shown
from reference_agent.ids import ids_from
from reference_agent.recovery.manager import RecoveryManager
from reference_agent.service.coordinator import OBSERVED, Coordinator
from reference_agent.sessions.record import SessionRecord
from reference_agent.sessions.tokens import TokenService
from reference_agent.store.kinds import Location
from reference_agent.store.registry import DEFAULT
from reference_agent.turn.agent import Agent
from reference_agent.turn.hooks import HookRegistry
from reference_agent.turn.opening import HeldLog
from reference_agent.turn.options import Options
from reference_agent.turn.runtime import Listener, Results, Runtime

Json = dict[str, Any]
OLD = [
    ["user", "hello", None],
    ["assistant", "hello yourself", None],
    ["user", "again", None],
    ["assistant", "sure", None],
    ["user", "more", None],
    ["assistant", "here you are", None],
]
OLD_TURNS = (0, 1, 0, 1, 0, 0)  # older releases counted those of each request from 0
NEIGHBOUR = "neighbour"
PATIENCE = 3.0  # seconds that clients get to leave when a server is stopped
ROUNDS = 12  # of finishing: each settles something, or there is something wrong
msgspec.convert({}, Options)  # the first call is slow: made here, before the fork, for all lives


def main(life: Life) -> None:
    order, delays = (random.Random(f"{what}/{life.seed}/{life.number}") for what in ("order", "delays"))
    if life.workload["descriptors"]:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (life.workload["descriptors"], hard))
        life.tainted = True
    # What reads sockets relies on the order of its own steps.
    inloop.run(_main(life, delays), None if life.workload.get("http") else order)


async def _main(life: Life, delays: random.Random) -> None:
    if not life.number:
        life.probe("given", **given(life.workload))
    database = life.directory / "sessions.db"
    if life.workload["old"] and (life.store or DEFAULT) == "sqlite" and not database.exists():
        put_old_database(database, OLD, life.workload["sessions"][0], turns=OLD_TURNS)
    whole = Whole(life, delays)
    await whole.start()
    if life.number:
        life.probe("recovered")
    steps = life.workload["steps"]
    while whole.step < len(steps):
        await whole.perform(steps[whole.step])
        whole.remember(whole.step + 1)
    await whole.restart(calm=True)
    await whole.finish()


def given(work: Json) -> Json:
    """What the specification needs to know of a workload: whose words are whose."""
    words = {name: [shown(real(each["words"])) for each in found] for name, found in work["requests"].items()}
    return {"sessions": work["sessions"], "words": words}


class Whole:
    """The services of one boot after the other, and what clients know across them."""

    def __init__(self, life: Life, delays: random.Random) -> None:
        self._life = life
        self._connect = inloop.connecting(delays)
        kept = life.call("client", "recall", key="progress") or {"step": 0, "boots": 0, "ahead": 0.0}
        self.step: int = kept["step"]
        self._boots: int = kept["boots"]
        self._ahead: float = kept["ahead"]
        self._calm = False
        self._open_for_clients = asyncio.Event()
        self._in_flight: set[asyncio.Task[Any]] = set()

    def remember(self, step: int) -> None:
        self.step = step
        facts = {"step": self.step, "boots": self._boots, "ahead": self._ahead}
        self._life.call("client", "remember", key="progress", **facts)

    # --- boots

    async def start(self) -> None:
        life, number = self._life, self._boots
        self._boots += 1
        self.remember(self.step)
        boots = life.workload["boots"]
        self._setting = boots[-1] if self._calm else boots[min(number, len(boots) - 1)]
        self._mark = f"{life.seed}/{life.number}/{number}"
        self._new_id = ids_from(self._mark)
        self._boot_id = self._new_id("boot")
        self._coordinator = self._coordinator_for(self._boot_id)
        found = self._coordinator.boot()
        life.probe(
            "boot",
            number=number,
            boot=self._boot_id,
            options=self._setting["options"],
            without=self._setting["without"],
            calm=self._calm,
            found={
                session: {"appended": kinds, "status": found.status[session]}
                for session, kinds in found.appended.items()
                if session in found.status
            },
        )
        self._connected = AsyncExitStack()
        self._service = await self._connect_clients()
        self._client = Client(life, self._service, number)
        together = life.workload["together"] and number == 0
        await asyncio.gather(self._open_all(), *([self._neighbour()] if together else []))
        self._open_for_clients.set()

    async def _connect_clients(self) -> Service:
        if not self._life.workload.get("http"):
            return InProcess(self._coordinator)
        from chaoskit_scenarios.whole.over_http import over_http  # noqa: PLC0415 - needs an extra

        return await self._connected.enter_async_context(over_http(self._coordinator, self._new_id))

    async def _open_all(self) -> None:
        for session in self._life.workload["sessions"]:
            await self._client.report({"do": "open", "session": session}, partial(self._open, session))

    async def _neighbour(self) -> None:
        """Another process that starts at this moment, and has a session of its own."""

        async def begin() -> Json:
            other = self._coordinator_for(self._new_id("boot"))
            try:
                await other.create(NEIGHBOUR, title=NEIGHBOUR, provider="scripted", model="scripted-1")
                return await InProcess(other).read(NEIGHBOUR)
            finally:
                await other.close()

        session = self._life.workload["sessions"][0]
        await self._client.report({"do": "neighbour", "session": session}, begin)

    def _coordinator_for(self, boot_id: str) -> Coordinator:
        return Coordinator(
            self._life.directory,
            open_agent=self._open_agent,
            clock=self.now,
            recovery=RecoveryManager(boot_id, self.now),
            token_service=self._token_service,
            most_open=self._life.workload["awake"],
        )

    async def _open(self, session: str) -> Json:
        await self._service.create(session)
        return await self._service.read(session)

    async def _open_agent(self, record: SessionRecord, results: Results, tell: Listener) -> Agent:
        life, session, setting = self._life, record.session, self._setting

        def report(name: str, facts: Json) -> None:
            life.ack(
                name,
                session=session,
                **{k: shown(v) if isinstance(v, str) else v for k, v in facts.items() if k != "args"},
            )
            tell(name, facts)

        registry = HookRegistry()
        install(registry, life, session, setting["hooks"])
        tools = Tools(life, session, self._boots - 1, setting["without"])
        agent = await Agent.open(
            Location(life.directory, life.store or DEFAULT, self._connect),
            session=session,
            provider=Model(life, session, self._boots - 1, f"{self._mark}/{session}"),
            toolbox=tools.toolbox(),
            runtime=Runtime(
                new_id=self._new_id, clock=self.now, tell=report, results=results, hooks=registry
            ),
            options=msgspec.convert({"tool_deadline": 30.0, **setting["options"]}, Options),
            held=HeldLog(record.log, self._boot_id),
        )
        tools.notes.directory = await agent.scratchpad()
        return agent

    def _token_service(self, record: SessionRecord) -> TokenService:
        return TokenService(record, self.now, new_secret=lambda: self._new_id("secret"), new_id=self._new_id)

    def now(self) -> float:
        return self._life.now() + self._ahead + asyncio.get_running_loop().time()

    async def restart(self, *, calm: bool = False, stop: bool = False) -> None:
        """Stop as a server does, wait for clients to leave, close, and start again in the same process.

        Without `stop` clients are served to their end first.
        """
        await self._until_open()  # another restart may be under way
        self._open_for_clients.clear()
        self._calm |= calm
        with self._life.operation("restart", stop=stop):
            if stop:
                await self._coordinator.stop()
            await self._until_clients_left(PATIENCE if stop else None)
            await self._connected.aclose()
            await self._coordinator.close()
        self._ahead += asyncio.get_running_loop().time()
        await self.start()

    async def _until_open(self) -> None:
        """Whoever is woken may find that another restart has begun since."""
        while not self._open_for_clients.is_set():
            await self._open_for_clients.wait()

    async def _until_clients_left(self, patience: float | None) -> None:
        if self._in_flight:
            await asyncio.wait(self._in_flight, timeout=patience)
        for task in self._in_flight:  # as by a server that does not wait any longer
            task.cancel()
        await asyncio.gather(*self._in_flight, return_exceptions=True)

    # --- steps

    async def perform(self, operations: list[Json]) -> None:
        await asyncio.gather(*(self._one(operation) for operation in operations))

    async def _one(self, operation: Json) -> None:
        await asyncio.sleep(operation.get("at", 0))
        if operation["do"] in ("stop", "close"):
            await self.restart(stop=operation["do"] == "stop")
            return
        await self._until_open()
        task = asyncio.create_task(self._do(operation))
        self._in_flight.add(task)
        try:
            await asyncio.wait({task})
        finally:
            self._in_flight.discard(task)
        if not task.cancelled():
            task.result()

    async def _do(self, operation: Json) -> None:
        do = operation["do"]
        if do == "later":
            self._ahead += operation["seconds"]
            await self._sweep(operation)
        elif do == "sweep":
            await self._sweep(operation)
        elif do == "twin":
            await self._client.report(operation, self._twin)
        elif do == "crowd":
            await self._client.report(operation, lambda: self._crowd(operation["many"]))
        else:
            await self._client.perform(operation)

    async def _sweep(self, operation: Json) -> None:
        await self._client.report(operation, self._swept)

    async def _swept(self) -> None:
        await self._coordinator.sweep()

    async def _twin(self) -> Json:
        """A second process on the same sessions: it is refused, and disturbs nobody."""
        twin = self._coordinator_for(self._new_id("boot"))
        try:
            for session in self._life.workload["sessions"]:
                await InProcess(twin).read(session)
        finally:
            await twin.close()
        return {"state": "opened"}

    async def _crowd(self, many: int) -> Json:
        """Many sessions in one server, each used once."""
        for number in range(many):
            name = f"guest-{number}"
            await self._service.create(name)
            await self._service.post(name, "hello", f"{name}-r0")
            found = await self._service.outcome(name, f"{name}-r0")
            if found is None or found["state"] != "answered":
                return {"broke": f"{name}: {found}"}
        return {"state": "all answered"}

    # --- the end

    async def finish(self) -> None:
        """Everything accepted comes to its end, every session can still be used, and all is as reported."""
        for session in self._life.workload["sessions"]:
            await self._finish(session)
        await self._swept()
        for session in self._life.workload["sessions"]:
            await self._read_events(session)
        degraded = await self._look()
        await self._connected.aclose()
        await self._coordinator.close()
        if not degraded:
            self._life.probe("end", never=NEVER_STORED)

    async def _read_events(self, session: str) -> None:
        """Where clients can watch: everything up to the newest event is seen once, in order."""
        if self._life.workload.get("http"):
            lines = (await self._coordinator.session(session)).record.events
            newest = max((line["seq"] for line in lines if line["kind"] in OBSERVED), default=0)
            await self._service.events(self._life, session, newest)  # type: ignore[attr-defined]

    async def _finish(self, session: str) -> None:
        for _ in range(ROUNDS):
            found = await self._client.report(
                {"do": "continue", "session": session, "finishing": True},
                lambda: self._client.carry_on(session),
            )
            if found.get("refused") == "nothing_to_do" and not await self._bring(session):
                break
        for request in self._life.workload["requests"][session]:
            await self._settle(session, request)
        canary = {
            "do": "post",
            "session": session,
            "request": f"{session}-canary-{self._boots}",
            "words": "still there?",
        }
        await self._client.perform(canary)

    async def _settle(self, session: str, request: Json) -> None:
        asks = {
            "do": "again",
            "session": session,
            "request": request["id"],
            "words": request["words"],
            "finishing": True,
        }
        for _ in range(ROUNDS):
            found = await self._client.report(asks, lambda: self._client.post(asks))
            if found.get("state") != "waiting":
                return
            await self._bring(session)

    async def _bring(self, session: str) -> bool:
        """The result that the session waits for; whether it did wait.

        Its client repeats its last resume first, and uses the token that it has. A new token comes last.
        """
        brings = {"do": "resume", "session": session, "which": "newest", "as": "finisher", "result": "yes"}
        if self._client.has_token(session):
            await self._client.perform({"do": "used token", "session": session})
            await asyncio.sleep(1)  # (virtual) until nothing that this may have begun is under way
            found = await self._client.report(brings, lambda: self._client.resume(brings))
            if "refused" not in found:
                await self._until_it_ends(session)
                return True
        found = await self._client.report(
            {"do": "rotate", "session": session}, lambda: self._client.rotate(session)
        )
        if "refused" in found:
            return False
        await self._client.report(brings, lambda: self._client.resume(brings))
        await self._until_it_ends(session)
        return True

    async def _until_it_ends(self, session: str) -> None:
        run = (await self._coordinator.session(session)).record.snapshot.run
        if run is not None and run.request_id is not None:
            asks = {"session": session, "request": run.request_id}
            await self._client.report({"do": "outcome", **asks}, lambda: self._client.outcome(asks))

    async def _look(self) -> bool:
        """What is on the disk at the end, as an independent reader sees it; whether writes are waiting."""
        degraded = False
        for name in self._life.workload["sessions"]:
            await self._coordinator.read(name)  # wakes it, if it sleeps
            session = await self._coordinator.session(name)
            agent = session.agent
            assert agent is not None
            status = await agent.status()
            degraded |= status.degraded
            view = self._coordinator.look(session)
            notes = self._life.directory / f"{name}.scratch" / "notes.txt"
            seen = read_session(self._life.directory, self._life.store or DEFAULT, name)
            self._life.probe(
                "session",
                session=name,
                status=view.status,
                boot=self._boot_id,
                now=self.now(),
                lines=len(session.record.events),
                spent=status.budget.spent_tokens,
                questions=[shown(call.call_id) for call in status.open_questions],
                conversation=[said(message) for message in agent.conversation],
                notes=notes.read_text().count("\n") if notes.exists() else 0,
                **seen,
            )
        if degraded:
            self._life.probe("degraded")
        return degraded


def said(message: Any) -> Json:
    from chaoskit_scenarios.whole.plugins import facts_of  # noqa: PLC0415

    return facts_of(message)
