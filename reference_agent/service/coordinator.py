"""Coordinator: starts, parks, resumes and cancels runs. It owns only in-memory state.

    post ──> run in a task ──> answered | failed | cancelled
                 │    ^
               waits  └── resume with the token, or after a restart: continue
                 │
                 └──> token minted, `run.waiting`, the secret handed out once

Durable state belongs to others: the session's record (log, snapshot, token index), the agent's store, the
token service. The projector derives the status, and the recovery manager decides what a restart or a
deadline ends. Each session has one run at a time. Code that starts or ends a run holds the session's `turn`
lock, but never while a model call is in progress.

Q1  A request is accepted once its `run.started` is durable. Posted again under the same id, it is the same
    request: its outcome is returned again, or it resumes where a crash ended it. With other content it is
    refused.
Q2  A new message while a run waits revokes the run's token and cancels the run; then the new run starts.
Q3  A token resumes one run once. Repeating the same resume (same token, same request) returns the same
    answer; any other use is refused.
Q4  A restart interrupts every run and revokes every token. Nothing resumes by itself: `continue`, or any
    message, resumes the requests accepted before (G1).
"""

from __future__ import annotations

import asyncio
import itertools
import resource
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
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
from reference_agent.store.records import OtherContent, Run
from reference_agent.turn.agent import Agent
from reference_agent.turn.calls import Waits
from reference_agent.turn.ending import Cancelled, GaveUp
from reference_agent.turn.runtime import Listener, Results, nobody

log = get_logger(__name__)
OpenAgent = Callable[[SessionRecord, Results, Listener], Awaitable[Agent]]
OBSERVED = ("status.derived", "run.interrupted")  # the lines that a stream of events contains
FEWEST_OPEN, MOST_OPEN = 4, 200  # sessions
RESERVED, PER_SESSION = 48, 8  # descriptors
WAIT = 3600.0  # lifetime of a token in seconds if the tool sets no deadline


class Busy(Exception):
    """A run is in progress; a session has only one at a time."""


class NothingToDo(Exception):
    """There is no run to resume, continue or cancel."""


class Stopping(Exception):
    """The server is shutting down; accepted requests can be resumed after the next start."""


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
        most_open: int | None = None,
    ) -> None:
        self._directory = directory
        self._token_service = token_service or (lambda record: TokenService(record, clock))
        self._open_agent = open_agent
        self._recovery = recovery
        self._clock = clock
        self._tell = tell
        self._sessions: dict[str, Session] = {}
        self._most_open = most_open or as_many_as_fit()
        self._uses = itertools.count(1)
        self._opening = asyncio.Lock()
        self._stopping = False
        self._closed = False

    def boot(self) -> BootReport:
        """Before any request is served: interrupt every run that an older boot left running, once."""
        return self._recovery.boot(self._directory)

    async def stop(self) -> None:
        """Abort runs where they are; the next boot settles them as after a kill."""
        self._stopping = True
        for session in list(self._sessions.values()):
            if session.going and session.is_running:
                session.torn = True
                session.going.task.cancel()
                await asyncio.wait({session.going.task})
            session.wake()

    async def close(self) -> None:
        await self.stop()
        async with self._opening:  # nobody opens one again: its lock would outlive the server
            self._closed = True
            for session in self._sessions.values():
                await self._close(session)
            self._sessions.clear()

    async def _close(self, session: Session) -> None:
        agent, session.agent = session.agent, None
        if agent:
            # An aborted write may or may not have happened, so it must not be retried here.
            await agent.close(catch_up=not session.torn)
        session.record.close()

    # --- sessions

    async def create(
        self, name: str, *, title: str, provider: str, model: str, working_dir: str = "."
    ) -> View:
        """Create a session, or return the existing one."""
        facts = {
            "title": title or name,
            "working_dir": working_dir,
            "provider_type": provider,
            "model": model,
        }
        async with self._using(name, facts) as session:
            return self.look(session)

    def names(self) -> list[str]:
        return session_ids(self._directory)

    async def session(self, name: str, create: dict[str, str] | None = None) -> Session:
        """For a look at it. What takes time is done within `_using`, which keeps it open."""
        async with self._using(name, create) as session:
            return session

    @asynccontextmanager
    async def _using(self, name: str, create: dict[str, str] | None = None) -> AsyncIterator[Session]:
        async with self._opening:
            self._refuse_if_closed()
            session = self._awake(name, create)
            session.users += 1
            session.last_used = next(self._uses)
            await self._make_room()
        try:
            yield session
        finally:
            session.users -= 1

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise Stopping("the server has stopped: retry after its next start")

    def _awake(self, name: str, create: dict[str, str] | None) -> Session:
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = self._open(name, create)
        elif session.dormant:
            fresh = self._open(name, create)
            session.wakes_up(fresh.record, fresh.tokens)
        return session

    async def _make_room(self) -> None:
        """An open session holds files. Those that were not used for the longest time are closed; they are
        opened again when somebody needs them."""
        awake = [session for session in self._sessions.values() if not session.dormant]
        for session in sorted(awake, key=lambda session: session.last_used):
            if len(awake) <= self._most_open:
                return
            if session.can_sleep:
                session.dormant = True
                await self._close(session)
                awake.remove(session)

    async def glance(self, name: str) -> View:
        """View a session without keeping it open: listing all sessions must not open all of them."""
        async with self._opening:
            self._refuse_if_closed()
            if name in self._sessions and not self._sessions[name].dormant:
                return self.look(self._sessions[name])
            session = self._open(name, None)
            try:
                return self.look(session)
            finally:
                session.record.close()

    def _open(self, name: str, create: dict[str, str] | None) -> Session:
        record = SessionRecord.open(self._directory, name, clock=self._clock, create=create)
        try:
            self._recovery.sweep(record)  # another process may have had it open when we booted
        except BaseException:
            record.close()
            raise
        return Session(record, self._token_service(record))

    def look(self, session: Session, messages: Sequence[Message] = ()) -> View:
        record = session.record
        status = derive(record.snapshot, record.tokens, self._recovery.boot_id, self._clock())
        return View(snapshot=record.snapshot, status=status, messages=tuple(messages))

    async def read(self, name: str) -> View:
        async with self._using(name) as session:
            agent = await self._agent(session)
            return self.look(session, agent.conversation)

    async def _agent(self, session: Session) -> Agent:
        def hear(name: str, facts: dict[str, Any]) -> None:
            self._tell(name, facts)
            session.hear(name, facts)

        async with self._opening:
            self._refuse_if_closed()
            if session.agent is None:
                session.agent = await self._open_agent(session.record, session.brought, hear)
                self._settle(session)
                run = session.record.snapshot.run
                if run and run.wait and run.end is None and run.request_id:  # it was dormant, and waits
                    session.agent.park(Run(run.run_id, run.request_id, run.boot_id or ""))
        return session.agent

    # --- requests

    async def post(self, name: str, content: str, request_id: str) -> Outcome:
        """Accept the request durably (Q1), or return its outcome if it already has one."""
        async with self._using(name) as session:
            async with session.turn:
                going = session.going
                await self._check_repeat(session, content, request_id)
                if going is None or going.task.done() or going.request_id != request_id:
                    if known := await self._known(session, request_id):
                        return known
                    going = await self._begin(session, content, request_id)
            return await self._accepted(session, going)

    async def _check_repeat(self, session: Session, content: str, request_id: str) -> None:
        """Q1: the latest request may not have reached the store yet."""
        latest = session.going
        if latest and latest.request_id == request_id and latest.content not in (None, content):
            raise OtherContent(request_id)
        agent = await self._agent(session)
        await agent.check_repeat(content, request_id)

    async def _known(self, session: Session, request_id: str) -> Outcome | None:
        """The outcome of a request from this boot or an earlier one, without its secret."""
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
        going = self._go(session, request_id, self._say(session, agent, content, request_id))
        going.content = content
        return going

    async def _say(self, session: Session, agent: Agent, content: str, request_id: str) -> str:
        try:
            await agent.resume()
        except Waits:
            if agent.parked and agent.parked.request_id == request_id:
                raise
            await self._supersede(session, agent)  # it waits again since a restart
        except GaveUp:
            if agent.has_given_up(request_id):
                raise
            # Another request has ended; this one can still be fulfilled.
        return await agent.say(content, request_id=request_id)

    async def _supersede(self, session: Session, agent: Agent) -> None:
        """Q2: the result that the parked run waits for is no longer wanted."""
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
        if not going.accepted.done():  # it failed, or there was nothing left to start
            return self._tell_once(session, going.task.result())
        if not going.task.done():
            self._settle(session)  # let watchers see it running
        run_id = going.accepted.result()
        return Outcome(request_id=going.request_id, run_id=run_id, state="running")

    async def ended(self, name: str, request_id: str) -> None:
        """Wait until no task works on the request any more."""
        while (going := (await self.session(name)).going) and going.request_id == request_id:
            if going.task.done():
                return
            await asyncio.wait({going.task})

    async def outcome(self, name: str, request_id: str) -> Outcome | None:
        """Wait for the outcome of a request; None if it has no end and no task works on it."""
        async with self._using(name) as session:
            await self.ended(name, request_id)
            if found := session.outcomes.get(request_id):
                return self._tell_once(session, found)
            if known := await self._known(session, request_id):
                return known
            if session.going and session.going.request_id == request_id and session.going.task.done():
                session.going.task.result()  # raises the error that explains why there is none
            return None

    def _tell_once(self, session: Session, outcome: Outcome) -> Outcome:
        """Return the secret to one caller only, even if several waited for the same outcome."""
        kept = session.outcomes.get(outcome.request_id)
        if kept is None or kept.token != outcome.token:
            return without_secret(outcome)
        session.outcomes[outcome.request_id] = without_secret(kept)
        return kept

    # --- runs that wait, or were interrupted

    async def resume(self, name: str, token: str, request_id: str, result: str) -> Outcome:
        """Deliver the result a run waits for. This consumes the token (Q3)."""
        async with self._using(name) as session, session.turn:
            agent = await self._agent(session)
            consumed = session.tokens.consume(token, request_id, result)
            self._settle(session)
            run_id, parked = consumed.token.run_id, agent.parked
            if parked and parked.run_id == run_id and not session.is_running and not session.waits:
                going = self._go(session, parked.request_id, self._carry_on(agent))
                going.accepted.set_result(run_id)
        return Outcome(request_id=request_id, run_id=run_id, state="running")

    async def go_on(self, name: str) -> Outcome:
        """Resume what a restart or a deadline interrupted (Q4)."""
        async with self._using(name) as session:
            async with session.turn:
                self._refuse_if_running(session)
                agent = await self._agent(session)
                request = await self._unfinished(agent, "continue")
                if session.parked:
                    raise NothingToDo("the run is waiting: resume it with its token, or get a new token")
                going = self._go(session, request, self._carry_on(agent))
            return await self._accepted(session, going)

    async def cancel(self, name: str) -> Outcome:
        """A running request ends after its current turn; a waiting one ends at once."""
        async with self._using(name) as session, session.turn:
            agent = await self._agent(session)
            request = await self._unfinished(agent, "cancel")
            await agent.cancel("cancelled by the user")
            if not agent.is_cancelled(request):  # it has ended meanwhile, or its start could not be written
                raise NothingToDo("there is no unfinished request to cancel any more")
            if session.is_running:
                return Outcome(request_id=request, state="running")
            self._revoke(session, "cancelled")
            going = self._go(session, request, self._carry_on(agent))
            await asyncio.wait({going.task})  # while holding `turn`: a sweep would record it as interrupted
            return going.task.result()

    async def rotate(self, name: str) -> Outcome:
        """Replace the token of the waiting run."""
        async with self._using(name) as session, session.turn:
            await self._agent(session)
            run, parked = session.record.snapshot.run, session.parked
            if run is None or run.wait is None or parked is None:
                raise NothingToDo("no run is waiting: there is no token to replace")
            text = session.tokens.rotate(run.wait.resume_token_id or "")
            self._settle(session)
            found = waiting(parked.request_id, session.record.snapshot, text)
            session.outcomes[parked.request_id] = without_secret(found)
            return found

    async def sweep(self) -> None:
        """Run periodically: handle deadlines that have passed, and retry writes that the disk refused."""
        for name, session in list(self._sessions.items()):
            if session.dormant and not self._recovery.is_due(session.record):
                continue  # opening it would only close another one
            try:
                async with self._using(name), session.turn:
                    if session.agent:
                        await session.agent.catch_up()
                    self._settle(session)
            except FAILURES as error:  # the other sessions have deadlines too
                log.warning("sweep.failed", session_id=name, error=str(error))

    async def _unfinished(self, agent: Agent, what: str) -> str:
        requests = await agent.unfinished()
        if not requests:
            raise NothingToDo(f"there is no unfinished request to {what}")
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
            raise Stopping("the server is shutting down: retry after its next start")
        session.outcomes.pop(request_id, None)
        session.going = Going(request_id, self._run(session, request_id, work))
        return session.going

    async def _run(self, session: Session, request_id: str, work: Coroutine[Any, Any, str]) -> Outcome:
        try:
            outcome = await self._outcome_of(session, request_id, work)
            self._settle(session)
        except FAILURES as error:
            raise NotDurable(f"a write failed: {error}") from error
        except asyncio.CancelledError:
            raise Stopping(
                "the server is shutting down; this request continues after its next start"
            ) from None
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
        await self._durable(session.agent)  # before anything is reported, or a token issued (G8)
        if waits and session.agent.is_cancelled(request_id):  # meanwhile: it must not wait any more
            return await self._outcome_of(session, request_id, self._carry_on(session.agent))
        return self._park(session, waits) if waits else outcome

    async def _durable(self, agent: Agent) -> None:
        if not await agent.catch_up():
            error = (await agent.status()).last_error
            raise NotDurable(f"a write failed ({error}): retry with the same id")

    def _park(self, session: Session, waits: Waits) -> Outcome:
        """Park the run: from now on, only its token can resume it."""
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
        """After every change: apply deadlines, derive the status, save the snapshot, wake watchers."""
        self._recovery.sweep(session.record)
        run, agent = session.record.snapshot.run, session.agent
        if agent and agent.parked and run and run.end == "interrupted":
            session.outcomes.pop(agent.parked.request_id, None)  # it no longer waits
            agent.parked = None  # whatever resumes later is a new run
        session.wake()

    # --- watchers

    async def watch(self, name: str, after: int) -> AsyncIterator[dict[str, Any]]:
        """Yield every status and interruption after a seq: past ones first, then new ones as they occur."""
        async with self._using(name) as session:
            while not self._stopping:
                changed = session.changed
                news = session.record.events[after:]  # seq counts from 1
                after += len(news)
                for event in news:
                    if event["kind"] in OBSERVED:
                        yield event
                await changed.wait()


def as_many_as_fit() -> int:
    """How many sessions may be open at once: each has up to six files, and there must be room for clients."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(FEWEST_OPEN, min(MOST_OPEN, (soft - RESERVED) // PER_SESSION))
