"""How each mutant of the daemon differs from it. See `agent.mutations`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

from msgspec.structs import replace as changed

from chaoskit_scenarios.agent.mutations import replace
from reference_agent.daemon import daemon as operations, delivery, mailbox, recovery, tree
from reference_agent.daemon.daemon import Daemon
from reference_agent.daemon.delivery import Delivery
from reference_agent.daemon.files import FilesDaemonStore
from reference_agent.daemon.journal import Journal
from reference_agent.daemon.lives import Lives
from reference_agent.daemon.provider import POISON, ProviderSession
from reference_agent.daemon.records import (
    DELIVERED,
    Enqueued,
    Linked,
    Message,
    Settled,
    Stopped,
    Suspended,
    Tried,
)
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


def abandons_cancelled() -> None:
    """A cancellation reaches the middle of an operation: on disk, and not in memory."""

    async def carry_out(_self: Daemon, operation: Coroutine[Any, Any, Any]) -> Any:
        return await operation

    replace(Daemon, "_carry_out", carry_out)


def accepts_reply_ids() -> None:
    replace(operations, "REPLY", "(never)")


def believes_ids() -> None:
    """Whatever has a known id is a repetition."""
    sound = Daemon._is_new

    def is_new(self: Daemon, message: Message) -> bool:
        return not self.state.knows(message.message_id) and sound(self, message)

    replace(Daemon, "_is_new", is_new)


def counts_after_turn() -> None:
    """An attempt counts once it has failed: one that kills the process never does."""
    sound = Delivery._try

    async def attempt(self: Delivery, message: Message) -> None:
        if message.content != "deadly":
            return await sound(self, message)
        await self._take_turn(message)
        await self._journal.write(Tried(message.message_id, message.tries + 1))
        return None

    replace(Delivery, "_try", attempt)


def leaks_places() -> None:
    """The place reserved for a reply is not given back if the question is set aside."""
    sound = State._settle

    def settle(self: State, message_id: str, outcome: str) -> None:
        message = self.undelivered[message_id]
        sound(self, message_id, outcome)
        if message.wants_reply and outcome != DELIVERED:
            self.asking[message.sender] += 1

    replace(State, "_settle", settle)


def overfills() -> None:
    """One message more than there are places."""
    sound = mailbox.load
    replace(mailbox, "load", lambda of, agent: sound(of, agent) - 1)


def stops_only_children() -> None:
    """Grandchildren of a stopped agent go on."""

    async def stop(self: Lives, agent: str) -> None:
        state = self._journal.state
        async with self._changing:
            family = (agent, *state.children.get(agent, ()))
            await self._journal.write(Stopped(family))
        for each in family:
            await self.drop(each)

    replace(Lives, "stop", stop)


def trusts_providers() -> None:
    """Whatever a provider returns is stored."""
    replace(delivery, "checked", lambda _agent, value: value)


def waits_forever() -> None:
    """For a provider that does not answer."""
    sound = Lives.__init__

    def init(self: Lives, journal: Journal, providers: Any, _patience: float) -> None:
        sound(self, journal, providers, None)  # type: ignore[arg-type]

    replace(Lives, "__init__", init)


def begins_segments_twice() -> None:
    """A segment that could not be begun is opened again as it is."""

    def rotate(self: FilesDaemonStore) -> None:
        fresh = self._open(self._number + 1)
        try:
            self._begin(fresh)
        except BaseException:
            fresh.close()
            raise
        self._log.close()
        self._log, self._number = fresh, self._number + 1

    replace(FilesDaemonStore, "_rotate", rotate)


def answers_with_excuses() -> None:
    """The reason why a question was set aside passes as the answer to it."""
    sound = mailbox.closing

    def closing(of: State, message: Message, fate: Any) -> Any:
        change = sound(of, message, fate)
        return Enqueued(changed(change.message, failed=False)) if isinstance(change, Enqueued) else change

    replace(mailbox, "closing", closing)
