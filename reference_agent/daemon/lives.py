"""Lives: tracks which provider sessions are alive and keeps their records in agreement (D3).

Waking, suspending and adopting are serialized by one lock; a turn holds its agent's own lock. A holder of a
turn's lock never waits for the other one, so suspending may wait for a turn to end.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping

from reference_agent.daemon import tree
from reference_agent.daemon.journal import Journal, Refused
from reference_agent.daemon.provider import Provider, ProviderSession
from reference_agent.daemon.records import AgentRecord, Linked, Recorded, Removed, Resumed, Stopped, Suspended
from reference_agent.points import persisting


class AgentFailed(Exception):
    """The provider failed; the session is gone, the record is not."""


class Lives:
    def __init__(self, journal: Journal, providers: Mapping[str, Provider]) -> None:
        self._journal = journal
        self._providers = providers
        self._sessions: dict[str, ProviderSession] = {}
        self._changing = asyncio.Lock()
        self.turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def session(self, agent: str) -> ProviderSession | None:
        return self._sessions.get(agent)

    async def spawn(self, agent: str, parent: str | None, provider: str, model: str) -> None:
        """Spawn an agent; acknowledged on return: the record and the link are durable (D1)."""
        try:
            with persisting("session.created"):
                session = await self._providers[provider].create(agent, model)
        except Exception as error:
            raise AgentFailed(f"{agent} could not be created: {error}") from error
        record = AgentRecord(agent, provider, model, "ACTIVE", session.suspend())
        await self._journal.write(Recorded(record))
        try:
            await self._adopt(agent, parent)
        except (Refused, AgentFailed):
            await self._journal.write(Removed(agent))
            await session.close()
            raise
        self._sessions[agent] = session

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
        try:
            session = await self._providers[record.provider].restore(agent, record.model, record.blob)
        except Exception as error:
            raise AgentFailed(f"{agent} could not be restored: {error}") from error
        try:
            await self._journal.write(Resumed(agent), lambda: not self._is_active(agent))
        except BaseException:
            await session.close()
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
        session = self._sessions.get(agent)
        blob = session.suspend() if session else known[agent].blob
        change = Suspended(agent, blob)
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
            await session.close()
