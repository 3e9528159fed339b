"""SessionStore on files: `<session>.messages.jsonl` is the source of truth, and this class is a view of it.

    write ──> one line, synced ──> Fold ──> every read
                 (EventLog)          ^
                                     └── built from all lines when the session is opened

Each method that writes appends one line, so the change is atomic. The fold is updated only afterwards, so a
failed write has changed nothing and can be retried. Nothing is ever rewritten: a rollback is a line too.
The log is shared with the agent, whose own events (run.started...) are interleaved with the store's lines
and ignored here. Write access is settled elsewhere: one process per session.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec

from reference_agent.messages import Budget, Message, Plan, StoredMessage, ToolCall
from reference_agent.providers.base import Usage
from reference_agent.store import lines
from reference_agent.store.event_log import EventLog, read_log
from reference_agent.store.fold import Fold, folded, name_of
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


class FilesStore:
    """The durable state of one session."""

    def __init__(self, log: EventLog, agent: str) -> None:
        self._log = log
        self._agent = agent
        self._fold = folded(log.events, log.path)

    async def close(self) -> None:
        """The log belongs to its opener."""

    def _write(self, point: str, line: lines.AnyLine) -> None:
        event = self._log.record(msgspec.to_builtins(line), point)
        self._fold.add(msgspec.convert(event, lines.AnyLine), event["seq"], event["ts"])

    # --- the session

    async def create_session(self, model: str, provider: str, scratchpad: str) -> None:
        if self._fold.session is None:
            home, pad = self._log.path.parent, Path(scratchpad)
            self._write(
                "session.create",
                lines.SessionCreated(
                    agent_id=self._agent,
                    model=model,
                    provider=provider,
                    scratchpad=str(pad.relative_to(home) if pad.is_relative_to(home) else pad),
                ),
            )

    async def scratchpad(self) -> str | None:
        known = self._fold.session
        return str(self._log.path.parent / known.scratchpad) if known else None

    # --- requests and runs (G1, G7)

    async def request(self, request_id: str) -> Request | None:
        return self._fold.requests.get(request_id)

    async def start_run(self, run: Run, request: Request) -> None:
        self._write(
            "run.start",
            lines.RequestAccepted(
                request_id=request.request_id,
                content=request.content,
                first_turn=request.first_turn,
                run_id=run.run_id,
                boot_id=run.boot_id,
            ),
        )

    async def complete_run(self, run: Run, answer: str) -> None:
        self._write(
            "run.complete", lines.RequestAnswered(request_id=run.request_id, run_id=run.run_id, answer=answer)
        )

    async def end_run(self, run: Run, status: RunStatus, reason: str) -> None:
        self._write("run.end", lines.RunEnded(run_id=run.run_id, status=status, reason=reason))

    async def last_run(self) -> tuple[Run, RunStatus] | None:
        return next(reversed(self._fold.runs.values()), None)

    async def unfinished_requests(self) -> list[Request]:
        return unfinished(self._fold)

    # --- the conversation and its checkpoints (G2)

    async def messages(self, up_to: int | None = None) -> list[StoredMessage]:
        return [each for each in self._fold.messages if up_to is None or each.id <= up_to]

    async def add_message(self, message: Message, turn: int) -> None:
        said: Any = lines.SAID[message.role]
        self._write(
            f"message.{message.role}",
            said(
                message_id=name_of(self._log.next_seq),
                content=message.content,
                turn=turn,
                calls=message.calls,
                call_id=message.call_id,
                tool=message.tool,
                is_error=message.is_error,
                reasoning=message.reasoning,
            ),
        )

    async def roll_back_to(self, last_msg_id: int) -> None:
        if self._fold.messages and self._fold.messages[-1].id > last_msg_id:
            last = name_of(last_msg_id)
            self._write("messages.rollback", lines.RolledBack(last_message_id=last))

    async def write_checkpoint(self, turn: int, plan: Plan | None, budget: Budget) -> int:
        digest = encoded_plan(plan)[0] if plan is not None else None
        version = max(self._fold.checkpoints, default=0) + 1
        self._write(
            "checkpoint.write",
            lines.CheckpointWritten(
                version=version,
                turn=turn,
                last_message_id=name_of(self._fold.messages[-1].id),
                spent_tokens=budget.spent_tokens,
                limit_tokens=budget.limit_tokens,
                plan=digest,
                plan_content=None if digest in self._fold.plans else plan,
            ),
        )
        return version

    async def latest_checkpoint(self) -> StoredCheckpoint | None:
        return next(reversed(self._fold.checkpoints.values()), None)

    async def versions(self) -> list[int]:
        return list(self._fold.checkpoints)

    async def load_version(self, version: int) -> Snapshot | None:
        found = self._fold.checkpoints.get(version)
        if found is None:
            return None
        messages = await self.messages(up_to=found.last_msg_id)
        return Snapshot(version, tuple(messages), await self.plan(found), found.budget)

    async def plan(self, checkpoint: StoredCheckpoint) -> Plan | None:
        return None if checkpoint.plan is None else self._fold.plans[checkpoint.plan]

    # --- the journal (G3, G4). Callers act on these records, so they get copies, not the fold's own
    # objects.

    async def last_turn(self) -> int:
        return self._fold.last_turn

    async def turns_of(self, request_id: str) -> list[int]:
        return sorted(self._fold.turns.get(request_id, ()))

    async def decision(self, turn: int) -> Message | None:
        return copy.deepcopy(self._fold.decisions.get(turn))

    async def record_decision(self, turn: int, request_id: str, message: Message, usage: Usage) -> None:
        self._write(
            "decision.record",
            lines.DecisionRecorded(
                turn=turn,
                request_id=request_id,
                message=message,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
            ),
        )

    async def spent_tokens(self) -> int:
        return self._fold.spent_tokens

    async def add_error(self, turn: int, request_id: str, context: str, message: str, attempt: int) -> None:
        self._write(
            "error.record",
            lines.ErrorRecorded(
                turn=turn, request_id=request_id, context=context, message=message, attempt=attempt
            ),
        )

    async def errors(self, turn: int | None = None) -> list[StoredError]:
        return [error for error in self._fold.errors if turn is None or error.turn == turn]

    async def call(self, call_id: str) -> RecordedCall | None:
        return copy.deepcopy(self._fold.calls.get(call_id))

    async def decided_call(self, key: str) -> RecordedCall | None:
        return next(iter(self._calls("completed", "unknown", key=key)), None)

    async def issued_call(self, key: str) -> RecordedCall | None:
        return next(iter(self._calls("issued", key=key)), None)

    async def open_questions(self) -> list[RecordedCall]:
        return self._calls("unknown")

    def _calls(self, *statuses: CallStatus, key: str | None = None) -> list[RecordedCall]:
        calls = self._fold.calls.values()
        found = [c for c in calls if c.status in statuses and key in (None, c.key)]
        return copy.deepcopy(found)

    async def issue_call(self, call: ToolCall, key: str) -> None:
        issued = lines.CallIssued(call_id=call.id, tool=call.name, args=call.args, key=key)
        self._write("call.issue", issued)

    async def finish_call(self, call_id: str, status: CallStatus, result: str) -> None:
        self._write("call.finish", lines.CallFinished(call_id=call_id, status=status, result=result))

    async def record_reading(self, call: ToolCall, key: str, status: CallStatus, result: str) -> None:
        self._write(
            "call.read",
            lines.CallRead(
                call_id=call.id, tool=call.name, args=call.args, key=key, status=status, result=result
            ),
        )


def unfinished(fold: Fold) -> list[Request]:
    """Requests that were accepted and not answered, unless their latest run was given up."""
    latest = {run.request_id: status for run, status in fold.runs.values()}  # in the order of their starts
    requests = fold.requests.values()
    return [each for each in requests if each.answer is None and latest.get(each.request_id) != "failed"]


def read_fold(path: Path) -> Fold | None:
    """Read a session, even while it is open elsewhere. None if this file does not hold its state."""
    if not path.exists():
        return None
    fold = folded(read_log(path), path)
    return fold if fold.session else None


def read_folds(directory: Path) -> dict[str, Fold]:
    """Every session of this directory that is stored in files."""
    paths = {
        path.name.removesuffix(lines.SUFFIX): path for path in sorted(directory.glob(f"*{lines.SUFFIX}"))
    }
    found = {session: read_fold(path) for session, path in paths.items()}
    return {session: fold for session, fold in found.items() if fold}
