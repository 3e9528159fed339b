"""Coordinator: starts, parks, resumes and cancels runs. It owns what is in memory, and nothing else.

    post ──> run in a task ──> answered | failed | cancelled
                 │    ^
               waits  └── resume with the token, or after a restart: continue
                 │
                 └──> token minted, `run.waiting`, the secret handed out once

What is durable belongs to others: the session's record (log, snapshot, token index), the agent's store,
the token service. What a status is belongs to the projector, what a restart or a deadline ends to the
recovery manager. One run at a time for each session; whoever starts or ends one takes its turn, and
nobody holds it while a model thinks.

Q1  A request is accepted once its `run.started` is durable. Posted again under the same id, it is the
    same request: what came of it is told again, or it goes on where a crash ended it.
Q2  A fresh message while a run waits revokes its token and cancels that run; the new one starts.
Q3  A token resumes one run once. The same resume said again (same token, same request) is answered the
    same, whoever else is refused.
Q4  After a restart every run is interrupted, and every token revoked. Nothing goes on by itself:
    `continue`, or any message, takes up what was accepted before (G1).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from reference_agent.ids import Clock
from reference_agent.logs.structured import get_logger
from reference_agent.messages import Message
from reference_agent.recovery.manager import BootReport, RecoveryManager
from reference_agent.service.live_session import Going, Session
from reference_agent.service.outcome import Outcome, View, waiting, without_secret
from reference_agent.sessions.projector import derive
from reference_agent.sessions.record import SessionRecord, session_ids
from reference_agent.sessions.times import stamp
from reference_agent.sessions.tokens import TokenService
from reference_agent.store.backlog import FAILURES, NotDurable
from reference_agent.turn.agent import Agent, Cancelled, GaveUp
from reference_agent.turn.calls import Waits
from reference_agent.turn.runtime import Listener, Results, nobody

log = get_logger(__name__)
OpenAgent = Callable[[SessionRecord, Results, Listener], Awaitable[Agent]]
OBSERVED = ("status.derived", "run.interrupted")  # what a stream of events is made of
WAIT = 3600.0  # seconds that a token lives when the tool does not say


class Busy(Exception):
    """A run is in progress; only one goes on at a time."""


class NothingToDo(Exception):
    """There is no run to resume, continue or cancel."""


class Stopping(Exception):
    """The server ends; what was accepted goes on after the next start."""


class Coordinator:
    def __init__(
        self,
        directory: Path,
        *,
        open_agent: OpenAgent,
        recovery: RecoveryManager,
        clock: Clock,
        token_service: Callable[[SessionRecord], TokenService] | None = None,
        tell: Listener = nobody,
    ) -> None:
        self._directory = directory
        self._token_service = token_service or (lambda record: TokenService(record, clock))
        self._open_agent = open_agent
        self._recovery = recovery
        self._clock = clock
        self._tell = tell
        self._sessions: dict[str, Session] = {}
        self._opening = asyncio.Lock()
        self._stopping = False

    def boot(self) -> BootReport:
        """Before anybody is served: whatever an older boot left running is interrupted, once."""
        return self._recovery.boot(self._directory)

    async def stop(self) -> None:
        """Runs are torn away where they are: the next boot settles it, as after a kill."""
        self._stopping = True
        for session in list(self._sessions.values()):
            if session.going and session.is_running:
                session.torn = True
                session.going.task.cancel()
                await asyncio.wait({session.going.task})
            session.wake()

    async def close(self) -> None:
        await self.stop()
        for session in self._sessions.values():
            if session.agent:
                # A write that was torn away may have happened or not: it must not be tried again here.
                await session.agent.close(catch_up=not session.torn)
            session.record.close()
        self._sessions.clear()

    # --- sessions

    async def create(
        self, name: str, *, title: str, provider: str, model: str, working_dir: str = "."
    ) -> View:
        """A new session, or the one that is there already."""
        session = await self.session(
            name,
            {"title": title or name, "working_dir": working_dir, "provider_type": provider, "model": model},
        )
        return self.look(session)

    def names(self) -> list[str]:
        return session_ids(self._directory)

    async def session(self, name: str, create: dict[str, str] | None = None) -> Session:
        async with self._opening:
            if name not in self._sessions:
                self._sessions[name] = self._open(name, create)
        return self._sessions[name]

    async def glance(self, name: str) -> View:
        """At a session that need not be open: looking at all of them must not open all of them."""
        async with self._opening:
            if name in self._sessions:
                return self.look(self._sessions[name])
            session = self._open(name, None)
            try:
                return self.look(session)
            finally:
                session.record.close()

    def _open(self, name: str, create: dict[str, str] | None) -> Session:
        record = SessionRecord.open(self._directory, name, clock=self._clock, create=create)
        try:
            self._recovery.sweep(record)  # another process may have had it when we booted
        except BaseException:
            record.close()
            raise
        return Session(record, self._token_service(record))

    def look(self, session: Session, messages: Sequence[Message] = ()) -> View:
        record = session.record
        status = derive(record.snapshot, record.tokens, self._recovery.boot_id, self._clock())
        return View(snapshot=record.snapshot, status=status, messages=tuple(messages))

    async def read(self, name: str) -> View:
        session = await self.session(name)
        agent = await self._agent(session)
        return self.look(session, agent.conversation)

    async def _agent(self, session: Session) -> Agent:
        def hear(name: str, facts: dict[str, Any]) -> None:
            self._tell(name, facts)
            session.hear(name, facts)

        async with self._opening:
            if session.agent is None:
                session.agent = await self._open_agent(session.record, session.brought, hear)
                self._settle(session)
        return session.agent

    # --- requests

    async def post(self, name: str, content: str, request_id: str) -> Outcome:
        """Accepted and durable (Q1), or its outcome if it has one already."""
        session = await self.session(name)
        async with session.turn:
            going = session.going
            if going is None or going.task.done() or going.request_id != request_id:
                if known := await self._known(session, request_id):
                    return known
                going = await self._begin(session, content, request_id)
        return await self._accepted(session, going)

    async def _known(self, session: Session, request_id: str) -> Outcome | None:
        """What came of a request in this boot or an earlier one, without its secret."""
        if found := session.outcomes.get(request_id):
            return without_secret(found)
        agent = await self._agent(session)
        try:
            answer = await agent.recall(request_id)
        except Cancelled as error:
            return Outcome(request_id=request_id, state="cancelled", reason=str(error))
        if answer is None:
            return None
        await self._durable(agent)
        return Outcome(request_id=request_id, state="answered", answer=answer)

    async def _begin(self, session: Session, content: str, request_id: str) -> Going:
        self._refuse_if_running(session)
        agent = await self._agent(session)
        if session.parked and session.parked.request_id != request_id:
            await self._supersede(session, agent)
        return self._go(session, request_id, self._say(session, agent, content, request_id))

    async def _say(self, session: Session, agent: Agent, content: str, request_id: str) -> str:
        try:
            await agent.resume()
        except Waits:
            if agent.parked and agent.parked.request_id == request_id:
                raise
            await self._supersede(session, agent)  # it waits again, since a restart
        except GaveUp:
            pass  # what was accepted earlier has its end; this request is another one
        return await agent.say(content, request_id=request_id)

    async def _supersede(self, session: Session, agent: Agent) -> None:
        """Q2: nobody waits any more for what the parked run waited for."""
        if agent.parked:
            session.outcomes.pop(agent.parked.request_id, None)
        await agent.cancel("superseded by a new message")
        self._revoke(session, "superseded")
        while await agent.unfinished():
            with suppress(GaveUp):
                await agent.resume()

    async def _accepted(self, session: Session, going: Going) -> Outcome:
        either: set[asyncio.Future[Any]] = {going.accepted, going.task}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not going.accepted.done():  # it came to nothing, or had nothing left to start
            return self._tell_once(session, going.task.result())
        if not going.task.done():
            self._settle(session)  # those who watch see it running
        run_id = going.accepted.result()
        return Outcome(request_id=going.request_id, run_id=run_id, state="running")

    async def ended(self, name: str, request_id: str) -> None:
        """Until nobody sees to a request any more."""
        going = (await self.session(name)).going
        if going and going.request_id == request_id:
            await asyncio.wait({going.task})

    async def outcome(self, name: str, request_id: str) -> Outcome | None:
        """What becomes of a request, when it has; None if it has no end and nobody sees to it."""
        await self.ended(name, request_id)
        session = await self.session(name)
        if found := session.outcomes.get(request_id):
            return self._tell_once(session, found)
        if known := await self._known(session, request_id):
            return known
        if session.going and session.going.request_id == request_id:
            session.going.task.result()  # raises: that is why there is none
        return None

    def _tell_once(self, session: Session, outcome: Outcome) -> Outcome:
        """The secret to one only, whoever else waited for the same."""
        kept = session.outcomes.get(outcome.request_id)
        if kept is None or kept.token != outcome.token:
            return without_secret(outcome)
        session.outcomes[outcome.request_id] = without_secret(kept)
        return kept

    # --- runs that wait, or were interrupted

    async def resume(self, name: str, token: str, request_id: str, result: str) -> Outcome:
        """Bring what a run waits for. The token is used up with it (Q3)."""
        session = await self.session(name)
        async with session.turn:
            agent = await self._agent(session)
            consumed = session.tokens.consume(token, request_id, result)
            self._settle(session)
            run_id, parked = consumed.token.run_id, agent.parked
            if parked and parked.run_id == run_id and not session.is_running:
                going = self._go(session, parked.request_id, self._carry_on(agent))
                going.accepted.set_result(run_id)
        return Outcome(request_id=request_id, run_id=run_id, state="running")

    async def go_on(self, name: str) -> Outcome:
        """Take up what a restart or a deadline interrupted (Q4)."""
        session = await self.session(name)
        async with session.turn:
            self._refuse_if_running(session)
            agent = await self._agent(session)
            request = await self._unfinished(agent, "continue")
            if session.parked:
                raise NothingToDo("the run waits: bring what it waits for, or get a new token")
            going = self._go(session, request, self._carry_on(agent))
        return await self._accepted(session, going)

    async def cancel(self, name: str) -> Outcome:
        """What is in progress ends with the turn it is in; what waits ends at once."""
        session = await self.session(name)
        async with session.turn:
            agent = await self._agent(session)
            request = await self._unfinished(agent, "cancel")
            await agent.cancel("cancelled by the user")
            if session.is_running:
                return Outcome(request_id=request, state="running")
            self._revoke(session, "cancelled")
            going = self._go(session, request, self._carry_on(agent))
            await asyncio.wait({going.task})  # in our turn: a sweep would take it for interrupted
            return going.task.result()

    async def rotate(self, name: str) -> Outcome:
        """A new token for the run that waits, in the place of the old one."""
        session = await self.session(name)
        async with session.turn:
            run, parked = session.record.snapshot.run, session.parked
            if run is None or run.wait is None or parked is None:
                raise NothingToDo("no run waits: there is no token to replace")
            text = session.tokens.rotate(run.wait.resume_token_id or "")
            self._settle(session)
            found = waiting(parked.request_id, session.record.snapshot, text)
            session.outcomes[parked.request_id] = without_secret(found)
            return found

    async def sweep(self) -> None:
        """From time to time: deadlines that have passed, and what a disk refused to take."""
        for session in list(self._sessions.values()):
            async with session.turn:
                try:
                    if session.agent:
                        await session.agent.catch_up()
                    self._settle(session)
                except FAILURES as error:  # the others have deadlines too
                    log.warning("sweep.failed", session_id=session.record.session, error=str(error))

    async def _unfinished(self, agent: Agent, what: str) -> str:
        requests = await agent.unfinished()
        if not requests:
            raise NothingToDo(f"no request is unfinished: there is nothing to {what}")
        return requests[-1].request_id

    async def _carry_on(self, agent: Agent) -> str:
        return await agent.resume() or ""

    def _revoke(self, session: Session, reason: str) -> None:
        run = session.record.snapshot.run
        token_id = run.wait.resume_token_id if run and run.wait else None
        if token_id is not None and token_id in session.record.tokens:
            session.tokens.revoke(token_id, reason)

    def _refuse_if_running(self, session: Session) -> None:
        if session.is_running:
            raise Busy("a run is in progress: wait for it, or cancel it")

    # --- one run, until it ends or waits

    def _go(self, session: Session, request_id: str, work: Coroutine[Any, Any, str]) -> Going:
        if self._stopping:
            work.close()
            raise Stopping("the server is about to end: come back when it is there again")
        session.outcomes.pop(request_id, None)
        session.going = Going(request_id, self._run(session, request_id, work))
        return session.going

    async def _run(self, session: Session, request_id: str, work: Coroutine[Any, Any, str]) -> Outcome:
        try:
            outcome = await self._outcome_of(session, request_id, work)
            self._settle(session)
        except FAILURES as error:
            raise NotDurable(f"the disk refused: {error}") from error
        except asyncio.CancelledError:
            raise Stopping("the server ends; this request goes on after its next start") from None
        except NotDurable:
            raise
        except Exception:
            log.exception("run.broken", request_id=request_id)
            raise
        run = session.record.snapshot.run
        outcome = msgspec.structs.replace(outcome, run_id=run.run_id if run else "")
        session.outcomes[outcome.request_id] = outcome
        return outcome

    async def _outcome_of(self, session: Session, request_id: str, work: Coroutine[Any, Any, str]) -> Outcome:
        assert session.agent
        waits = None
        outcome = Outcome(request_id=request_id, state="answered")
        try:
            outcome = msgspec.structs.replace(outcome, answer=await work)
        except Waits as found:
            waits = found
        except Cancelled as error:
            outcome = Outcome(request_id=request_id, state="cancelled", reason=str(error))
        except GaveUp as error:
            outcome = Outcome(request_id=request_id, state="failed", reason=str(error))
        await self._durable(session.agent)  # before anything is told, or a token given (G8)
        return self._park(session, waits) if waits else outcome

    async def _durable(self, agent: Agent) -> None:
        if not await agent.catch_up():
            error = (await agent.status()).last_error
            raise NotDurable(f"the disk refused ({error}): say it again, under the same id")

    def _park(self, session: Session, waits: Waits) -> Outcome:
        """The run waits: from now on its token is the only way on."""
        assert session.agent
        assert session.agent.parked
        run = session.agent.parked
        ttl = waits.deadline or WAIT
        text = session.tokens.mint(run.run_id, waits.kind, waits.call.call_id, ttl)
        session.record.append(
            "run.waiting",
            run_id=run.run_id,
            wait_kind=waits.kind,
            call_id=waits.call.call_id,
            resume_token_id=text.partition(".")[0],
            deadline_at=stamp(self._clock() + ttl),
        )
        return waiting(run.request_id, session.record.snapshot, text)

    def _settle(self, session: Session) -> None:
        """After anything happened: deadlines, the derived status, the snapshot, whoever watches."""
        self._recovery.sweep(session.record)
        run, agent = session.record.snapshot.run, session.agent
        if agent and agent.parked and run and run.end == "interrupted":
            session.outcomes.pop(agent.parked.request_id, None)  # it does not wait any more
            agent.parked = None  # what goes on after that is another run
        session.wake()

    # --- who watches

    async def watch(self, name: str, after: int) -> AsyncIterator[dict[str, Any]]:
        """Every status and interruption beyond a seq, those of the past first; then as they come."""
        session = await self.session(name)
        while not self._stopping:
            changed = session.changed
            news = session.record.events[after:]  # seq counts from 1
            after += len(news)
            for event in news:
                if event["kind"] in OBSERVED:
                    yield event
            await changed.wait()
