"""How each mutant of the daemon differs from it. See `agent.mutations`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace as changed

from chaoskit_scenarios.agent.mutations import replace
from reference_agent.daemon import recovery, tree
from reference_agent.daemon.delivery import Delivery
from reference_agent.daemon.journal import Journal
from reference_agent.daemon.lives import Lives
from reference_agent.daemon.provider import POISON, ProviderSession
from reference_agent.daemon.records import DELIVERED, Linked, Message, Settled, Suspended
from reference_agent.daemon.state import State


def links_late() -> None:
    """The link takes effect at once and reaches the disk later."""
    sound = Journal.write
    late: set[asyncio.Task[None]] = set()

    async def write(self: Journal, change: Any, wanted: Any = lambda: True) -> bool:
        if not isinstance(change, Linked):
            return await sound(self, change, wanted)
        wanted()
        self.state.add(change)

        async def link() -> None:
            await asyncio.sleep(1)
            await sound(self, change)

        late.add(asyncio.create_task(link()))
        return True

    add = State.add

    def add_once(self: State, change: Any) -> None:
        if not (isinstance(change, Linked) and change.agent_id in self.parents):
            add(self, change)

    replace(Journal, "write", write)
    replace(State, "add", add_once)


def marks_before_delivery() -> None:
    """Not for questions, whose loss would block the asker, nor for poison, whose failures are counted."""
    sound = Delivery._turn

    async def turn(self: Delivery, session: ProviderSession, message: Message) -> None:
        if message.wants_reply or message.content.startswith(POISON):
            return await sound(self, session, message)
        await self._journal.write(Settled(message.message_id, DELIVERED))
        await sound(self, session, message)
        for news in self._waiting.pop(message.message_id, ()):  # the message may be a reply
            news.set_result(None)
        return None

    replace(Delivery, "_turn", turn)


def stays_active() -> None:
    sound = recovery.due

    def due(state: State, boot: str, limits: Any) -> Iterator[Any]:
        return (change for change in sound(state, boot, limits) if not isinstance(change, Suspended))

    replace(recovery, "due", due)


def wakes_without_parent() -> None:
    sound = tree.path
    replace(tree, "path", lambda state, agent: sound(state, agent)[-1:])


def adopts_blindly() -> None:
    async def adopt(self: Lives, agent: str, parent: str | None) -> None:
        await self._journal.write(Linked(agent, parent))

    replace(Lives, "_adopt", adopt)


def handles_again() -> None:
    sound = recovery.recover

    async def recover(journal: Journal, boot: str, limits: Any) -> Any:
        for agent, record in journal.state.agents.items():
            journal.state.agents[agent] = changed(record, handled=None)
        return await sound(journal, boot, limits)

    replace(recovery, "recover", recover)
