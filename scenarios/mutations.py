"""How each mutant differs from the reference agent. Called inside the target, before its entry.

A patch replaces the smallest piece that makes the bug; everything else stays the agent's own code.
"""

from __future__ import annotations

import os
from typing import Any

from reference_agent import log
from reference_agent.agent import Agent
from reference_agent.calls import ToolRunner
from reference_agent.log import EventLog
from reference_agent.messages import Message, ToolCall
from reference_agent.recovery import Recovery
from reference_agent.store import SessionStore
from reference_agent.store.sqlite import Checkpoint, Run
from reference_agent.tools import Tool


def replace(place: Any, name: str, piece: Any) -> None:
    assert hasattr(place, name), f"{place} has no {name} any more: this mutant mutates nothing"
    setattr(place, name, piece)


def refuses_to_resume() -> None:
    async def interrupt(self: Recovery, run: Run) -> None:
        raise RuntimeError(f"corrupt session: {run.run_id} has no end")

    replace(Recovery, "_interrupt", interrupt)


def keeps_partial_turn() -> None:
    async def roll_back_to(self: SessionStore, checkpoint: Checkpoint) -> None:
        pass

    replace(SessionStore, "roll_back_to", roll_back_to)


def rollback_off_by_one() -> None:
    sound = SessionStore.roll_back_to

    async def roll_back_to(self: SessionStore, checkpoint: Checkpoint) -> None:
        await sound(self, Checkpoint(checkpoint.turn, checkpoint.last_msg_id + 1))

    replace(SessionStore, "roll_back_to", roll_back_to)


def intent_after_effect() -> None:
    async def mutate(self: ToolRunner, tool: Tool, call: ToolCall, key: str) -> str:
        known = await self._store.call(key)
        if known and known.result is not None:
            return known.result
        content = await self._attempt(tool, call, key)
        await self._store.issue_call(key, call)
        await self._store.finish_call(key, "completed", content)
        return content

    replace(ToolRunner, "_mutate", mutate)


def forgets_pending() -> None:
    replace(ToolRunner, "_settle", ToolRunner._execute)


def ignores_completed() -> None:
    async def mutate(self: ToolRunner, tool: Tool, call: ToolCall, key: str) -> str:
        await self._store.issue_call(key, call)
        return await self._execute(tool, call, key)

    replace(ToolRunner, "_mutate", mutate)


def interrupts_twice() -> None:
    sound = Recovery._interrupt

    async def interrupt(self: Recovery, run: Run) -> None:
        await sound(self, run)
        self._log.append("run.interrupted", run_id=run.run_id, reason="process_restart")

    replace(Recovery, "_interrupt", interrupt)


def interrupts_completed() -> None:
    sound = Recovery.recover

    async def recover(self: Recovery) -> None:
        last = await self._store.last_run()
        await sound(self)
        if last:
            self._log_once("run.interrupted", run_id=last[0].run_id, reason="process_restart")

    replace(Recovery, "recover", recover)


def buffered_log() -> None:
    sound = EventLog._write
    pending: list[bytes] = []

    def write(self: EventLog, line: bytes) -> None:
        pending.append(line)
        if len(pending) == 4:
            sound(self, b"".join(pending))
            pending.clear()

    def close(self: EventLog) -> None:
        sound(self, b"".join(pending))
        os.close(self._fd)

    replace(EventLog, "_write", write)
    replace(EventLog, "close", close)


def reuses_seq() -> None:
    replace(EventLog, "_recover", lambda _self: [])


def early_checkpoint() -> None:
    async def take_turn(self: Agent, turn: int, conversation: list[Message]) -> list[Message]:
        decision = await self._decide(turn, conversation)
        await self._store.add_message(decision, turn)
        await self._complete_turn(turn, len(conversation) + 1)
        said = [decision]
        for call in decision.calls:
            said.append(await self._runner.run(call))
            await self._store.add_message(said[-1], turn)
        return said

    replace(Agent, "_take_turn", take_turn)


# --- what only a loss of power can see


def unsynced_log() -> None:
    def write(self: EventLog, line: bytes) -> None:
        os.write(self._fd, line)

    replace(EventLog, "_write", write)


def acknowledges_before_sync() -> None:
    """The event is synced when the next one is written: an acknowledgement comes a step too early."""

    def write(self: EventLog, line: bytes) -> None:
        os.fsync(self._fd)
        os.write(self._fd, line)

    def close(self: EventLog) -> None:
        os.fsync(self._fd)
        os.close(self._fd)

    replace(EventLog, "_write", write)
    replace(EventLog, "close", close)


def unsynced_directory() -> None:
    replace(log, "_sync_directory", lambda _directory: None)


def synchronous_normal() -> None:
    sound = SessionStore.open

    async def open_store(*args: Any) -> SessionStore:
        store = await sound(*args)
        await store._db.execute("PRAGMA synchronous = NORMAL")
        return store

    replace(SessionStore, "open", open_store)
