"""Fold: a session's state in memory, computed from the lines of its log. Pure: it applies line after line."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from reference_agent.messages import Budget, Message, Plan, StoredMessage
from reference_agent.store import lines
from reference_agent.store.event_log import DamagedLog
from reference_agent.store.records import RecordedCall, Request, Run, RunStatus, StoredCheckpoint, StoredError


class Fold:
    def __init__(self) -> None:
        self.session: lines.SessionCreated | None = None
        self.requests: dict[str, Request] = {}
        self.runs: dict[str, tuple[Run, RunStatus]] = {}
        self.messages: list[StoredMessage] = []
        self.checkpoints: dict[int, StoredCheckpoint] = {}  # by version
        self.plans: dict[str, Plan] = {}
        self.decisions: dict[int, Message] = {}
        self.spent_tokens = 0
        self.errors: list[StoredError] = []
        self.calls: dict[str, RecordedCall] = {}
        self.turns: dict[str, set[int]] = {}  # by request: where it got a decision or an error
        self.last_turn = 0  # the highest that was ever used
        self._began = ""  # the request that began last: older releases do not record whose turn it was

    def add(self, line: lines.AnyLine, seq: int, ts: str) -> None:
        match line:
            case lines.SessionCreated():
                self.session = line
            case lines.Said():
                self._add_message(line, seq, ts)
            case lines.RolledBack():
                last = number_of(line.last_message_id)
                self.messages = [each for each in self.messages if each.id <= last]
            case lines.CheckpointWritten():
                self._add_checkpoint(line)
            case lines.DecisionRecorded():
                self.decisions[line.turn] = line.message
                self._add_turn(line)
                self.spent_tokens += line.input_tokens + line.output_tokens
            case lines.ErrorRecorded():
                error = StoredError(line.turn, line.context, line.message, line.attempt)
                self.errors.append(error)
                self._add_turn(line)
            case lines.RequestAccepted() | lines.RequestAnswered() | lines.RunEnded():
                self._add_run(line)
            case lines.CallIssued() | lines.CallRead() | lines.CallFinished():
                self._add_call(line)

    def _add_turn(self, line: lines.DecisionRecorded | lines.ErrorRecorded) -> None:
        self.turns.setdefault(line.request_id or self._began, set()).add(line.turn)
        self.last_turn = max(self.last_turn, line.turn)

    def _add_message(self, line: lines.Said, seq: int, ts: str) -> None:
        message = Message(
            lines.ROLES[type(line)],
            line.content,
            line.calls,
            line.call_id,
            line.tool,
            line.is_error,
            line.reasoning,
        )
        created = int(datetime.fromisoformat(ts).timestamp())
        self.messages.append(StoredMessage(seq, line.turn, created, message))

    def _add_checkpoint(self, line: lines.CheckpointWritten) -> None:
        if line.plan is not None and line.plan_content is not None:
            self.plans[line.plan] = line.plan_content
        self.checkpoints[line.version] = StoredCheckpoint(
            line.turn,
            line.version,
            number_of(line.last_message_id),
            line.plan,
            Budget(line.spent_tokens, line.limit_tokens),
        )

    def _add_run(self, line: lines.RequestAccepted | lines.RequestAnswered | lines.RunEnded) -> None:
        if isinstance(line, lines.RequestAccepted):
            self._began = line.request_id
            self.last_turn = max(self.last_turn, line.first_turn)
            fresh = Request(line.request_id, line.content, line.first_turn)
            known = self.requests.get(line.request_id, fresh)
            again = msgspec.structs.replace(known, first_turn=line.first_turn)
            self.requests[line.request_id] = again
            self.runs[line.run_id] = Run(line.run_id, line.request_id, line.boot_id), "running"
            return
        status: RunStatus = "completed"
        if isinstance(line, lines.RunEnded):
            status = line.status
        else:
            answered = self.requests[line.request_id]
            answered = msgspec.structs.replace(answered, answer=line.answer)
            self.requests[line.request_id] = answered
        self.runs[line.run_id] = self.runs[line.run_id][0], status

    def _add_call(self, line: lines.CallIssued | lines.CallRead | lines.CallFinished) -> None:
        if isinstance(line, lines.CallFinished):
            known = self.calls[line.call_id]
            known = msgspec.structs.replace(known, status=line.status, result=line.result)
            self.calls[line.call_id] = known
            return
        result = line.result if isinstance(line, lines.CallRead) else None
        status = line.status if isinstance(line, lines.CallRead) else "issued"
        self.calls.pop(line.call_id, None)  # keeps calls ordered by when they were last issued
        self.calls[line.call_id] = RecordedCall(line.call_id, line.tool, line.args, line.key, status, result)


def folded(events: Iterable[dict[str, Any]], path: Path) -> Fold:
    """The state that the lines produce. A line of the store's own kinds that is invalid counts as damage."""
    fold = Fold()
    for event in events:
        if event.get("kind") in lines.KINDS:
            try:
                fold.add(msgspec.convert(event, lines.AnyLine), event["seq"], event["ts"])
            except (msgspec.ValidationError, KeyError, ValueError, TypeError) as error:
                raise DamagedLog(f"{path}, line {event['seq']}: {error}") from None
    return fold


def name_of(message: int) -> str:
    return f"msg_{message}"


def number_of(message_id: str) -> int:
    return int(message_id.removeprefix("msg_"))
