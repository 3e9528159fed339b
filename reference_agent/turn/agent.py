"""The agent: accepts requests, lets the model decide and the tools act, and survives being killed.

One turn, and what is durable after each step:

    request accepted ─ user's message ─┐
    ┌──────────────────────────────────┘
    ├─> decision recorded ─ assistant message ─ [issue ─ act ─ finish ─ result]* ─ checkpoint ─┐
    │       (journal)                               (journal)                                   │
    └──────────── more to do ───────────────────────────────────────────────────────────────────┤
                                                             answer recorded ─ acknowledged <───┘

A crash discards the messages after the last checkpoint, and the agent replays those turns. It takes
recorded decisions from the journal, answers or settles recorded calls from the journal, and asks the model
or runs a tool only for what the journal does not contain (G3 to G5). Once a decision may have had effects,
the model gets no chance to decide differently.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec

from reference_agent.logs.structured import get_logger
from reference_agent.messages import Budget, Message, Plan, ToolCall, storable, unanswered
from reference_agent.providers.base import ModelError, Provider
from reference_agent.recovery.rollback import Recovery
from reference_agent.store.backlog import Backlog
from reference_agent.store.kinds import Location
from reference_agent.store.records import OtherContent, RecordedCall, Request, Run, StoredCheckpoint
from reference_agent.turn import hooks
from reference_agent.turn.asking import ModelCaller, Watcher
from reference_agent.turn.calls import ToolRunner, Waits
from reference_agent.turn.ending import Cancelled, GaveUp
from reference_agent.turn.opening import HeldLog, OpenSession, open_session
from reference_agent.turn.options import Options
from reference_agent.turn.runtime import Runtime
from reference_agent.turn.tools import Toolbox

log = get_logger(__name__)


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """`degraded`: recent work is not durable yet, and none of it has been acknowledged."""

    degraded: bool
    waiting: int
    last_error: str | None
    budget: Budget
    open_questions: tuple[RecordedCall, ...]


class Agent:
    """One open session. Call `Agent.open`, then `say`, and `close` when done."""

    def __init__(
        self,
        session: OpenSession,
        *,
        provider: Provider,
        toolbox: Toolbox,
        runtime: Runtime,
        options: Options,
    ) -> None:
        self._directory = session.directory
        self._store = session.store
        self._events = session.events
        self._lock = session.lock
        self._boot = session.boot
        self._toolbox = toolbox
        self._hooks = runtime.hooks
        self._new_id = runtime.new_id
        self._clock = runtime.clock
        self._tell = runtime.tell
        self._options = options
        self._backlog = Backlog(runtime.sleep)
        self._runner = ToolRunner(
            session=session.name,
            store=session.store,
            backlog=self._backlog,
            toolbox=toolbox,
            runtime=runtime,
            deadline=options.tool_deadline,
        )
        self._model = ModelCaller(
            provider=provider,
            specs=toolbox.specs(),
            store=session.store,
            backlog=self._backlog,
            runtime=runtime,
            options=options,
            why_cancelled=lambda: self._runner.cancelled,
        )
        self.parked: Run | None = None  # a run that waits for a result from outside
        self.plan: Plan | None = None
        self._conversation: list[Message] = []
        self._turns: list[int] = []  # the turn of each message; never decreases
        self._saved = 0  # how many messages the last checkpoint has
        self._last_turn = 0  # the highest that was ever used
        self._budget = Budget(limit_tokens=options.limit_tokens)
        self._checkpointed = StoredCheckpoint(0, 0, 0, None, self._budget)
        self._checkpoint_time = runtime.clock()
        # Requests that ended in this process, with their answer if any: the store may lag behind.
        self._ended: dict[str, str | None] = {}
        self._said_by_hooks: list[str] = []  # for the next model call, never persisted
        # Cancelled requests, and the reason for each.
        self._cancelled: dict[str, str] = {
            event["request_id"]: event["reason"]
            for event in session.events.events
            if event["kind"] == "request.cancelled"
        }
        self._in_progress: str | None = None

    @classmethod
    async def open(
        cls,
        location: Location,
        *,
        session: str,
        provider: Provider,
        toolbox: Toolbox,
        runtime: Runtime,
        options: Options | None = None,
        held: HeldLog | None = None,
    ) -> Agent:
        """Open a session and recover it. A caller that already holds its lock and log passes `held`."""
        options = options or Options()
        async with AsyncExitStack() as opened:  # closes what is already open if a later step fails
            found = await open_session(opened, location, session, runtime, options, held)
            # A relative path, so that the state directory can be moved together with its scratchpads.
            await found.store.create_session(provider.model, provider.name, f"{session}.scratch")
            checkpoint = await Recovery(found.store, found.events, found.boot).recover()
            agent = cls(found, provider=provider, toolbox=toolbox, runtime=runtime, options=options)
            await agent._load(checkpoint)
            opened.pop_all()
        log.info(
            "session.open",
            agent_id=options.agent_id,
            session_id=session,
            model=provider.model,
            provider=provider.name,
        )
        return agent

    async def _load(self, checkpoint: StoredCheckpoint | None) -> None:
        stored = await self._store.messages()
        self._conversation = [each.message for each in stored]
        # Older releases counted the turns of each request from 0.
        self._turns = list(accumulate((each.turn for each in stored), max))
        self._last_turn = max([await self._store.last_turn(), *self._turns[-1:]])
        spent = await self._store.spent_tokens()
        self._budget = Budget(spent, self._options.limit_tokens)
        if checkpoint:
            self._saved = len(stored)
            self._checkpointed = checkpoint
            self.plan = await self._store.plan(checkpoint)

    async def catch_up(self) -> bool:
        """Persist writes that wait for the disk to work again. Return whether none are left."""
        return await self._backlog.catch_up()

    async def close(self, *, catch_up: bool = True) -> None:
        if catch_up:
            await self.catch_up()
        await self._store.close()
        if self._lock:
            self._events.close()
            self._lock.release()

    @property
    def conversation(self) -> Sequence[Message]:
        return self._conversation

    async def scratchpad(self) -> Path:
        """The session's own directory for notes, created on first use."""
        path = self._directory / (await self._store.scratchpad() or ".")
        if not path.parent.exists():  # older releases stored an absolute path; the directory has moved
            path = self._directory / path.name
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    @property
    def degraded(self) -> bool:
        return self._backlog.degraded

    def park(self, run: Run) -> None:
        """Continue to wait, after the session was closed and opened again by the same process."""
        self.parked = run

    async def status(self) -> Status:
        return Status(
            degraded=self._backlog.degraded,
            waiting=len(self._backlog),
            last_error=self._backlog.last_error,
            budget=self._budget,
            open_questions=tuple(await self._store.open_questions()),
        )

    # --- requests

    async def say(self, content: str, *, request_id: str, watch: Watcher | None = None) -> str:
        """Fulfil a request. A second call with the same id resumes the request or returns its answer again.

        With `watch`, the model is asked for a stream and its text is shown as it arrives.
        """
        content = str(storable(content))
        answer = await self.recall(request_id)
        if answer is not None:
            return answer
        for request in await self.unfinished():
            try:
                answer = await self._fulfil(request, watch)
            except GaveUp:
                if request.request_id == request_id:
                    raise
                # Another one has ended; this one can still be fulfilled.
            else:
                if request.request_id == request_id:
                    return answer
        known = await self._store.request(request_id)
        request = known or Request(request_id, content, self._new_turn())
        if not self._can_go_on(request):
            request = Request(request_id, request.content, self._new_turn())
        return await self._fulfil(request, watch)

    async def recall(self, request_id: str) -> str | None:
        """Return the answer of a request that has one; raise Cancelled if the request was cancelled."""
        known = await self._store.request(request_id)
        answer = self._ended.get(request_id) or (known.answer if known else None)
        # An answer that came before the cancellation has already been acknowledged.
        if answer is None and request_id in self._cancelled:
            raise Cancelled(self._cancelled[request_id])
        return answer

    async def check_repeat(self, content: str, request_id: str) -> None:
        """Raise OtherContent if the id belongs to a request with other content."""
        known = await self._store.request(request_id)
        if known and known.content != storable(content):
            raise OtherContent(request_id)

    async def resume(self, watch: Watcher | None = None) -> str | None:
        """Fulfil requests that were accepted but not answered (G1). Return the last answer, if any."""
        answer = None
        for request in await self.unfinished():
            answer = await self._fulfil(request, watch)
        return answer

    async def unfinished(self) -> list[Request]:
        """Requests that were accepted and neither answered nor given up."""
        known = await self._store.unfinished_requests()
        return [request for request in known if request.request_id not in self._ended]

    def _can_go_on(self, request: Request) -> bool:
        """Whether nothing of another request was added since this one was given up, or rolled back."""
        first = bisect_left(self._turns, request.first_turn)
        if first == len(self._turns):
            return True
        users = sum(message.role == "user" for message in self._conversation[first:])
        return self._turns[first] == request.first_turn and users == 1

    def _new_turn(self) -> int:
        """A turn that was never used: what is recorded for one request must not be taken for another's."""
        return self._last_turn + 1

    async def _fulfil(self, request: Request, watch: Watcher | None) -> str:
        self._in_progress = request.request_id
        self._runner.cancelled = self._cancelled.get(request.request_id)
        run = await self._start(request)
        try:
            await self._fire(hooks.AgentStart(request.content))
            answer = await self._take_turns_unless_it_waits(request, watch)
        except Waits:
            self.parked = run
            raise
        except Cancelled as error:
            await self._give_up(run, str(error), "run.cancelled")
            raise
        except (GaveUp, ModelError) as error:
            await self._give_up(run, str(error), "run.failed")
            raise GaveUp(str(error)) from error
        await self._finish(run, answer)
        await self._hooks.fire(hooks.AgentStop(answer))  # too late to decide anything
        return answer

    async def cancel(self, reason: str) -> None:
        """End unfinished requests after their current turn, so that no decision is left half carried out.

        The cancellation is durable first: a crash in that turn must not revive the request.
        """
        for request in await self.unfinished():
            name = request.request_id
            if name not in self._cancelled:
                self._events.append("request.cancelled", request_id=name, reason=reason)
                self._cancelled[name] = reason
            if self._in_progress == name:
                self._runner.cancelled = reason

    def has_given_up(self, request_id: str) -> bool:
        """Whether it ended without an answer in this process, and was not started again since."""
        return request_id in self._ended and self._ended[request_id] is None

    def is_cancelled(self, request_id: str) -> bool:
        return request_id in self._cancelled

    async def _start(self, request: Request) -> Run:
        """Start a new run, or continue the parked one."""
        self._ended.pop(request.request_id, None)
        self._last_turn = max(self._last_turn, request.first_turn)
        parked, self.parked = self.parked, None
        if parked and parked.request_id == request.request_id:
            return parked
        run = Run(self._new_id("run"), request.request_id, self._boot)
        await self._backlog.write("run.start", lambda: self._store.start_run(run, request))
        await self._log(
            "run.started",
            run_id=run.run_id,
            request_id=run.request_id,
            boot_id=run.boot_id,
            then=("accepted", {"request": run.request_id, "run": run.run_id}),
        )
        return run

    async def _finish(self, run: Run, answer: str) -> None:
        self._ended[run.request_id] = answer
        await self._backlog.write("run.complete", lambda: self._store.complete_run(run, answer))
        await self._log(
            "run.completed", run_id=run.run_id, then=("answer", {"request": run.request_id, "answer": answer})
        )

    async def _give_up(self, run: Run, reason: str, event: str) -> None:
        log.error(event, run_id=run.run_id, reason=reason)
        self._ended[run.request_id] = None
        await self._answer_open_calls(reason)
        if self._turns and not self._is_open() and len(self._conversation) > self._saved:
            # No later run replays these turns: a restart must not roll them back, nor the last calls of one.
            await self._checkpoint(self._turns[-1], complete=True)
        await self._backlog.write("run.end", lambda: self._store.end_run(run, "failed", reason))
        await self._log(event, run_id=run.run_id, reason=reason)

    async def _answer_open_calls(self, reason: str) -> None:
        """The next request must not find a call without its result."""
        for call in unanswered(self._conversation):
            await self._add(await self._runner.give_up(call, reason), self._turns[-1])

    async def _log(self, kind: str, *, then: tuple[str, dict[str, Any]] | None = None, **fields: Any) -> None:
        """Append an event after every earlier write; `then` is reported once the event is durable."""

        async def append() -> None:
            seq = self._events.append(kind, **fields)
            if then:
                then[1]["log_seq"] = seq

        await self._backlog.write(kind, append, lambda: self._tell(*then) if then else None)

    # --- turns

    async def _take_turns_unless_it_waits(self, request: Request, watch: Watcher | None) -> str:
        while True:
            try:
                return await self._take_turns(request, watch)
            except Waits:
                # Cancelled while parallel calls were running: the one that waits has a result now.
                if self._runner.cancelled is None:
                    raise

    async def _take_turns(self, request: Request, watch: Watcher | None) -> str:
        if not self._said_in(request.first_turn):  # a resumed request may already have it
            await self._add(Message("user", request.content), request.first_turn)
        recorded = await self._store.turns_of(request.request_id)
        taken = {turn for turn in recorded if turn >= request.first_turn}
        taken |= self._decided_since(request.first_turn)  # not durable yet, if the disk has failed
        while (answer := final_answer(self._conversation)) is None:
            turn = self._turn_to_take(taken)
            # Counted over all processes: a crash must not grant extra turns.
            if sum(each < turn for each in taken) >= self._options.max_turns:
                raise GaveUp(f"no answer within {self._options.max_turns} turns")
            taken.add(turn)
            await self._take_turn(turn, request, watch)
        return answer

    def _turn_to_take(self, taken: set[int]) -> int:
        """The turn in progress; after it, the next one that this request has taken before, or a new one."""
        if self._is_open():
            return self._turns[-1]
        before = [turn for turn in taken if turn > self._turns[-1]]
        return min(before) if before else self._new_turn()

    def _is_open(self) -> bool:
        """Whether the turn of the last message is not complete."""
        return self._conversation[-1].role == "user" or bool(unanswered(self._conversation))

    def _said_in(self, turn: int) -> list[Message]:
        first = bisect_left(self._turns, turn)
        return self._conversation[first:]

    def _decided_since(self, turn: int) -> set[int]:
        said = zip(self._turns, self._conversation, strict=True)
        return {each for each, message in said if each >= turn and message.role == "assistant"}

    async def _take_turn(self, turn: int, request: Request, watch: Watcher | None) -> None:
        await self._fire(hooks.TurnStart(turn))
        decision = await self._decide(turn, request, watch)
        if not any(message.role == "assistant" for message in self._said_in(turn)):
            await self._add(decision, turn)
        await self._carry_out(decision, turn)
        await self._complete_turn(turn, final=not decision.calls)
        heard, self._runner.heard = self._runner.heard, []
        for said in heard:
            self._heed(said)
        await self._fire(hooks.TurnEnd(turn))

    async def _fire(self, event: hooks.LoopEvent) -> None:
        """Let the hooks decide: stop here, or add text to the next model call."""
        self._heed(await self._hooks.fire(event))

    def _heed(self, decision: hooks.LoopDecision) -> None:
        if isinstance(decision, hooks.Stop):
            raise GaveUp(f"stopped by a hook: {decision.reason}")
        if isinstance(decision, hooks.SystemMessage | hooks.AppendContext):
            self._said_by_hooks.append(decision.text)

    async def _decide(self, turn: int, request: Request, watch: Watcher | None) -> Message:
        """Taken from the journal if an earlier process already decided this turn (G3)."""
        known = await self._store.decision(turn)
        if known is not None:
            return known
        if self._runner.cancelled is not None:
            raise Cancelled(self._runner.cancelled)
        if self._budget.exhausted:
            raise GaveUp(
                f"the budget is spent: {self._budget.spent_tokens} of {self._budget.limit_tokens} tokens"
            )
        assert not unanswered(self._conversation), "a call without its result must not reach the model"
        system = "\n".join([self._options.system, *self._said_by_hooks])
        self._said_by_hooks.clear()
        name = request.request_id
        self._last_turn = max(self._last_turn, turn)
        answer = await self._model.ask(turn, name, list(self._conversation), system, watch)
        message = self._with_ids_of_its_own(answer.message)
        usage = answer.usage
        spent = self._budget.spent_tokens + usage.input_tokens + usage.output_tokens
        self._budget = Budget(spent, self._budget.limit_tokens)
        await self._backlog.write(
            "decision.record",
            lambda: self._store.record_decision(turn, name, message, usage),
            lambda: self._tell("decided", {"turn": turn}),
        )
        return message

    def _with_ids_of_its_own(self, message: Message) -> Message:
        """Some servers number their calls from 0 in every answer, but the journal identifies calls by id."""
        used = {call.id for said in self._conversation for call in said.calls}
        calls: list[ToolCall] = []
        for call in message.calls:
            fresh = self._new_id("call") if call.id in used or not call.id else call.id
            used.add(fresh)
            calls.append(ToolCall(fresh, call.name, call.args))
        return msgspec.structs.replace(message, calls=tuple(calls))

    async def _carry_out(self, decision: Message, turn: int) -> None:
        answered = {m.call_id for m in self._conversation if m.role == "tool"}
        calls = [call for call in decision.calls if call.id not in answered]
        if self._options.cadence.after_calls:
            for call in calls:
                await self._add(await self._runner.run(call), turn)
                if call is not calls[-1]:
                    await self._checkpoint(turn)
            return
        for result in await self._run_together(calls):
            await self._add(result, turn)

    async def _run_together(self, calls: Sequence[ToolCall]) -> list[Message]:
        """Run the parallel calls of one turn. Their results keep the order of the calls."""
        if len(calls) == 1:
            return [await self._runner.run(calls[0])]
        running = (self._runner.run(call) for call in calls)
        results = await asyncio.gather(*running, return_exceptions=True)
        for trouble in results:  # only now: a call that has to wait must not leave the others running
            if isinstance(trouble, BaseException):
                raise trouble
        return [result for result in results if isinstance(result, Message)]

    async def _add(self, message: Message, turn: int) -> None:
        self._conversation.append(message)
        self._turns.append(turn)
        await self._backlog.write(f"message.{message.role}", lambda: self._store.add_message(message, turn))

    async def _complete_turn(self, turn: int, *, final: bool) -> None:
        turns = turn - self._checkpointed.turn
        seconds = self._clock() - self._checkpoint_time
        if final or self._options.cadence.due(turns, seconds):
            await self._checkpoint(turn, complete=True)
        log.debug("turn.end", turn=turn)

    async def _checkpoint(self, turn: int, *, complete: bool = False) -> None:
        plan, budget, messages = self.plan, self._budget, len(self._conversation)

        async def write() -> None:
            version = await self._store.write_checkpoint(turn, plan, budget)
            self._checkpointed = StoredCheckpoint(turn, version, 0, None, budget)
            self._checkpoint_time = self._clock()
            self._saved = messages

        await self._backlog.write("checkpoint.write", write)
        facts = {"turn": turn, "messages": messages, "complete": complete}
        if complete:
            await self._log("turn.completed", turn=turn, then=("turn", facts))
        else:
            await self._backlog.write("checkpoint", _nothing, lambda: self._tell("turn", facts))


async def _nothing() -> None:
    """Reserve a place in the order of writes without writing anything."""


def final_answer(conversation: Sequence[Message]) -> str | None:
    """Return the answer if the last message is one."""
    if conversation and conversation[-1].role == "assistant" and not conversation[-1].calls:
        return conversation[-1].content
    return None
