"""The records of a store as plain data, independent of the kind of store."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

from reference_agent.messages import Budget, Plan, StoredMessage

CallStatus = Literal["issued", "completed", "failed", "unknown"]
RunStatus = Literal["running", "completed", "failed", "interrupted"]


class Request(msgspec.Struct, frozen=True):
    request_id: str
    content: str
    first_turn: int
    answer: str | None = None


class OtherContent(Exception):
    """A request id was used again for other content. An id names one request, whose answer is recorded."""

    def __init__(self, request_id: str) -> None:
        super().__init__(
            f"request {request_id[:80]!r} was already sent with other content: use a new request id"
        )


class Run(msgspec.Struct, frozen=True):
    run_id: str
    request_id: str
    boot_id: str


class RecordedCall(msgspec.Struct, frozen=True):
    call_id: str
    tool: str
    args: dict[str, Any]
    key: str
    status: CallStatus
    result: str | None


class StoredCheckpoint(msgspec.Struct, frozen=True):
    turn: int
    version: int
    last_msg_id: int
    plan: str | None
    budget: Budget


class StoredError(msgspec.Struct, frozen=True):
    turn: int
    context: str
    message: str
    attempt: int


class Snapshot(msgspec.Struct, frozen=True):
    """The content of one checkpoint version."""

    version: int
    transcript: tuple[StoredMessage, ...]
    plan: Plan | None
    budget: Budget


def encoded_plan(plan: Plan) -> tuple[str, bytes]:
    """Return the hash and the encoding of a plan; equal plans are stored once."""
    content = msgspec.json.encode(plan)
    return hashlib.blake2b(content, digest_size=16).hexdigest(), content
