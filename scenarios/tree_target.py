"""The daemon as a target: agents in a tree, operations in batches that run at the same time.

Each life does the whole workload: what an earlier one did is recognised by the ids of agents and messages.
The client acknowledges what the daemon has answered, and asks everybody at the end whether they are there.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from chaoskit.inside import Life
from reference_agent.daemon.daemon import Daemon
from reference_agent.daemon.delivery import NotAnswered
from reference_agent.daemon.journal import Refused
from reference_agent.daemon.provider import POISON, ScriptedProvider
from reference_agent.daemon.stores import opened_store
from reference_agent.ids import ids_from
from scenarios import inloop
from scenarios.agent_target import store_of
from scenarios.tree_disk import look


def main(life: Life) -> None:
    inloop.run(_main(life))


async def _main(life: Life) -> None:
    kind = store_of(life)
    async with opened_store(life.directory, kind, clock=life.now, connect=inloop.connect) as store:
        providers = {"scripted": ScriptedProvider(life.seed)}
        daemon = Daemon(store, providers, new_id=ids_from(f"{life.seed}/{life.number}"))
        await daemon.recover()
        if life.number:
            life.probe("recovered", **look(life.directory, kind))
        await daemon.start()
        client = Client(life, daemon)
        for batch in life.workload["batches"]:
            await asyncio.gather(*map(client.do, batch))
        await daemon.settled()
        life.probe("end", **look(life.directory, kind))
        await daemon.close()


class Client:
    def __init__(self, life: Life, daemon: Daemon) -> None:
        self._life = life
        self._daemon = daemon

    async def do(self, operation: dict[str, Any]) -> None:
        """Refusals are answers: the agent may be stopped, or not be there yet."""
        with suppress(Refused), self._life.operation(operation["do"], **operation):
            await getattr(self, f"_{operation['do']}")(**operation)

    async def _spawn(self, agent: str, parent: str | None, **_: Any) -> None:
        await self._daemon.spawn(agent, parent=parent, provider="scripted", model="scripted-1")
        self._life.ack("spawned", agent=agent, parent=parent)

    async def _send(self, *, asks: bool = False, **told: Any) -> None:
        await self._daemon.send(
            told["to"], told["content"], sender=told["by"], message_id=told["id"], wants_reply=asks
        )
        poison = told["content"].startswith(POISON)
        self._life.ack(
            "sent", id=told["id"], to=told["to"], asks=asks, poison=poison, **{"from": told["by"]}
        )

    async def _ask(self, **told: Any) -> None:
        await self._send(asks=True, **told)
        with suppress(NotAnswered):
            said = await self._daemon.reply_to(told["id"])
            self._life.ack("replied", id=told["id"], said=said)

    async def _suspend(self, agent: str, **_: Any) -> None:
        await self._daemon.suspend(agent)

    async def _resume(self, agent: str, **_: Any) -> None:
        await self._daemon.resume(agent)

    async def _stop(self, agent: str, **_: Any) -> None:
        await self._daemon.stop(agent)
        self._life.ack("stopped", agent=agent)
