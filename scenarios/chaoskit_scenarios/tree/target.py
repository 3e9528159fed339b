"""The daemon as a target: agents in a tree, and a client that performs each operation at its time.

Each life performs the whole workload; operations of earlier lives are recognised by the ids of agents and
messages. The client acknowledges each answer of the daemon, and at the end asks every agent whether it is
there.

The life's seed also determines which of the ready tasks runs first, and how long SQLite takes.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

from chaoskit.inside import Life
from chaoskit_scenarios import inloop
from chaoskit_scenarios.readers import read_daemon
from reference_agent.daemon.daemon import Daemon
from reference_agent.daemon.delivery import NotAnswered
from reference_agent.daemon.journal import Refused
from reference_agent.daemon.mailbox import Limits
from reference_agent.daemon.provider import POISON, ScriptedProvider
from reference_agent.daemon.stores import opened_store
from reference_agent.ids import ids_from
from reference_agent.store.kinds import Location
from reference_agent.store.registry import DEFAULT


def main(life: Life) -> None:
    order, delays = (random.Random(f"{w}/{life.seed}/{life.number}") for w in ("order", "delays"))
    inloop.run(_main(life, delays), order)


async def _main(life: Life, delays: random.Random) -> None:
    asked, kind = life.workload, life.store or DEFAULT
    location = Location(life.directory, kind, inloop.connecting(delays))
    async with opened_store(location, clock=life.now, segment=asked["segment"]) as store:
        providers = {"scripted": ScriptedProvider(life.seed)}
        new_id, limits = ids_from(f"{life.seed}/{life.number}"), Limits(mailbox=asked["mailbox"])
        daemon = Daemon(store, providers, new_id=new_id, limits=limits)
        await daemon.recover()
        if life.number:
            life.probe("recovered", **read_daemon(life.directory, kind))
        await daemon.start()
        client = Client(life, daemon)
        await asyncio.gather(*map(client.do, asked["steps"]))
        for step in asked["call"]:
            await client.do(step)
        await daemon.settled()
        life.probe("end", **read_daemon(life.directory, kind))
        await daemon.close()


class Client:
    def __init__(self, life: Life, daemon: Daemon) -> None:
        self._life = life
        self._daemon = daemon
        spawned = (step["agent"] for step in life.workload["steps"] if step["do"] == "spawn")
        self._answered = {agent: asyncio.Event() for agent in spawned}

    async def do(self, step: dict[str, Any]) -> None:
        """Perform a step at its time, but not before the agents it involves exist.

        A refusal is a valid answer: the agent may be stopped, or its mailbox full.
        """
        what, told = step["do"], {k: step[k] for k in step if k not in ("at", "do")}
        await asyncio.sleep(step.get("at", 0))
        roles = ("parent",) if what == "spawn" else ("agent", "by", "to")
        for agent in map(told.get, roles):
            if agent in self._answered:
                await self._answered[agent].wait()
        with suppress(Refused), self._life.operation(what, **told):
            await getattr(self, f"_{what}")(**told)

    async def _spawn(self, agent: str, parent: str | None) -> None:
        try:
            await self._daemon.spawn(agent, parent=parent, provider="scripted", model="scripted-1")
        finally:
            self._answered[agent].set()
        self._life.ack("spawned", agent=agent, parent=parent)

    async def _send(self, *, asks: bool = False, **told: Any) -> None:
        await self._daemon.send(
            told["to"], told["content"], sender=told["by"], message_id=told["id"], wants_reply=asks
        )
        poison = told["content"].startswith(POISON)
        self._life.ack("sent", id=told["id"], to=told["to"], asks=asks, poison=poison, **{"from": told["by"]})

    async def _ask(self, **told: Any) -> None:
        await self._question(**told)
        await self._reply(id=told["id"])

    async def _question(self, **told: Any) -> None:
        await self._send(asks=True, **told)

    async def _reply(self, **told: str) -> None:
        with suppress(NotAnswered):
            said = await self._daemon.reply_to(told["id"])
            self._life.ack("replied", id=told["id"], said=said)

    async def _suspend(self, agent: str) -> None:
        await self._daemon.suspend(agent)

    async def _resume(self, agent: str) -> None:
        await self._daemon.resume(agent)

    async def _stop(self, agent: str) -> None:
        await self._daemon.stop(agent)
        self._life.ack("stopped", agent=agent)
