"""Lives: tracks which provider sessions are alive and keeps their records in agreement (D3).

Waking, suspending and adopting are serialized by one lock; a turn holds its agent's own lock. A holder of a
turn's lock never waits for the other one, so suspending may wait for a turn to end.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Mapping
from typing import TypeVar

from reference_agent.daemon import tree
from reference_agent.daemon.journal import Journal, Refused
from reference_agent.daemon.provider import Provider, ProviderSession
from reference_agent.daemon.records import (
    AgentRecord,
    Linked,
    Recorded,
    Removed,
    Resumed,
    Stopped,
    Suspended,
    is_storable,
)
from reference_agent.logs.structured import get_logger
from reference_agent.points import persisting

log = get_logger(__name__)
T = TypeVar("T")


class AgentFailed(Exception):
    """The provider failed; the session is gone, the record is not."""


def checked(agent: str, value: object) -> str:
    """What a provider returns is stored, so it has to be text, whatever the provider's types say."""
    if not is_storable(value):
        raise AgentFailed(
            f"{agent} failed: its provider returned {type(value).__name__} that is not valid text"
        )
    return str(value)


def blob_of(agent: str, session: ProviderSession) -> str:
    try:
        return checked(agent, session.suspend())
    except Exception as error:
        raise AgentFailed(f"{agent} has no state that can be saved: {error}") from error


class Lives:
    def __init__(self, journal: Journal, providers: Mapping[str, Provider], patience: float) -> None:
        self._journal = journal
        self._providers = providers
        self._patience = patience
        self._sessions: dict[str, ProviderSession] = {}
        self._changing = asyncio.Lock()
        self.turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def session(self, agent: str) -> ProviderSession | None:
        return self._sessions.get(agent)

    async def spawn(self, agent: str, parent: str | None, provider: str, model: str) -> None:
        """Spawn an agent; acknowledged on return: the record and the link are durable (D1)."""
        with persisting("session.created"):
            session = await self.answer(agent, self._providers[provider].create(agent, model))
        try:
            record = AgentRecord(agent, provider, model, "ACTIVE", blob_of(agent, session))
            await self._record(record, parent)
        except BaseException:
            await self._close(agent, session)
            raise
        self._sessions[agent] = session

    async def _record(self, record: AgentRecord, parent: str | None) -> None:
        await self._journal.write(Recorded(record))
        try:
            await self._adopt(record.agent_id, parent)
        except BaseException:  # also of the disk, which may work again
            await self._journal.write(Removed(record.agent_id))
            raise

    async def _adopt(self, agent: str, parent: str | None) -> None:
        async with self._changing:
            if parent is not None:
                await self._wake(parent)
            # The parent may have been stopped while it was woken, or while the child was created.
            await self._journal.write(Linked(agent, parent), lambda: self._runs(parent))

    def _runs(self, agent: str | None) -> bool:
        if agent is not None and tree.is_stopped(self._journal.state, agent):
            raise Refused(f"{agent} is stopped")
        return True

    async def wake(self, agent: str) -> None:
        """Wake the agent and its ancestors, from the root down."""
        async with self._changing:
            await self._wake(agent)

    async def _wake(self, agent: str) -> None:
        for each in tree.path(self._journal.state, agent):
            if each not in self._sessions:
                await self._restore(each)

    async def _restore(self, agent: str) -> None:
        self._runs(agent)
        record = self._journal.state.agents[agent]
        restoring = self._providers[record.provider].restore(agent, record.model, record.blob)
        session = await self.answer(agent, restoring)
        try:
            await self._journal.write(Resumed(agent), lambda: not self._is_active(agent))
        except BaseException:
            await self._close(agent, session)
            raise
        self._sessions[agent] = session

    def _is_active(self, agent: str) -> bool:
        self._runs(agent)
        return self._journal.state.agents[agent].state == "ACTIVE"

    async def suspend(self, agent: str) -> None:
        """Suspend the agent and its descendants, from the leaves up, each after its current turn."""
        async with self._changing:
            for each in reversed(tree.subtree(self._journal.state, agent)):
                async with self.turns[each]:
                    await self._suspend(each)

    async def _suspend(self, agent: str) -> None:
        known = self._journal.state.agents
        # The record has the state after the last turn: a session cannot know better.
        change = Suspended(agent, known[agent].blob)
        await self._journal.write(change, lambda: known[agent].state == "ACTIVE")
        await self.drop(agent)

    async def stop(self, agent: str) -> None:
        """Stop the agent and its descendants in one write. A turn in progress ends without effect."""
        state = self._journal.state
        # Linking takes the same lock, so no child can be linked between reading the subtree and the write.
        async with self._changing:
            family = tuple(tree.subtree(state, agent))
            await self._journal.write(Stopped(family), lambda: not tree.is_stopped(state, agent))
        for each in family:
            await self.drop(each)

    async def drop(self, agent: str) -> None:
        """Drop only the session; it is restored when needed."""
        session = self._sessions.pop(agent, None)
        if session is not None:
            await self._close(agent, session)

    async def _close(self, agent: str, session: ProviderSession) -> None:
        try:
            await self.answer(agent, session.close())
        except AgentFailed as error:
            log.warning("session.not_closed", agent_id=agent, reason=str(error))

    async def answer(self, agent: str, asked: Awaitable[T]) -> T:
        """What a provider answers. AgentFailed: an error, no answer in time, or a cancellation of its own."""
        try:
            async with asyncio.timeout(self._patience):
                return await asked
        except TimeoutError as error:
            raise AgentFailed(f"{agent} did not answer within {self._patience:g} s") from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise AgentFailed(f"{agent} was cancelled by its provider") from None
        except Exception as error:
            raise AgentFailed(f"{agent} failed: {error}") from error
