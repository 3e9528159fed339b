"""The agent: takes requests, lets the model decide and the tools act, and survives being killed.

The turn, with what is durable after each step:

    request accepted ─ user's message ─┐
    ┌──────────────────────────────────┘
    ├─> decision recorded ─ assistant message ─ [issue ─ act ─ finish ─ result]* ─ checkpoint ─┐
    │                                                                                           │
    └──────────── more to do ───────────────────────────────────────────────────────────────────┤
                                                             answer recorded ─ acknowledged <───┘
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiosqlite

from reference_agent.calls import ToolRunner
from reference_agent.ids import Clock, NewId, system_clock
from reference_agent.log import EventLog
from reference_agent.messages import Message
from reference_agent.model import Model
from reference_agent.recovery import Recovery
from reference_agent.store import SessionStore
from reference_agent.store.sqlite import Connect, Request, Run
from reference_agent.tools import Toolbox

Listener = Callable[[str, dict[str, Any]], None]


def nobody(_name: str, _facts: dict[str, Any]) -> None:
    """The listener when nobody listens."""


class Agent:
    """One session, open. Use `Agent.open`, then `say`; `close` when done."""

    def __init__(
        self, *, store: SessionStore, log: EventLog, model: Model, runner: ToolRunner,
        boot: str, new_id: NewId, tell: Listener,
    ) -> None:  # fmt: skip
        self._store = store
        self._log = log
        self._model = model
        self._runner = runner
        self._boot = boot
        self._new_id = new_id
        self._tell = tell

    @classmethod
    async def open(
        cls, directory: Path, *, session: str, model: Model, toolbox: Toolbox, new_id: NewId,
        clock: Clock = system_clock, tell: Listener = nobody, connect: Connect = aiosqlite.connect,
    ) -> Agent:  # fmt: skip
        """Open a session and recover it. `tell` hears what has become durable."""
        store = await SessionStore.open(directory / "sessions.db", session, "agent", clock, connect)
        log = EventLog(directory / f"{session}.messages.jsonl", clock)
        boot = new_id("boot")
        await Recovery(store, log, boot).recover()
        runner = ToolRunner(store, toolbox, session)
        return cls(
            store=store, log=log, model=model, runner=runner, boot=boot, new_id=new_id, tell=tell
        )

    async def close(self) -> None:
        await self._store.close()
        self._log.close()

    async def messages(self) -> list[Message]:
        return await self._store.messages()

    async def say(self, content: str, *, request_id: str) -> str:
        """Fulfil a request. Asking again with the same id continues it, or repeats its answer."""
        await self.resume()
        known = await self._store.request(request_id)
        if known and known.answer is not None:
            return known.answer
        turn = await self._next_turn()
        return await self._fulfil(Request(request_id, content, first_turn=turn, answer=None))

    async def resume(self) -> None:
        """Fulfil what was accepted and not yet answered (G1)."""
        for request in await self._store.unfinished_requests():
            await self._fulfil(request)

    async def _fulfil(self, request: Request) -> str:
        run = await self._start(request)
        turn = await self._next_turn()
        if turn == request.first_turn:  # otherwise a checkpoint has the user's message already
            await self._store.add_message(Message("user", request.content), turn)
        answer = await self._take_turns(turn)
        await self._finish(run, answer)
        return answer

    async def _next_turn(self) -> int:
        return (await self._store.latest_checkpoint()).turn + 1

    async def _start(self, request: Request) -> Run:
        run = Run(self._new_id("run"), request.request_id, self._boot)
        await self._store.start_run(run, request)
        self._log.append("run.started", run_id=run.run_id, request_id=run.request_id)
        self._tell("accepted", {"request": run.request_id, "run": run.run_id})
        return run

    async def _finish(self, run: Run, answer: str) -> None:
        await self._store.complete_run(run, answer)
        self._log.append("run.completed", run_id=run.run_id)
        self._tell("answer", {"request": run.request_id, "answer": answer})

    async def _take_turns(self, turn: int) -> str:
        conversation = await self._store.messages()
        while (answer := final_answer(conversation)) is None:
            conversation += await self._take_turn(turn, conversation)
            turn += 1
        return answer

    async def _take_turn(self, turn: int, conversation: list[Message]) -> list[Message]:
        decision = await self._decide(turn, conversation)
        await self._store.add_message(decision, turn)
        said = [decision]
        for call in decision.calls:
            result = await self._runner.run(call)
            await self._store.add_message(result, turn)
            said.append(result)
        await self._complete_turn(turn, len(conversation) + len(said))
        return said

    async def _decide(self, turn: int, conversation: list[Message]) -> Message:
        """From the journal if an earlier life has decided this turn already (G3)."""
        decision = await self._store.decision(turn)
        if decision is None:
            decision = await self._model.decide(conversation)
            await self._store.record_decision(turn, decision)
        return decision

    async def _complete_turn(self, turn: int, messages: int) -> None:
        await self._store.write_checkpoint(turn)
        seq = self._log.append("turn.completed", turn=turn)
        self._tell("turn", {"turn": turn, "messages": messages, "log_seq": seq})


def final_answer(conversation: list[Message]) -> str | None:
    """The answer, if the last thing said is one."""
    if conversation and conversation[-1].role == "assistant" and not conversation[-1].calls:
        return conversation[-1].content
    return None
