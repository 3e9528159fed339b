"""SessionStore on SQLite: each method that writes is one transaction, durable on return."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiosqlite
import msgspec

from reference_agent.ids import Clock
from reference_agent.messages import Budget, Message, Plan, Reasoning, StoredMessage, ToolCall
from reference_agent.points import persisting
from reference_agent.providers.base import Usage
from reference_agent.store.database import Connect, Database
from reference_agent.store.records import (
    CallStatus,
    RecordedCall,
    Request,
    Run,
    RunStatus,
    Snapshot,
    StoredCheckpoint,
    StoredError,
    encoded_plan,
)

_PLAN = msgspec.json.Decoder(Plan)
_MESSAGE = msgspec.json.Decoder(Message)
_CALLS = msgspec.json.Decoder(tuple[ToolCall, ...])
_REASONING = msgspec.json.Decoder(tuple[Reasoning, ...])


class SqliteStore:
    """The durable state of one session."""

    def __init__(self, db: Database, session: str, agent: str, clock: Clock) -> None:
        self._db = db
        self._session = session
        self._agent = agent
        self._clock = clock

    @classmethod
    async def open(
        cls, path: Path, session: str, agent: str, clock: Clock, connect: Connect = aiosqlite.connect
    ) -> SqliteStore:
        return cls(await Database.open(path, connect), session, agent, clock)

    async def close(self) -> None:
        await self._db.close()

    def _now(self) -> int:
        return int(self._clock())

    # --- the session

    async def create_session(self, model: str, provider: str, scratchpad: str) -> None:
        """Create the session once; an existing session keeps its original values."""
        known = await self._db.one("SELECT scratchpad FROM sessions WHERE id = ?", self._session)
        if known and known[0] is None:  # created by an older release without scratchpads
            await self._db.write(
                "session.create", "UPDATE sessions SET scratchpad = ? WHERE id = ?", scratchpad, self._session
            )
        if not known:
            await self._db.write(
                "session.create",
                "INSERT INTO sessions (id, agent_id, model, provider, created_at, scratchpad)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                self._session,
                self._agent,
                model,
                provider,
                self._now(),
                scratchpad,
            )

    async def scratchpad(self) -> str | None:
        row = await self._db.one("SELECT scratchpad FROM sessions WHERE id = ?", self._session)
        return row[0] if row else None

    async def sessions(self) -> list[tuple[str, int]]:
        """Every session of this database with its number of messages."""
        return [
            tuple(row)
            for row in await self._db.execute(
                "SELECT s.id, COUNT(m.id) FROM sessions s LEFT JOIN messages m ON m.session_id = s.id"
                " GROUP BY s.id ORDER BY s.created_at, s.id"
            )
        ]

    # --- requests and runs (G1, G7)

    async def request(self, request_id: str) -> Request | None:
        row = await self._db.one(
            "SELECT request_id, content, first_turn, answer FROM requests"
            " WHERE session_id = ? AND request_id = ?",
            self._session,
            request_id,
        )
        return Request(*row) if row else None

    async def start_run(self, run: Run, request: Request) -> None:
        """Record the request and a run for it atomically. An existing request may start over."""
        with persisting("run.start"):
            async with self._db.transaction():
                await self._db.execute(
                    "INSERT INTO requests VALUES (?, ?, ?, ?, NULL) ON CONFLICT (session_id, request_id)"
                    " DO UPDATE SET first_turn = excluded.first_turn",
                    self._session,
                    request.request_id,
                    request.content,
                    request.first_turn,
                )
                await self._db.execute(
                    "INSERT INTO runs VALUES (?, ?, ?, ?, 'running', NULL, ?)",
                    run.run_id,
                    self._session,
                    run.request_id,
                    run.boot_id,
                    self._now(),
                )

    async def complete_run(self, run: Run, answer: str) -> None:
        with persisting("run.complete"):
            async with self._db.transaction():
                await self._db.execute(
                    "UPDATE requests SET answer = ? WHERE session_id = ? AND request_id = ?",
                    answer,
                    self._session,
                    run.request_id,
                )
                await self._db.execute("UPDATE runs SET status = 'completed' WHERE run_id = ?", run.run_id)

    async def end_run(self, run: Run, status: RunStatus, reason: str) -> None:
        await self._db.write(
            "run.end", "UPDATE runs SET status = ?, reason = ? WHERE run_id = ?", status, reason, run.run_id
        )

    async def last_run(self) -> tuple[Run, RunStatus] | None:
        row = await self._db.one(
            "SELECT run_id, request_id, boot_id, status FROM runs"
            " WHERE session_id = ? ORDER BY rowid DESC LIMIT 1",
            self._session,
        )
        return (Run(*row[:3]), row[3]) if row else None

    async def unfinished_requests(self) -> list[Request]:
        """Requests that were accepted and not answered, unless their latest run was given up."""
        rows = await self._db.execute(
            "SELECT request_id, content, first_turn, answer FROM requests q"
            " WHERE session_id = ? AND answer IS NULL AND 'failed' IS NOT ("
            "  SELECT r.status FROM runs r WHERE r.session_id = q.session_id"
            "  AND r.request_id = q.request_id ORDER BY r.rowid DESC LIMIT 1)"
            " ORDER BY rowid",
            self._session,
        )
        return [Request(*row) for row in rows]

    # --- the conversation (G2)

    async def messages(self, up_to: int | None = None) -> list[StoredMessage]:
        """All messages, or those up to an id."""
        rows = await self._db.execute(
            "SELECT id, turn, created_at, role, content, tool_args, tool_call_id, tool_name, is_error,"
            " reasoning FROM messages WHERE session_id = ? AND id <= ? ORDER BY id",
            self._session,
            up_to if up_to is not None else 2**62,
        )
        return [StoredMessage(r[0], r[1], r[2], stored_to_message(r[3:])) for r in rows]

    async def add_message(self, message: Message, turn: int) -> None:
        with persisting(f"message.{message.role}"):
            await self._insert_message(message, turn)

    async def _insert_message(self, message: Message, turn: int) -> None:
        calls = msgspec.json.encode(message.calls).decode() if message.calls else None
        reasoning = msgspec.json.encode(message.reasoning).decode() if message.reasoning else None
        await self._db.execute(
            "INSERT INTO messages (session_id, agent_id, turn, role, content, tool_call_id,"
            " tool_name, tool_args, created_at, is_error, reasoning)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            self._session,
            self._agent,
            turn,
            message.role,
            message.content,
            message.call_id,
            message.tool,
            calls,
            self._now(),
            message.is_error,
            reasoning,
        )

    async def roll_back_to(self, last_msg_id: int) -> None:
        """Permanently delete the messages written after a checkpoint."""
        await self._db.write(
            "messages.rollback",
            "DELETE FROM messages WHERE session_id = ? AND id > ?",
            self._session,
            last_msg_id,
        )

    # --- checkpoints (G2)

    async def write_checkpoint(self, turn: int, plan: Plan | None, budget: Budget) -> int:
        """Write the next version. The cost does not depend on the length of the transcript."""
        if plan is None:  # a single statement is its own transaction
            with persisting("checkpoint.write"):
                return await self._insert_checkpoint(turn, None, budget)
        with persisting("checkpoint.write"):
            async with self._db.transaction():
                digest = await self._keep_plan(plan)
                return await self._insert_checkpoint(turn, digest, budget)

    async def _insert_checkpoint(self, turn: int, plan: str | None, budget: Budget) -> int:
        ((version,),) = await self._db.execute(
            "INSERT INTO checkpoints (session_id, agent_id, turn, version, last_msg_id, plan,"
            " spent_tokens, limit_tokens, created_at) VALUES (?, ?, ?,"
            " (SELECT COALESCE(MAX(version), 0) + 1 FROM checkpoints WHERE session_id = ?),"
            " (SELECT MAX(id) FROM messages WHERE session_id = ?), ?, ?, ?, ?) RETURNING version",
            self._session,
            self._agent,
            turn,
            self._session,
            self._session,
            plan,
            budget.spent_tokens,
            budget.limit_tokens,
            self._now(),
        )
        return int(version)

    async def _keep_plan(self, plan: Plan) -> str:
        digest, content = encoded_plan(plan)
        await self._db.execute("INSERT OR IGNORE INTO plans VALUES (?, ?)", digest, content.decode())
        return digest

    async def latest_checkpoint(self) -> StoredCheckpoint | None:
        return await self._checkpoint("ORDER BY version DESC LIMIT 1")

    async def _checkpoint(self, which: str, *args: Any) -> StoredCheckpoint | None:
        row = await self._db.one(
            "SELECT turn, version, last_msg_id, plan, spent_tokens, limit_tokens"
            f" FROM checkpoints WHERE session_id = ? {which}",
            self._session,
            *args,
        )
        if row is None:
            return None
        turn, version, last_msg_id, plan, spent, limit = row
        return StoredCheckpoint(turn, version, last_msg_id, plan, Budget(spent, limit))

    async def versions(self) -> list[int]:
        rows = await self._db.execute(
            "SELECT version FROM checkpoints WHERE session_id = ? ORDER BY version", self._session
        )
        return [row[0] for row in rows]

    async def load_version(self, version: int) -> Snapshot | None:
        """Load any version exactly as it was; None if that version does not exist."""
        found = await self._checkpoint("AND version = ?", version)
        if found is None:
            return None
        messages = await self.messages(up_to=found.last_msg_id)
        return Snapshot(version, tuple(messages), await self.plan(found), found.budget)

    async def plan(self, checkpoint: StoredCheckpoint) -> Plan | None:
        if checkpoint.plan is None:
            return None
        (content,) = await self._db.one("SELECT content FROM plans WHERE hash = ?", checkpoint.plan)
        return _PLAN.decode(content)

    # --- the journal (G3, G4)

    async def last_turn(self) -> int:
        row = await self._db.one(
            "SELECT MAX(COALESCE((SELECT MAX(turn) FROM decisions WHERE session_id = ?1), 0),"
            " COALESCE((SELECT MAX(turn) FROM errors WHERE session_id = ?1), 0),"
            " COALESCE((SELECT MAX(first_turn) FROM requests WHERE session_id = ?1), 0))",
            self._session,
        )
        return int(row[0])

    async def turns_of(self, request_id: str) -> list[int]:
        rows = await self._db.execute(
            "SELECT turn FROM decisions WHERE session_id = ?1 AND request_id = ?2 UNION"
            " SELECT turn FROM errors WHERE session_id = ?1 AND request_id = ?2 ORDER BY turn",
            self._session,
            request_id,
        )
        return [row[0] for row in rows]

    async def decision(self, turn: int) -> Message | None:
        row = await self._db.one(
            "SELECT message FROM decisions WHERE session_id = ? AND turn = ?", self._session, turn
        )
        return _MESSAGE.decode(row[0]) if row else None

    async def record_decision(self, turn: int, request_id: str, message: Message, usage: Usage) -> None:
        """Record the model's decision and its cost atomically, so that no tokens are counted twice."""
        with persisting("decision.record"):
            async with self._db.transaction():
                await self._db.execute(
                    "INSERT INTO decisions VALUES (?, ?, ?, ?)",
                    self._session,
                    turn,
                    msgspec.json.encode(message).decode(),
                    request_id,
                )
                await self._db.execute(
                    "INSERT INTO token_usage (session_id, agent_id, turn, input_tokens,"
                    " output_tokens, created_at) VALUES (?, ?, ?, ?, ?, ?)",
                    self._session,
                    self._agent,
                    turn,
                    usage.input_tokens,
                    usage.output_tokens,
                    self._now(),
                )

    async def spent_tokens(self) -> int:
        (spent,) = await self._db.one(
            "SELECT COALESCE(SUM(input_tokens + output_tokens), 0) FROM token_usage WHERE session_id = ?",
            self._session,
        )
        return int(spent)

    async def add_error(self, turn: int, request_id: str, context: str, message: str, attempt: int) -> None:
        await self._db.write(
            "error.record",
            "INSERT INTO errors (session_id, agent_id, turn, context, message, attempt, created_at,"
            " request_id)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            self._session,
            self._agent,
            turn,
            context,
            message,
            attempt,
            self._now(),
            request_id,
        )

    async def errors(self, turn: int | None = None) -> list[StoredError]:
        rows = await self._db.execute(
            "SELECT turn, context, message, attempt FROM errors"
            " WHERE session_id = ? AND (? IS NULL OR turn = ?) ORDER BY id",
            self._session,
            turn,
            turn,
        )
        return [StoredError(*row) for row in rows]

    async def call(self, call_id: str) -> RecordedCall | None:
        return await self._call("call_id = ?", call_id)

    async def decided_call(self, key: str) -> RecordedCall | None:
        """The call under this key that completed or is an open question; neither may run again."""
        return await self._call("idempotency_key = ? AND status IN ('completed', 'unknown')", key)

    async def issued_call(self, key: str) -> RecordedCall | None:
        return await self._call("idempotency_key = ? AND status = 'issued'", key)

    async def open_questions(self) -> list[RecordedCall]:
        """Calls whose outcome is unknown."""
        return await self._calls("status = 'unknown'")

    async def _call(self, which: str, value: str) -> RecordedCall | None:
        found = await self._calls(which, value)
        return found[0] if found else None

    async def _calls(self, which: str, *values: str) -> list[RecordedCall]:
        rows = await self._db.execute(
            "SELECT call_id, tool_name, args_json, idempotency_key, status, result_text"
            f" FROM tool_calls WHERE session_id = ? AND {which} ORDER BY rowid",
            self._session,
            *values,
        )
        return [RecordedCall(r[0], r[1], msgspec.json.decode(r[2]), *r[3:]) for r in rows]

    async def issue_call(self, call: ToolCall, key: str) -> None:
        await self._db.write(
            "call.issue",
            "INSERT OR REPLACE INTO tool_calls VALUES (?, ?, ?, ?, ?, 'issued', NULL, ?, NULL)",
            self._session,
            call.id,
            call.name,
            msgspec.json.encode(call.args).decode(),
            key,
            self._now(),
        )

    async def finish_call(self, call_id: str, status: CallStatus, result: str) -> None:
        await self._db.write(
            "call.finish",
            "UPDATE tool_calls SET status = ?, result_text = ?, completed_at = ?"
            " WHERE session_id = ? AND call_id = ?",
            status,
            result,
            self._now(),
            self._session,
            call_id,
        )

    async def record_reading(self, call: ToolCall, key: str, status: CallStatus, result: str) -> None:
        """Record the result of a call that only read, so that later turns rest on the same facts."""
        await self._db.write(
            "call.read",
            "INSERT OR REPLACE INTO tool_calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            self._session,
            call.id,
            call.name,
            msgspec.json.encode(call.args).decode(),
            key,
            status,
            result,
            self._now(),
            self._now(),
        )


def stored_to_message(row: Sequence[Any]) -> Message:
    """The exact inverse of `add_message`. System messages are never stored."""
    role, content, calls, call_id, tool, is_error, reasoning = row
    if role not in ("user", "assistant", "tool"):
        raise ValueError(f"expected role user, assistant or tool in the store, found {role!r}")
    return Message(
        role,
        content,
        _CALLS.decode(calls) if calls else (),
        call_id,
        tool,
        bool(is_error),
        _REASONING.decode(reasoning) if reasoning else (),
    )
