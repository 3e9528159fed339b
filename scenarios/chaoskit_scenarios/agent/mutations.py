"""How each mutant differs from the reference agent. Called inside the target, before its entry.

A patch replaces the smallest piece that produces the bug; everything else stays the agent's own code.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace as changed

from reference_agent.messages import Message, ToolCall
from reference_agent.recovery.rollback import Recovery
from reference_agent.store import event_log as log, schema
from reference_agent.store.backlog import FAILURES, Backlog, Operation, Then, nothing
from reference_agent.store.database import Database
from reference_agent.store.event_log import EventLog
from reference_agent.store.files import FilesStore
from reference_agent.store.fold import folded
from reference_agent.store.lines import AnyLine, CheckpointWritten
from reference_agent.store.protocol import SessionStore
from reference_agent.store.records import RecordedCall, Run, StoredCheckpoint
from reference_agent.store.sqlite import SqliteStore
from reference_agent.terminal import config
from reference_agent.terminal.screen import Screen
from reference_agent.turn import agent, asking, calls, hooks
from reference_agent.turn.agent import Agent
from reference_agent.turn.cadence import Cadence
from reference_agent.turn.calls import UNKNOWN_OUTCOME, CallOutcome, ToolRunner
from reference_agent.turn.tools import Tool

STORES: tuple[Any, ...] = (SqliteStore, FilesStore)  # patched in both unless stated otherwise


def replace(place: Any, name: str, piece: Any) -> None:
    assert hasattr(place, name), f"{place} no longer has {name}: this mutant changes nothing"
    setattr(place, name, piece)


# --- recovery


def refuses_to_resume() -> None:
    async def interrupt(self: Recovery, run: Run) -> None:
        raise RuntimeError(f"corrupt session: {run.run_id} has no end")

    replace(Recovery, "_interrupt", interrupt)


def keeps_partial_turn() -> None:
    async def roll_back_to(self: SessionStore, last_msg_id: int) -> None:
        pass

    for store in STORES:
        replace(store, "roll_back_to", roll_back_to)


def rollback_off_by_one() -> None:
    def off_by_one(sound: Any) -> Any:
        async def roll_back_to(self: SessionStore, last_msg_id: int) -> None:
            beyond = [each.id for each in await self.messages() if each.id > last_msg_id]
            await sound(self, beyond[0] if beyond else last_msg_id)

        return roll_back_to

    for store in STORES:
        replace(store, "roll_back_to", off_by_one(store.roll_back_to))


def interrupts_twice() -> None:
    sound = Recovery._interrupt

    async def interrupt(self: Recovery, run: Run) -> None:
        await sound(self, run)
        self._log.append("run.interrupted", run_id=run.run_id, reason="process_restart")

    replace(Recovery, "_interrupt", interrupt)


def interrupts_completed() -> None:
    sound = Recovery.recover

    async def recover(self: Recovery) -> StoredCheckpoint | None:
        last = await self._store.last_run()
        checkpoint = await sound(self)
        if last:
            self._log_once("run.interrupted", "run_id", run_id=last[0].run_id, reason="process_restart")
        return checkpoint

    replace(Recovery, "recover", recover)


def half_migration() -> None:
    """Each statement is its own transaction; a crash leaves some of them."""

    async def migrate(self: Database, path: Any) -> None:
        (version,) = await self.one("PRAGMA user_version")
        if version == schema.VERSION:
            return
        for step in schema.MIGRATIONS[version:]:
            for statement in step.split(";")[:-1]:
                await self.write("schema.migrate", statement)
        await self.execute(f"PRAGMA user_version = {schema.VERSION}")

    replace(Database, "_migrate", migrate)


def drops_arguments() -> None:
    sound = Agent._load

    def without(message: Message) -> Message:
        return changed(message, calls=tuple(changed(call, args={}) for call in message.calls))

    async def load(self: Agent, checkpoint: Any) -> None:
        await sound(self, checkpoint)
        self._conversation = list(map(without, self._conversation))

    replace(Agent, "_load", load)


def forgets_plan() -> None:
    async def plan(self: SessionStore, checkpoint: Any) -> None:
        pass

    for store in STORES:
        replace(store, "plan", plan)


def shows_rolled_back() -> None:
    sound, follow = Recovery.recover, Screen.follow
    before: list[Message] = []

    async def recover(self: Recovery) -> StoredCheckpoint | None:
        before.extend(each.message for each in await self._store.messages())
        return await sound(self)

    replace(Recovery, "recover", recover)
    replace(Screen, "follow", lambda self, _conversation: follow(self, before))


def upgrades_config_to_zero() -> None:
    sound = config.save

    def save(settings: config.Config, path: Path, *, mark: str) -> None:
        missing = {"max_retries", "retry_base_delay_ms"} - json.loads(path.read_bytes()).keys()
        sound(changed(settings, **dict.fromkeys(missing, 0)), path, mark=mark)

    replace(config, "save", save)


# --- calls


def skips_hooks_on_resume() -> None:
    fire = hooks.HookRegistry.fire
    carried_on: set[str] = set()

    def remembering(sound: Any) -> Any:
        async def decision(self: SessionStore, turn: int) -> Message | None:
            known: Message | None = await sound(self, turn)
            if known:
                carried_on.update(call.id for call in known.calls)
            return known

        return decision

    async def skip(self: hooks.HookRegistry, event: Any) -> Any:
        if isinstance(event, hooks.PreToolUse) and event.tool_use_id in carried_on:
            return hooks.Allow()
        return await fire(self, event)

    for store in STORES:
        replace(store, "decision", remembering(store.decision))
    replace(hooks.HookRegistry, "fire", skip)


def intent_after_effect() -> None:
    async def mutate(self: ToolRunner, tool: Tool, call: ToolCall, key: str) -> CallOutcome:
        done = await self._store.decided_call(key)
        if done:
            return CallOutcome(done.result or "", "completed")
        outcome = await self._attempt(tool, call.args, key) or CallOutcome(UNKNOWN_OUTCOME, "unknown")
        await self._store.issue_call(call, key)
        return await self._finish(call, outcome)

    replace(ToolRunner, "_mutate", mutate)


def forgets_pending() -> None:
    async def settle(self: ToolRunner, tool: Tool, known: RecordedCall) -> CallOutcome:
        call = ToolCall(known.call_id, known.tool, known.args)
        outcome = await self._attempt(tool, known.args, known.key)
        return await self._finish(call, outcome or CallOutcome(UNKNOWN_OUTCOME, "unknown"))

    replace(ToolRunner, "_settle", settle)


def ignores_completed() -> None:
    async def outcome(self: ToolRunner, call: ToolCall) -> CallOutcome:
        tool = self._toolbox.find(call.name)
        assert tool is not None
        return await self._begin(tool, call)

    async def mutate(self: ToolRunner, tool: Tool, call: ToolCall, key: str) -> CallOutcome:
        await self._store.issue_call(call, key)
        done = await self._attempt(tool, call.args, key) or CallOutcome(UNKNOWN_OUTCOME, "unknown")
        return await self._finish(call, done)

    replace(ToolRunner, "_outcome", outcome)
    replace(ToolRunner, "_mutate", mutate)


def key_without_arguments() -> None:
    replace(calls, "idempotency_key", lambda session, tool, _args: f"{session}/{tool}")


def never_asks_the_user() -> None:
    sound = ToolRunner._finish

    async def finish(self: ToolRunner, call: ToolCall, outcome: CallOutcome) -> CallOutcome:
        if outcome.status == "unknown":
            outcome = CallOutcome("error: it failed", "failed")
        return await sound(self, call, outcome)

    replace(ToolRunner, "_finish", finish)


# --- decisions


def asks_again() -> None:
    async def decision(self: SqliteStore, turn: int) -> None:
        await self._db.execute("DELETE FROM decisions WHERE turn = ?", turn)
        await self._db.execute("DELETE FROM token_usage WHERE turn = ?", turn)

    async def no_decision(self: FilesStore, turn: int) -> None:
        pass

    replace(SqliteStore, "decision", decision)
    replace(FilesStore, "decision", no_decision)


def leaves_orphans() -> None:
    """Treats a turn as complete once its first result is there."""
    replace(agent, "unanswered", lambda _conversation: [])
    sound = Agent._carry_out

    async def carry_out(self: Agent, decision: Message, turn: int) -> None:
        if any(message.role == "tool" for message in self._said_in(turn)):
            return
        await sound(self, Message("assistant", "", decision.calls[:1]), turn)

    replace(Agent, "_carry_out", carry_out)


def counts_usage_twice() -> None:
    async def count_row(store: SqliteStore, turn: int) -> None:
        await store._db.execute(
            "INSERT INTO token_usage SELECT NULL, session_id, agent_id, turn, input_tokens,"
            " output_tokens, created_at FROM token_usage WHERE turn = ? LIMIT 1",
            turn,
        )

    async def count_line(store: FilesStore, turn: int) -> None:
        lines = [e for e in store._log.events if e["kind"] == "decision.recorded"]
        again = next(line for line in lines if line["turn"] == turn)
        fields = {name: again[name] for name in again if name not in ("seq", "ts")}
        store._log.record(fields, "decision.record")

    def twice(sound: Any, count: Any) -> Any:
        async def decision(self: Any, turn: int) -> Message | None:
            known: Message | None = await sound(self, turn)
            if known:
                await count(self, turn)
            return known

        return decision

    replace(SqliteStore, "decision", twice(SqliteStore.decision, count_row))
    replace(FilesStore, "decision", twice(FilesStore.decision, count_line))


def forgets_attempts() -> None:
    replace(asking, "next_attempt", lambda _made, _max_retries: 0)


def version_by_turn() -> None:
    sound, sound_write = SqliteStore.write_checkpoint, FilesStore._write

    async def write_checkpoint(self: SqliteStore, turn: int, *rest: Any) -> int:
        await sound(self, turn, *rest)
        await self._db.execute("UPDATE checkpoints SET version = ? WHERE turn = ?", turn, turn)
        return turn

    def write(self: FilesStore, point: str, line: AnyLine) -> None:
        if isinstance(line, CheckpointWritten):
            line = msgspec.structs.replace(line, version=line.turn)
        sound_write(self, point, line)

    replace(SqliteStore, "write_checkpoint", write_checkpoint)
    replace(FilesStore, "_write", write)


def ignores_cadence() -> None:
    replace(Cadence, "after_calls", False)
    replace(Cadence, "due", lambda _self, _turns, _seconds: True)


def early_checkpoint() -> None:
    async def take_turn(self: Agent, turn: int, request: Any, watch: Any) -> None:
        decision = await self._decide(turn, request, watch)
        await self._add(decision, turn)
        await self._complete_turn(turn, final=not decision.calls)
        await self._carry_out(decision, turn)

    replace(Agent, "_take_turn", take_turn)


# --- the log and the disk


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


def refuses_torn_line() -> None:
    sound = log._parsed

    def parsed(path: Any) -> tuple[Any, int]:
        events, torn = sound(path)
        if torn:
            raise log.DamagedLog(f"{path}, line {len(events) + 1}: unfinished")
        return events, torn

    replace(log, "_parsed", parsed)


def cuts_the_log() -> None:
    """Rolls back by truncating the log file instead of appending a line."""

    async def roll_back_to(self: FilesStore, last_msg_id: int) -> None:
        written = [e["seq"] for e in self._log.events if e["kind"] == "checkpoint.written"]
        lines = self._log.path.read_bytes().splitlines(keepends=True)[: written[-1]]
        os.ftruncate(self._log._fd, sum(map(len, lines)))
        self._log._good_size = sum(map(len, lines))
        del self._log.events[written[-1] :]
        self._fold = folded(self._log.events, self._log.path)

    replace(FilesStore, "roll_back_to", roll_back_to)


def claims_while_degraded() -> None:
    async def write(self: Backlog, name: str, operation: Operation, then: Then = nothing) -> bool:
        with contextlib.suppress(*FAILURES):
            await operation()
        then()
        return True

    replace(Backlog, "write", write)


def unsynced_log() -> None:
    def write(self: EventLog, line: bytes) -> None:
        os.write(self._fd, line)

    replace(EventLog, "_write", write)


def acknowledges_before_sync() -> None:
    """An event is synced only when the next one is written: its acknowledgement comes too early."""

    def write(self: EventLog, line: bytes) -> None:
        os.fsync(self._fd)
        os.write(self._fd, line)

    def close(self: EventLog) -> None:
        os.fsync(self._fd)
        os.close(self._fd)

    replace(EventLog, "_write", write)
    replace(EventLog, "close", close)


def unsynced_directory() -> None:
    replace(log, "sync_directory", lambda _directory: None)


def synchronous_normal() -> None:
    sound = Database._prepare

    async def prepare(self: Database, path: Any, *, is_new: bool) -> None:
        await sound(self, path, is_new=is_new)
        await self.execute("PRAGMA synchronous = NORMAL")

    replace(Database, "_prepare", prepare)
