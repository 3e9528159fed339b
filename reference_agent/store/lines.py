"""The lines of a session's log that hold its state: what FilesStore writes and reads back.

    {"seq":145,"ts":"2026-02-21T10:01:10Z","kind":"message.user","message_id":"msg_145","content":"..."}

A line is one atomic change. Fields at their default are omitted. Other kinds of lines (run.started,
turn.completed...) are for observers and not part of the state.
"""

from __future__ import annotations

from typing import Any

import msgspec

from reference_agent.messages import Message, Plan, Reasoning, Role, ToolCall
from reference_agent.store.records import CallStatus, RunStatus

SUFFIX = ".messages.jsonl"  # of the log; the rest of its name is the session's id


class Line(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="kind"):
    pass


class SessionCreated(Line, tag="store.created"):
    agent_id: str
    model: str
    provider: str
    scratchpad: str  # relative to the log if it is in the same directory, which may be moved


class RequestAccepted(Line, tag="request.accepted"):
    """A request and a run for it. The first turn is the one that begins with the user's message."""

    request_id: str
    content: str
    first_turn: int
    run_id: str
    boot_id: str


class RequestAnswered(Line, tag="request.answered"):
    request_id: str
    run_id: str
    answer: str


class RunEnded(Line, tag="run.ended"):
    run_id: str
    status: RunStatus
    reason: str


class Said(Line):
    """A message. Its id is `msg_` plus the line's own seq, so no id is used twice."""

    message_id: str
    content: str
    turn: int
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    tool: str | None = None
    is_error: bool = False
    reasoning: tuple[Reasoning, ...] = ()


class UserSaid(Said, tag="message.user"):
    pass


class AssistantSaid(Said, tag="message.assistant"):
    pass


class ToolSaid(Said, tag="message.tool"):
    pass


SAID: dict[Role, type[Said]] = {"user": UserSaid, "assistant": AssistantSaid, "tool": ToolSaid}
ROLES = {kind: role for role, kind in SAID.items()}


class RolledBack(Line, tag="messages.rolled_back"):
    """The messages after this one are no longer part of the conversation."""

    last_message_id: str


class CheckpointWritten(Line, tag="checkpoint.written"):
    """A pointer to every message up to this one. A plan's content is stored where the plan first appears."""

    version: int
    turn: int
    last_message_id: str
    spent_tokens: int
    limit_tokens: int | None = None
    plan: str | None = None  # its hash
    plan_content: Plan | None = None


class DecisionRecorded(Line, tag="decision.recorded"):
    turn: int
    message: Message
    input_tokens: int
    output_tokens: int
    request_id: str | None = None  # older releases do not record it


class ErrorRecorded(Line, tag="error.recorded"):
    turn: int
    context: str
    message: str
    attempt: int
    request_id: str | None = None


class CallIssued(Line, tag="call.issued"):
    call_id: str
    tool: str
    args: dict[str, Any]
    key: str


class CallFinished(Line, tag="call.finished"):
    call_id: str
    status: CallStatus
    result: str


class CallRead(Line, tag="call.read"):
    """A call without effects, and its result."""

    call_id: str
    tool: str
    args: dict[str, Any]
    key: str
    status: CallStatus
    result: str


AnyLine = (
    SessionCreated
    | RequestAccepted
    | RequestAnswered
    | RunEnded
    | UserSaid
    | AssistantSaid
    | ToolSaid
    | RolledBack
    | CheckpointWritten
    | DecisionRecorded
    | ErrorRecorded
    | CallIssued
    | CallFinished
    | CallRead
)
KINDS = frozenset(line.__struct_config__.tag for line in AnyLine.__args__)
