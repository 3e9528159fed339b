"""What is said in a conversation."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

import msgspec

Role = Literal["user", "assistant", "tool"]


class ToolCall(msgspec.Struct, frozen=True):
    id: str
    name: str
    args: dict[str, Any]


class Message(msgspec.Struct, frozen=True):
    """`calls` belong to an assistant message, `call_id` and `tool` to a tool's result."""

    role: Role
    content: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    tool: str | None = None


def idempotency_key(session: str, call: ToolCall) -> str:
    """The same for the same intent: session, tool and canonical arguments."""
    canonical = json.dumps([session, call.name, call.args], sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()
