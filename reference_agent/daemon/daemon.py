"""Daemon: the public operations. Each call returns once its effect is durable (D1)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from reference_agent.daemon import mailbox, recovery, tree
from reference_agent.daemon.delivery import Delivery
from reference_agent.daemon.journal import Journal, MailboxFull, Refused
from reference_agent.daemon.lives import Lives
from reference_agent.daemon.mailbox import Limits
from reference_agent.daemon.provider import Provider
from reference_agent.daemon.records import (
    DAEMON,
    OUTSIDE,
    REPLY,
    AgentRecord,
    Enqueued,
    Message,
    Simple,
    is_storable,
)
from reference_agent.daemon.state import State
from reference_agent.daemon.stores import DaemonStore
from reference_agent.ids import NewId, checked_session

T = TypeVar("T")


class Daemon:
    """Call `recover`, then `start`, then any other method, and finally `close`."""

    def __init__(
        self,
        store: DaemonStore,
        providers: Mapping[str, Provider],
        *,
        new_id: NewId,
        limits: Limits | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._new_id = new_id
        self._providers = providers
        self._journal = Journal(store)
        self._lives = Lives(self._journal, providers, self._limits.patience)
        self._delivery = Delivery(self._journal, self._lives, self._limits)
        self._spawning: dict[str, asyncio.Event] = {}
        self._operations: set[asyncio.Task[Any]] = set()

    @property
    def state(self) -> State:
        """Read-only."""
        return self._journal.state

    async def recover(self) -> list[Simple]:
        """Steps 1 to 4 of recovery: afterwards no agent is ACTIVE and the state is consistent."""
        return await recovery.recover(self._journal, self._new_id("boot"), self._limits)

    async def start(self) -> None:
        """Step 5: deliver undelivered messages, which wakes their receivers; roots have the prompt."""
        for agent in list(self.state.mailboxes):
            self._delivery.kick(agent)

    async def _carry_out(self, operation: Coroutine[Any, Any, T]) -> T:
        """To its end, even if the caller is cancelled: half of it could be on disk and not in memory."""
        task = asyncio.create_task(operation)
        self._operations.add(task)
        task.add_done_callback(self._operations.discard)
        return await asyncio.shield(task)

    async def spawn(self, agent: str, *, parent: str | None = None, provider: str, model: str) -> AgentRecord:
        """Spawn an agent below `parent`, or as a root. Spawning an existing agent again returns it."""
        return await self._carry_out(self._spawn(agent, parent, provider, model))

    async def _spawn(self, agent: str, parent: str | None, provider: str, model: str) -> AgentRecord:
        checked_session(agent)
        while (under_way := self._spawning.get(agent)) is not None:
            await under_way.wait()
        if agent in self.state.parents:
            if self.state.parents[agent] != parent:
                raise Refused(f"{agent} already exists, under {self.state.parents[agent] or 'no parent'}")
            return self.state.agents[agent]
        if agent in (OUTSIDE, DAEMON) or provider not in self._providers:
            raise Refused(f"{agent} cannot be spawned: its name is taken, or {provider} is unknown")
        if not is_storable(model):
            raise Refused(f"{agent} cannot be spawned: the name of its model cannot be stored")
        if parent is not None:
            self._running(parent)
        self._spawning[agent] = asyncio.Event()
        try:
            await self._lives.spawn(agent, parent, provider, model)
        finally:
            self._spawning.pop(agent).set()
        return self.state.agents[agent]

    async def send(
        self,
        receiver: str,
        content: str,
        *,
        sender: str = OUTSIDE,
        wants_reply: bool = False,
        message_id: str | None = None,
    ) -> str:
        """Return the message's id. A caller unsure whether an id was accepted may send it again (D5)."""
        message = Message(message_id or self._new_id("message"), sender, receiver, content, wants_reply)
        if not (is_storable(message.message_id) and is_storable(content)):
            raise Refused("the message cannot be stored: its id or its content is not valid Unicode text")
        await self._carry_out(self._send(message))
        return message.message_id

    async def _send(self, message: Message) -> None:
        await self._journal.write(Enqueued(message), lambda: self._is_new(message))
        self._delivery.kick(message.receiver)

    async def reply_to(self, message_id: str) -> str:
        """Wait for the reply. NotAnswered: there will be none. Refused: there is no such question."""
        await self._delivery.answered(message_id)
        return await self._carry_out(self._delivery.reply_to(message_id))

    async def ask(
        self, receiver: str, content: str, *, sender: str = OUTSIDE, message_id: str | None = None
    ) -> str:
        """A synchronous send: return the reply, which is in the sender's history by then."""
        asked = await self.send(receiver, content, sender=sender, wants_reply=True, message_id=message_id)
        return await self.reply_to(asked)

    def _is_new(self, message: Message) -> bool:
        known = self.state.message(message.message_id)
        if known is not None:
            if replace(known, tries=0) != message:
                raise Refused(f"{message.message_id} is already the id of another message")
            return False
        if message.message_id.endswith(REPLY):
            raise Refused(f"{message.message_id}: ids that end with {REPLY} are reserved for replies")
        self._running(message.receiver)
        if message.sender != OUTSIDE:
            self._running(message.sender)
        crowded = [message.receiver] + [message.sender] * message.wants_reply
        for agent in crowded:
            if mailbox.load(self.state, agent) >= self._limits.mailbox:
                raise MailboxFull(
                    f"the mailbox of {agent} is full ({self._limits.mailbox} messages): retry later"
                )
        return True

    def _running(self, agent: str) -> None:
        if agent not in self.state.parents or tree.is_stopped(self.state, agent):
            raise Refused(f"{agent} does not exist or is stopped")

    async def suspend(self, agent: str) -> None:
        """Suspend the agent and its descendants. The next message, or one already waiting, resumes it."""
        self._running(agent)
        await self._carry_out(self._lives.suspend(agent))

    async def resume(self, agent: str) -> None:
        """Resume the agent and its ancestors."""
        self._running(agent)
        await self._carry_out(self._lives.wake(agent))

    async def stop(self, agent: str) -> None:
        """Stop the agent and its descendants permanently. Callers waiting for their replies get an error."""
        if agent not in self.state.parents:
            raise Refused(f"{agent} does not exist")
        await self._carry_out(self._stop(agent))

    async def _stop(self, agent: str) -> None:
        await self._lives.stop(agent)
        for each in tree.subtree(self.state, agent):
            self._delivery.kick(each)

    def set_aside(self) -> dict[str, str]:
        """Messages that will never be handled, among those still remembered, and why (D7)."""
        return {m: why for m, (_, why) in self.state.settled.items() if why != "delivered"}

    async def settled(self) -> None:
        """Wait until there is nothing left to deliver, by operations whose callers were cancelled either."""
        while self._operations:
            await asyncio.wait(self._operations)
        await self._delivery.settled()

    async def close(self) -> None:
        """Deliver all messages and suspend every agent, so that recovery has nothing to do."""
        await self.settled()
        for root in tree.roots(self.state):
            await self._lives.suspend(root)
