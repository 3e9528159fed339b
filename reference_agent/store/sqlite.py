"""SessionStore on SQLite: each method is one transaction, durable when it returns.

WAL with synchronous=FULL: a commit is in the synced log before COMMIT returns, so that neither a
kill nor a power loss takes back what was acknowledged (NORMAL would lose commits, never corrupt).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import aiosqlite
import msgspec

from reference_agent.ids import Clock
from reference_agent.messages import Message, ToolCall
from reference_agent.points import persisting
from reference_agent.store import schema

Connect = Callable[..., aiosqlite.Connection]
CallStatus = Literal["issued", "completed", "failed"]
RunStatus = Literal["running", "completed", "interrupted"]


class Request(msgspec.Struct, frozen=True):
    request_id: str
    content: str
    first_turn: int
    answer: str | None


class Run(msgspec.Struct, frozen=True):
    run_id: str
    request_id: str
    boot_id: str


class RecordedCall(msgspec.Struct, frozen=True):
    call_id: str
    status: CallStatus
    result: str | None

    def answers(self, call: ToolCall) -> bool:
        """What was done is never done again; what failed may be tried by a new call."""
        return self.status == "completed" or self.call_id == call.id


class Checkpoint(msgspec.Struct, frozen=True):
    turn: int
    last_msg_id: int


class SessionStore:
    """The durable state of one session."""

    def __init__(self, db: aiosqlite.Connection, session: str, clock: Clock) -> None:
        self._db = db
        self._session = session
        self._clock = clock

    @classmethod
    async def open(
        cls,
        path: Path,
        session: str,
        agent: str,
        clock: Clock,
        connect: Connect = aiosqlite.connect,
    ) -> SessionStore:
        db = await connect(path, isolation_level=None)  # transactions are ours to begin
        await db.execute("PRAGMA journal_mode = WAL")
        await db.execute("PRAGMA synchronous = FULL")
        store = cls(db, session, clock)
        await store._create(agent)
        return store

    async def close(self) -> None:
        await self._db.close()

    async def _create(self, agent: str) -> None:
        (version,) = await self._one("PRAGMA user_version")
        if version == 0:
            # One transaction: a crash leaves either no table at all, or all of them.
            with persisting("schema.create"):
                async with self._transaction():
                    for statement in schema.TABLES.split(";")[:-1]:
                        await self._db.execute(statement)
                    await self._db.execute(f"PRAGMA user_version = {schema.VERSION}")
        if not await self._one("SELECT 1 FROM sessions WHERE id = ?", self._session):
            await self._write("session.create", "INSERT INTO sessions VALUES (?, ?, ?)",
                              self._session, agent, self._now())  # fmt: skip

    # --- requests and runs (G1, G7)

    async def request(self, request_id: str) -> Request | None:
        row = await self._one(
            "SELECT request_id, content, first_turn, answer FROM requests"
            " WHERE session_id = ? AND request_id = ?",
            self._session, request_id,
        )  # fmt: skip
        return Request(*row) if row else None

    async def start_run(self, run: Run, request: Request) -> None:
        """The request, unless it is known already, and a run for it: both or neither."""
        with persisting("run.start"):
            async with self._transaction():
                await self._db.execute(
                    "INSERT OR IGNORE INTO requests VALUES (?, ?, ?, ?, NULL)",
                    (self._session, request.request_id, request.content, request.first_turn),
                )
                await self._db.execute(
                    "INSERT INTO runs VALUES (?, ?, ?, ?, 'running', ?)",
                    (run.run_id, self._session, run.request_id, run.boot_id, self._now()),
                )

    async def complete_run(self, run: Run, answer: str) -> None:
        with persisting("run.complete"):
            async with self._transaction():
                await self._db.execute(
                    "UPDATE requests SET answer = ? WHERE session_id = ? AND request_id = ?",
                    (answer, self._session, run.request_id),
                )
                await self._db.execute(
                    "UPDATE runs SET status = 'completed' WHERE run_id = ?", (run.run_id,)
                )

    async def interrupt_run(self, run: Run) -> None:
        await self._write(
            "run.interrupt", "UPDATE runs SET status = 'interrupted' WHERE run_id = ?", run.run_id
        )

    async def last_run(self) -> tuple[Run, RunStatus] | None:
        row = await self._one(
            "SELECT run_id, request_id, boot_id, status FROM runs"
            " WHERE session_id = ? ORDER BY rowid DESC LIMIT 1",
            self._session,
        )
        return (Run(*row[:3]), row[3]) if row else None

    async def unfinished_requests(self) -> list[Request]:
        rows = await self._db.execute_fetchall(
            "SELECT request_id, content, first_turn, answer FROM requests"
            " WHERE session_id = ? AND answer IS NULL ORDER BY rowid",
            (self._session,),
        )
        return [Request(*row) for row in rows]

    # --- the conversation (G2)

    async def messages(self) -> list[Message]:
        rows = await self._db.execute_fetchall(
            "SELECT role, content, tool_args, tool_call_id, tool_name FROM messages"
            " WHERE session_id = ? ORDER BY id",
            (self._session,),
        )
        return [_message(row) for row in rows]

    async def add_message(self, message: Message, turn: int) -> None:
        calls = msgspec.json.encode(message.calls).decode() if message.calls else None
        await self._write(
            f"message.{message.role}",
            "INSERT INTO messages (session_id, turn, role, content, tool_call_id, tool_name,"
            " tool_args, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            self._session, turn, message.role, message.content, message.call_id, message.tool,
            calls, self._now(),
        )  # fmt: skip

    async def write_checkpoint(self, turn: int) -> None:
        await self._write(
            "checkpoint.write",
            "INSERT INTO checkpoints (session_id, turn, last_msg_id, created_at)"
            " SELECT ?, ?, MAX(id), ? FROM messages WHERE session_id = ?",
            self._session, turn, self._now(), self._session,
        )  # fmt: skip

    async def latest_checkpoint(self) -> Checkpoint:
        row = await self._one(
            "SELECT turn, last_msg_id FROM checkpoints WHERE session_id = ?"
            " ORDER BY id DESC LIMIT 1",
            self._session,
        )
        return Checkpoint(*row) if row else Checkpoint(turn=0, last_msg_id=0)

    async def roll_back_to(self, checkpoint: Checkpoint) -> None:
        await self._write(
            "messages.rollback",
            "DELETE FROM messages WHERE session_id = ? AND id > ?",
            self._session, checkpoint.last_msg_id,
        )  # fmt: skip

    # --- the journal (G3, G4)

    async def decision(self, turn: int) -> Message | None:
        row = await self._one(
            "SELECT message FROM decisions WHERE session_id = ? AND turn = ?", self._session, turn
        )
        return msgspec.json.decode(row[0], type=Message) if row else None

    async def record_decision(self, turn: int, message: Message) -> None:
        await self._write(
            "decision.record", "INSERT INTO decisions VALUES (?, ?, ?)",
            self._session, turn, msgspec.json.encode(message).decode(),
        )  # fmt: skip

    async def call(self, key: str) -> RecordedCall | None:
        row = await self._one(
            "SELECT call_id, status, result FROM tool_calls"
            " WHERE session_id = ? AND idempotency_key = ?",
            self._session, key,
        )  # fmt: skip
        return RecordedCall(*row) if row else None

    async def issue_call(self, key: str, call: ToolCall) -> None:
        await self._write(
            "call.issue",
            "INSERT OR REPLACE INTO tool_calls VALUES (?, ?, ?, ?, ?, 'issued', NULL)",
            self._session, key, call.id, call.name, msgspec.json.encode(call.args).decode(),
        )  # fmt: skip

    async def finish_call(self, key: str, status: CallStatus, result: str) -> None:
        await self._write(
            "call.finish",
            "UPDATE tool_calls SET status = ?, result = ?"
            " WHERE session_id = ? AND idempotency_key = ?",
            status, result, self._session, key,
        )  # fmt: skip

    # --- how all of the above reach the disk

    def _now(self) -> int:
        return int(self._clock())

    async def _one(self, query: str, *args: Any) -> Any:
        async with self._db.execute(query, args) as cursor:
            return await cursor.fetchone()

    async def _write(self, point: str, statement: str, *args: Any) -> None:
        """One statement outside a transaction is a transaction of its own."""
        with persisting(point):
            await self._db.execute(statement, args)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        await self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            await self._db.execute("ROLLBACK")
            raise
        await self._db.execute("COMMIT")


def _message(row: Sequence[Any]) -> Message:
    role, content, calls, call_id, tool = row
    decoded = msgspec.json.decode(calls, type=tuple[ToolCall, ...]) if calls else ()
    return Message(role, content, decoded, call_id, tool)
