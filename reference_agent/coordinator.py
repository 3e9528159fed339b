"""Coordinator: starts, parks, resumes and cancels runs. It owns what is in memory, and nothing else.

    post ──> run in a task ──> answered | failed | cancelled
                 │    ^
               waits  └── resume with the token, or after a restart: continue
                 │
                 └──> token minted, `run.waiting`, the secret handed out once

What is durable belongs to others: the session's record (log, snapshot, token index), the agent's store,
the token service. What a status is belongs to the projector, what a restart or a deadline ends to the
recovery manager. One run at a time for each session; everything that starts or ends one takes its turn.

Q1  A request is accepted once its `run.started` is durable. Posted again under the same id, it is the
    same request: its outcome is told again, or it goes on where a crash ended it.
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

from reference_agent.agent import Agent, Cancelled, GaveUp, Listener, nobody
from reference_agent.calls import Results, Waits
from reference_agent.ids import Clock
from reference_agent.messages import Message
from reference_agent.sessions.projector import Status, derive
from reference_agent.sessions.record import SessionRecord, session_ids
from reference_agent.sessions.recovery_manager import BootReport, RecoveryManager
from reference_agent.sessions.snapshot import SessionSnapshot
from reference_agent.sessions.times import stamp
from reference_agent.sessions.tokens import TokenService

OpenAgent = Callable[[SessionRecord, Results, Listener], Awaitable[Agent]]
OBSERVED = ("status.derived", "run.interrupted")  # what a stream of events is made of
WAIT = 3600.0  # seconds that a token lives when the tool does not say


class Busy(Exception):
    """A run is in progress; only one goes on at a time."""


class NothingToDo(Exception):
    """There is no run to resume, continue or cancel."""


class NotDurable(Exception):
    """The disk refused: nothing was accepted."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of a request. `token` is there once, for whoever was told first."""

    request_id: str
    run_id: str = ""
    state: str  # running | answered | waiting | failed | cancelled
    answer: str | None = None
    reason: str | None = None
    wait: dict[str, Any] | None = None
    token: str | None = None


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A session as others see it."""

    snapshot: SessionSnapshot
    status: Status
    messages: tuple[Message, ...] = ()


class Session:
    """One session that is open in this process."""

    def __init__(self, record: SessionRecord, tokens: TokenService) -> None:
        self.record = record
        self.tokens = tokens
        self.agent: Agent | None = None
        self.turn = asyncio.Lock()  # whoever starts or ends a run has it
        self.task: asyncio.Task[Outcome] | None = None
        self.outcomes: dict[str, Outcome] = {}
        self.accepted: dict[str, asyncio.Future[str]] = {}  # request -> its run
        self.changed = asyncio.Event()

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done()

    def hear(self, name: str, facts: dict[str, Any]) -> None:
        waiting = self.accepted.get(facts["request"]) if name == "accepted" else None
        if waiting and not waiting.done():
            waiting.set_result(facts["run"])

    def brought(self, call_id: str) -> str | None:
        """What came from outside for a call: with the token that was used up for it."""
        for token in self.record.tokens.values():
            if token.call_id == call_id and token.state == "consumed":
                return str(token.result)
        return None


class Coordinator:
    def __init__(
        self, directory: Path, *, open_agent: OpenAgent, recovery: RecoveryManager, clock: Clock,
        token_service: Callable[[SessionRecord], TokenService] | None = None, tell: Listener = nobody,
    ) -> None:  # fmt: skip
        self._directory = directory
        self._token_service = token_service or (lambda record: TokenService(record, clock))
        self._open_agent = open_agent
        self._recovery = recovery
        self._clock = clock
        self._tell = tell
        self._sessions: dict[str, Session] = {}
        self._opening = asyncio.Lock()

    def boot(self) -> BootReport:
        """Before anybody is served: whatever an older boot left running is interrupted, once."""
        return self._recovery.boot(self._directory)

    async def close(self) -> None:
        for session in self._sessions.values():
            if session.task and session.is_running:
                session.task.cancel()
                await asyncio.wait({session.task})
            if session.agent:
                await session.agent.close()
            session.record.close()
        self._sessions.clear()

    # --- sessions

    async def create(
        self, name: str, *, title: str, provider: str, model: str, working_dir: str = "."
    ) -> View:
        """A new session, or the one that is there already."""
        session = await self.session(
            name, {"title": title or name, "working_dir": working_dir,
                   "provider_type": provider, "model": model},
        )  # fmt: skip
        return self.look(session)

    def names(self) -> list[str]:
        return session_ids(self._directory)

    async def session(self, name: str, create: dict[str, str] | None = None) -> Session:
        async with self._opening:
            if name not in self._sessions:
                record = SessionRecord.open(self._directory, name, clock=self._clock, create=create)
                record.save()
                self._sessions[name] = Session(record, self._token_service(record))
        return self._sessions[name]

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

    # --- runs

    async def post(self, name: str, content: str, request_id: str) -> Outcome:
        """Accepted and durable (Q1), or its outcome if it has one already."""
        session = await self.session(name)
        async with session.turn:
            if known := session.outcomes.get(request_id):
                return without_secret(known)
            self._refuse_if_running(session)
            agent = await self._agent(session)
            accepted = session.accepted[request_id] = asyncio.get_running_loop().create_future()
            task = self._go(session, request_id, self._say(session, agent, content, request_id))
            await asyncio.wait({accepted, task}, return_when=asyncio.FIRST_COMPLETED)
            del session.accepted[request_id]
            if accepted.done():
                return Outcome(request_id=request_id, run_id=accepted.result(), state="running")
            outcome = task.result()
            status = await agent.status()
            if status.degraded:
                raise NotDurable(f"nothing was accepted: {status.last_error}")
            return outcome  # of an earlier boot

    async def _say(self, session: Session, agent: Agent, content: str, request_id: str) -> str:
        answer = await agent.recall(request_id)
        if answer is not None:  # said again, late: nothing that goes on now is touched
            return answer
        try:
            await agent.resume()
        except Waits:
            if agent.parked and agent.parked.request_id == request_id:
                raise
            await self._drop(session, agent)
        except GaveUp:
            pass  # what was accepted earlier has its end; this request is another one
        return await agent.say(content, request_id=request_id)

    async def _drop(self, session: Session, agent: Agent) -> None:
        """Q2: nobody waits any more for what the parked run waited for."""
        await agent.cancel("superseded by a new message")
        self._revoke(session, "superseded")
        with suppress(Cancelled):
            await agent.resume()

    async def outcome(self, name: str, request_id: str) -> Outcome | None:
        """What becomes of a request, when it has; None if this boot has not heard of it."""
        session = await self.session(name)
        if session.task and request_id not in session.outcomes:
            await asyncio.wait({session.task})
        found = session.outcomes.get(request_id)
        if found and found.token:  # told once
            session.outcomes[request_id] = without_secret(found)
        return found

    async def resume(self, name: str, token: str, request_id: str, result: str) -> Outcome:
        """Bring what a run waits for. The token is used up with it (Q3)."""
        session = await self.session(name)
        async with session.turn:
            agent = await self._agent(session)
            consumed = session.tokens.consume(token, request_id, result)
            self._settle(session)
            run_id, parked = consumed.token.run_id, agent.parked
            if parked and parked.run_id == run_id and not session.is_running:
                self._go(session, parked.request_id, self._carry_on(agent))
        return Outcome(request_id=request_id, run_id=run_id, state="running")

    async def go_on(self, name: str) -> Outcome:
        """Take up what a restart or a deadline interrupted (Q4)."""
        session = await self.session(name)
        async with session.turn:
            self._refuse_if_running(session)
            agent = await self._agent(session)
            request = await self._unfinished(agent, "continue")
            self._go(session, request, self._carry_on(agent))
        return Outcome(request_id=request, run_id="", state="running")

    async def cancel(self, name: str) -> Outcome:
        """What is in progress ends with the turn it is in; what waits ends at once."""
        session = await self.session(name)
        async with session.turn:
            agent = await self._agent(session)
            request = await self._unfinished(agent, "cancel")
            await agent.cancel("cancelled by the user")
            task = session.task
            if task is None or task.done():
                self._revoke(session, "cancelled")
                task = self._go(session, request, self._carry_on(agent))
                await asyncio.wait({task})  # in our turn: a sweep would take it for interrupted
        await asyncio.wait({task})
        return task.result()

    async def rotate(self, name: str) -> Outcome:
        """A new token for the run that waits, in the place of the old one."""
        session = await self.session(name)
        async with session.turn:
            run = session.record.snapshot.run
            parked = session.agent.parked if session.agent else None
            if run is None or run.wait is None or parked is None:
                raise NothingToDo("no run waits: there is no token to replace")
            text = session.tokens.rotate(run.wait.resume_token_id or "")
            self._settle(session)
            return waiting(parked.request_id, session.record.snapshot, text)

    async def sweep(self) -> None:
        """From time to time: deadlines that have passed."""
        for session in self._sessions.values():
            async with session.turn:
                self._settle(session)

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

    def _go(
        self, session: Session, request_id: str, work: Coroutine[Any, Any, str]
    ) -> asyncio.Task[Outcome]:
        session.outcomes.pop(request_id, None)
        session.task = asyncio.create_task(self._run(session, request_id, work))
        return session.task

    async def _run(
        self, session: Session, request_id: str, work: Coroutine[Any, Any, str]
    ) -> Outcome:
        try:
            outcome = Outcome(request_id=request_id, state="answered", answer=await work)
        except Waits as waits:
            outcome = self._park(session, waits)
        except Cancelled as error:
            outcome = Outcome(request_id=request_id, state="cancelled", reason=str(error))
        except GaveUp as error:
            outcome = Outcome(request_id=request_id, state="failed", reason=str(error))
        self._settle(session)
        run = session.record.snapshot.run
        outcome = msgspec.structs.replace(outcome, run_id=run.run_id if run else "")
        session.outcomes[outcome.request_id] = outcome
        return outcome

    def _park(self, session: Session, waits: Waits) -> Outcome:
        """The run waits: from now on its token is the only way on."""
        assert session.agent
        assert session.agent.parked
        run = session.agent.parked
        ttl = waits.deadline or WAIT
        text = session.tokens.mint(run.run_id, waits.kind, waits.call.call_id, ttl)
        session.record.append(
            "run.waiting", run_id=run.run_id, wait_kind=waits.kind, call_id=waits.call.call_id,
            resume_token_id=text.partition(".")[0], deadline_at=stamp(self._clock() + ttl),
        )  # fmt: skip
        return waiting(run.request_id, session.record.snapshot, text)

    def _settle(self, session: Session) -> None:
        """After anything happened: deadlines, the derived status, the snapshot, whoever watches."""
        self._recovery.sweep(session.record)
        session.record.save()
        run = session.record.snapshot.run
        if session.agent and run and run.end == "interrupted":
            session.agent.parked = None  # what goes on after that is another run
        session.changed.set()
        session.changed = asyncio.Event()

    # --- who watches

    async def watch(self, name: str, after: int) -> AsyncIterator[dict[str, Any]]:
        """Every status and interruption beyond a seq, those of the past first; then as they come."""
        session = await self.session(name)
        while True:
            changed = session.changed
            news = session.record.events[after:]  # seq counts from 1
            after += len(news)
            for event in news:
                if event["kind"] in OBSERVED:
                    yield event
            await changed.wait()


def waiting(request_id: str, snapshot: SessionSnapshot, token: str) -> Outcome:
    assert snapshot.run
    assert snapshot.run.wait
    wait = snapshot.run.wait
    return Outcome(
        request_id=request_id, run_id=snapshot.run.run_id, state="waiting", token=token,
        wait={"kind": wait.kind, "call_id": wait.call_id, "deadline_at": wait.deadline_at},
    )  # fmt: skip


def without_secret(outcome: Outcome) -> Outcome:
    return msgspec.structs.replace(outcome, token=None)
