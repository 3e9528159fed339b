"""Delivery: one worker per agent with mail. The worker ends after the last message.

A worker re-examines one message until it is settled: it carries out what is already decided about the
message, or, if nothing is, lets the receiver take a turn (`mailbox.fate`). It remembers nothing but the
state in between, so a crash at any point, and the recovery after it, need no special case.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import nullcontext

from reference_agent.daemon import mailbox, tree
from reference_agent.daemon.journal import Journal, Refused
from reference_agent.daemon.lives import AgentFailed, Lives, blob_of, checked
from reference_agent.daemon.mailbox import Limits
from reference_agent.daemon.provider import ProviderSession
from reference_agent.daemon.records import (
    DELIVERED,
    OUTSIDE,
    Enqueued,
    Message,
    Settled,
    Tried,
    TurnSaved,
    reply_id,
)
from reference_agent.logs.structured import get_logger
from reference_agent.points import persisting

log = get_logger(__name__)


class NotAnswered(Exception):
    """The receiver will not answer; the message says why."""


class Delivery:
    def __init__(self, journal: Journal, lives: Lives, limits: Limits) -> None:
        self._journal = journal
        self._lives = lives
        self._limits = limits
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._suspects = asyncio.Lock()
        self._waiting: defaultdict[str, list[asyncio.Future[None]]] = defaultdict(list)

    def kick(self, agent: str) -> None:
        """Start a worker for the agent if it has mail."""
        if agent not in self._journal.state.mailboxes or agent == OUTSIDE:
            return
        worker = self._workers.get(agent)
        if worker is None or worker.done():
            self._workers[agent] = asyncio.create_task(self._work(agent))

    async def settled(self) -> None:
        """Wait until nothing is left to deliver. Raises the disk error that stopped a worker, if any."""
        while self._workers:
            await asyncio.wait(self._workers.values(), return_when=asyncio.FIRST_COMPLETED)
            for agent, worker in list(self._workers.items()):
                if worker.done():
                    del self._workers[agent]
                    worker.result()

    async def answered(self, message_id: str) -> None:
        """Wait until the asking agent has the reply durably, or `user` can fetch it."""
        answer = reply_id(message_id)
        while self._reply(message_id, answer) is None:
            news = asyncio.get_running_loop().create_future()
            self._waiting[answer].append(news)
            for each in (message_id, answer):  # a worker stopped by an error retries, or reports it
                if each in self._journal.state.undelivered:
                    self.kick(self._journal.state.undelivered[each].receiver)
            await news

    async def reply_to(self, message_id: str) -> str:
        """The reply, which is there; `user` receives it through this call."""
        answer = reply_id(message_id)
        found = self._reply(message_id, answer)
        assert found, f"{message_id} is not answered yet"
        reply, outcome = found
        if outcome is None:
            state = self._journal.state
            await self._journal.write(Settled(answer, DELIVERED), lambda: answer in state.undelivered)
        elif outcome != DELIVERED:
            raise NotAnswered(f"the reply could not be delivered to {reply.receiver}: {outcome}")
        if reply.failed:
            raise NotAnswered(reply.content)
        return reply.content

    def _reply(self, message_id: str, answer: str) -> tuple[Message, str | None] | None:
        state = self._journal.state
        question = state.message(message_id)
        if question is not None and not question.wants_reply:
            raise Refused(f"{message_id} is no question")
        if answer in state.settled:
            return state.settled[answer]
        if answer in state.mailboxes.get(OUTSIDE, ()):
            return state.undelivered[answer], None
        if question is None and not state.knows(answer):
            raise Refused(f"unknown message {message_id}")
        return None

    async def _work(self, agent: str) -> None:
        try:
            while message := mailbox.next_for(self._journal.state, agent):
                await self._advance(message)
        except BaseException as error:
            # Otherwise these callers would wait forever.
            for news in [each for waiting in self._waiting.values() for each in waiting]:
                if not news.done():
                    news.set_exception(error)
            self._waiting.clear()
            raise

    async def _advance(self, message: Message) -> None:
        fate = mailbox.fate(self._journal.state, message, self._limits)
        if fate is None:
            await self._try(message)
            return
        if fate.is_failure:
            log.warning("message.set_aside", message_id=message.message_id, reason=fate.outcome)
        change = mailbox.closing(self._journal.state, message, fate)
        await self._journal.write(change)
        told = change.message if isinstance(change, Enqueued) else message
        self.kick(told.receiver)
        for news in self._waiting.pop(told.message_id, ()):
            if not news.done():
                news.set_result(None)

    async def _try(self, message: Message) -> None:
        """Counted first. Suspects run one at a time: if the daemon dies, only one is to blame (D7)."""
        alone = message.tries >= self._limits.suspect
        async with self._suspects if alone else nullcontext():
            change = Tried(message.message_id, message.tries + 1)
            await self._journal.write(change)
            if not await self._take_turn(message):
                await self._journal.write(Tried(message.message_id, message.tries))

    async def _take_turn(self, message: Message) -> bool:
        """Whether the turn had an outcome, even if it was a failure."""
        agent = message.receiver
        try:
            await self._lives.wake(agent)
            async with self._lives.turns[agent]:
                session = self._lives.session(agent)
                if session is None:  # suspended or stopped just now
                    return False
                await self._turn(session, message)
        except Refused:
            pass  # stopped: that decides the message
        except AgentFailed as error:
            log.warning("message.failed", message_id=message.message_id, reason=str(error))
        return True

    async def _turn(self, session: ProviderSession, message: Message) -> None:
        agent = message.receiver
        try:
            with persisting("inference"):
                turn = session.send(message.message_id, message.content)
                reply = checked(agent, await self._lives.answer(agent, turn))
            saved = TurnSaved(agent, blob_of(agent, session), message.message_id, reply)
        except AgentFailed:
            await self._lives.drop(agent)
            raise
        try:
            await self._journal.write(saved, lambda: not self._is_stopped(agent))
        except BaseException:
            # The session contains a turn that is not on disk, so its later blobs must not be saved.
            await self._lives.drop(agent)
            raise

    def _is_stopped(self, agent: str) -> bool:
        return tree.is_stopped(self._journal.state, agent)
