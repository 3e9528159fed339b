"""The server of the whole agent: one boot after the other in one process, and what is kept across them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import msgspec

from chaoskit.inside import Life
from chaoskit_scenarios import inloop
from chaoskit_scenarios.whole.client import Client, InProcess, Reporter, Service
from chaoskit_scenarios.whole.plugins import Model, Tools, install
from chaoskit_scenarios.whole.values import real, shown
from reference_agent.ids import ids_from
from reference_agent.providers.base import Provider
from reference_agent.recovery.manager import RecoveryManager
from reference_agent.service.coordinator import Coordinator
from reference_agent.sessions.record import SessionRecord
from reference_agent.sessions.tokens import TokenService
from reference_agent.store.kinds import Location
from reference_agent.store.registry import DEFAULT
from reference_agent.turn.agent import Agent
from reference_agent.turn.calls import Waits
from reference_agent.turn.ending import Cancelled, GaveUp
from reference_agent.turn.hooks import HookRegistry
from reference_agent.turn.opening import HeldLog
from reference_agent.turn.options import Options
from reference_agent.turn.runtime import Listener, Results, Runtime, nobody, nothing_yet

Json = dict[str, Any]
NEIGHBOUR = "neighbour"
PATIENCE = 3.0  # seconds that clients get to leave when a server is stopped
msgspec.convert({}, Options)  # the first call is slow: made here, before the fork, for all lives


class Server:
    """The services of the present boot; the World remembers how many there were, and the next step."""

    def __init__(self, life: Life, delays: random.Random) -> None:
        self.life = life
        self._connect = inloop.connecting(delays)
        kept = life.call("client", "recall", key="progress") or {"step": 0, "boots": 0, "ahead": 0.0}
        self.step: int = kept["step"]
        self.boots: int = kept["boots"]
        self._ahead: float = kept["ahead"]
        self._calm = False
        self._open_for_clients = asyncio.Event()
        self._in_flight: set[asyncio.Task[Any]] = set()
        self.coordinator: Coordinator
        self.service: Service
        self.client: Client

    def remember(self, step: int) -> None:
        self.step = step
        facts = {"step": self.step, "boots": self.boots, "ahead": self._ahead}
        self.life.call("client", "remember", key="progress", **facts)

    async def start(self) -> None:
        number = self._begin_boot()
        while self._setting.get("chat") and not self.life.workload.get("http"):
            await self._chat(number)
            number = self._begin_boot()
        life = self.life
        self.coordinator = self.another(self.boot_id)
        found = self.coordinator.boot()
        self._report_boot(
            number,
            {
                session: {"appended": kinds, "status": found.status[session]}
                for session, kinds in found.appended.items()
                if session in found.status
            },
        )
        self._connected, self._models = AsyncExitStack(), AsyncExitStack()
        self._provider = await self._connect_models()
        self.service = await self._connect_clients()
        self.client = Client(life, self.service, number)
        together = life.workload["together"] and number == 0
        await asyncio.gather(self._open_all(), *([self._neighbour()] if together else []))
        self._open_for_clients.set()

    def _begin_boot(self) -> int:
        number = self.boots
        self.boots += 1
        self.remember(self.step)
        boots = self.life.workload["boots"]
        self._setting = boots[-1] if self._calm else boots[min(number, len(boots) - 1)]
        self._mark = f"{self.life.seed}/{self.life.number}/{number}"
        self.new_id = ids_from(self._mark)
        self.boot_id = self.new_id("boot")
        return number

    def _report_boot(self, number: int, found: Json | None) -> None:
        setting = self._setting
        self.life.probe(
            "boot",
            number=number,
            boot=self.boot_id,
            options=setting["options"],
            without=setting["without"],
            calm=self._calm,
            served=found is not None,
            found=found or {},
        )

    async def _chat(self, number: int) -> None:
        """A boot without a server: the first request of the first session, as on the command line."""
        self._report_boot(number, None)
        self._provider = lambda _session, model: model
        session = self.life.workload["sessions"][0]
        request = self.life.workload["requests"][session][0]
        asks = {"do": "again", "session": session, "request": request["id"], "words": request["words"]}
        await Reporter(self.life, number).report(asks, partial(self._say, session, request))

    async def _say(self, session: str, request: Json) -> Json:
        agent = await self._agent_of(session, nobody)
        name, found = request["id"], Json()
        try:
            answer = await agent.say(real(request["words"]), request_id=name)
            found = {"state": "answered", "answer": answer}
        except Waits:
            if agent.parked and agent.parked.request_id == name:
                found = {"state": "waiting"}
        except Cancelled as error:
            if agent.is_cancelled(name):
                found = {"state": "cancelled", "reason": str(error)}
        except GaveUp as error:
            found = {"state": "failed", "reason": str(error)}
        except BaseException:
            await agent.close(catch_up=False)
            raise
        is_saved = await agent.catch_up()
        await agent.close()
        return {**found, "request_id": name} if is_saved else {"refused": "not_durable"}

    async def _connect_clients(self) -> Service:
        if not self.life.workload.get("http"):
            return InProcess(self.coordinator)
        from chaoskit_scenarios.whole.over_http import over_http  # noqa: PLC0415 - needs an extra

        return await self._connected.enter_async_context(over_http(self.coordinator, self.new_id))

    async def _connect_models(self) -> Callable[[str, Model], Provider]:
        if not (self.life.workload.get("http") and self.life.workload["wire"]):
            return lambda _session, model: model
        from chaoskit_scenarios.whole.wire import models_over_http  # noqa: PLC0415 - needs an extra

        return (await self._models.enter_async_context(models_over_http())).provider

    async def _open_all(self) -> None:
        for session in self.life.workload["sessions"]:
            await self.client.report({"do": "open", "session": session}, partial(self._open, session))

    async def _neighbour(self) -> None:
        """Another process that starts at this moment, and has a session of its own."""

        async def begin() -> Json:
            other = self.another(self.new_id("boot"))
            try:
                await other.create(NEIGHBOUR, title=NEIGHBOUR, provider="scripted", model="scripted-1")
                return await InProcess(other).read(NEIGHBOUR)
            finally:
                await other.close()

        session = self.life.workload["sessions"][0]
        await self.client.report({"do": "neighbour", "session": session}, begin)

    def another(self, boot_id: str) -> Coordinator:
        """Of this boot, or of a process that runs beside it."""
        return Coordinator(
            self.life.directory,
            open_agent=self._open_agent,
            clock=self.now,
            recovery=RecoveryManager(boot_id, self.now),
            token_service=self._token_service,
            most_open=self.life.workload["awake"],
        )

    async def _open(self, session: str) -> Json:
        await self.service.create(session)
        return await self.service.read(session)

    async def _open_agent(self, record: SessionRecord, results: Results, tell: Listener) -> Agent:
        return await self._agent_of(record.session, tell, results, HeldLog(record.log, self.boot_id))

    async def _agent_of(
        self, session: str, tell: Listener, results: Results = nothing_yet, held: HeldLog | None = None
    ) -> Agent:
        life, setting = self.life, self._setting

        def report(name: str, facts: Json) -> None:
            life.ack(
                name,
                session=session,
                **{k: shown(v) if isinstance(v, str) else v for k, v in facts.items() if k != "args"},
            )
            tell(name, facts)

        registry = HookRegistry()
        install(registry, life, session, setting["hooks"])
        tools = Tools(life, session, self.boots - 1, setting["without"])
        model = Model(life, session, self.boots - 1, f"{self._mark}/{session}")
        agent = await Agent.open(
            Location(life.directory, life.store or DEFAULT, self._connect),
            session=session,
            provider=self._provider(session, model),
            toolbox=tools.toolbox(),
            runtime=Runtime(new_id=self.new_id, clock=self.now, tell=report, hooks=registry, results=results),
            options=msgspec.convert({"tool_deadline": 30.0, **setting["options"]}, Options),
            held=held,
        )
        tools.notes.directory = await agent.scratchpad()
        return agent

    def _token_service(self, record: SessionRecord) -> TokenService:
        return TokenService(record, self.now, new_secret=lambda: self.new_id("secret"), new_id=self.new_id)

    def now(self) -> float:
        return self.life.now() + self._ahead + asyncio.get_running_loop().time()

    async def restart(self, *, calm: bool = False, stop: bool = False) -> None:
        """Stop as a server does, wait for clients to leave, close, and start again in the same process.

        Without `stop` clients are served to their end first.
        """
        await self._until_open()  # another restart may be under way
        self._open_for_clients.clear()
        self._calm |= calm
        with self.life.operation("restart", stop=stop):
            if stop:
                await self.coordinator.stop()
            await self._until_clients_left(PATIENCE if stop else None)
            await self.close()
        self._ahead += asyncio.get_running_loop().time()
        await self.start()

    async def close(self) -> None:
        await self._connected.aclose()
        await self.coordinator.close()
        await self._models.aclose()

    def let_pass(self, seconds: float) -> None:
        self._ahead += seconds

    async def serve(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A client's operation, when there is a server: it may be cut off by a restart."""
        await self._until_open()
        task = asyncio.create_task(work())
        self._in_flight.add(task)
        try:
            await asyncio.wait({task})
        finally:
            self._in_flight.discard(task)
        if not task.cancelled():
            task.result()

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
