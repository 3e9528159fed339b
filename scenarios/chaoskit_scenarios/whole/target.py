"""The whole agent as a target: boots, sessions, clients, and at the end a calm boot that finishes everything.

    boot ──> steps of the workload, some of which restart the process's services ──> calm boot ──> finish

A client that survives the crash continues where it was: the World remembers the step. An operation that was
interrupted is repeated, as by a client whose response was lost.
"""

from __future__ import annotations

import asyncio
import random
import resource
from typing import Any

from chaoskit.inside import Life
from chaoskit_scenarios import inloop
from chaoskit_scenarios.agent.target import put_old_database
from chaoskit_scenarios.whole.client import NAMELESS, InProcess
from chaoskit_scenarios.whole.finish import End
from chaoskit_scenarios.whole.server import Server
from chaoskit_scenarios.whole.values import real, shown
from reference_agent.store.registry import DEFAULT

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
    server = Server(life, delays)
    await server.start()
    if life.number:
        life.probe("recovered")
    steps = life.workload["steps"]
    while server.step < len(steps):
        await Steps(server).perform(steps[server.step])
        server.remember(server.step + 1)
    await server.restart(calm=True)
    await End(server).finish()


def given(work: Json) -> Json:
    """What the specification needs to know of a workload: whose words are whose."""
    words = {name: [shown(real(each["words"])) for each in found] for name, found in work["requests"].items()}
    nameless = {"nameless": NAMELESS} if work.get("http") else {}
    return {"sessions": work["sessions"], "words": words, **nameless}


class Steps:
    """Performs the operations of a workload, each at its time."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def perform(self, operations: list[Json]) -> None:
        await asyncio.gather(*(self._one(operation) for operation in operations))

    async def _one(self, operation: Json) -> None:
        await asyncio.sleep(operation.get("at", 0))
        if operation["do"] in ("stop", "close"):
            await self._server.restart(stop=operation["do"] == "stop")
            return
        await self._server.serve(lambda: self._do(operation))

    async def _do(self, operation: Json) -> None:
        do = operation["do"]
        if do == "later":
            self._server.let_pass(operation["seconds"])
            await self._sweep(operation)
        elif do == "sweep":
            await self._sweep(operation)
        elif do == "twin":
            await self._server.client.report(operation, self._twin)
        elif do == "crowd":
            await self._server.client.report(operation, lambda: self._crowd(operation["many"]))
        else:
            await self._server.client.perform(operation)

    async def _sweep(self, operation: Json) -> None:
        await self._server.client.report(operation, self._swept)

    async def _swept(self) -> None:
        await self._server.coordinator.sweep()

    async def _twin(self) -> Json:
        """A second process on the same sessions: it is refused, and disturbs nobody."""
        twin = self._server.another(self._server.new_id("boot"))
        try:
            for session in self._server.life.workload["sessions"]:
                await InProcess(twin).read(session)
        finally:
            await twin.close()
        return {"state": "opened"}

    async def _crowd(self, many: int) -> Json:
        """Many sessions in one server, each used once."""
        service = self._server.service
        for number in range(many):
            name = f"guest-{number}"
            await service.create(name)
            await service.post(name, "hello", f"{name}-r0")
            found = await service.outcome(name, f"{name}-r0")
            if found is None or found["state"] != "answered":
                return {"broke": f"{name}: {found}"}
        return {"state": "all answered"}
