"""The messages of a conversation, and the data stored with them."""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any, Literal

import msgspec

LONE_SURROGATES = re.compile("[\ud800-\udfff]")
Role = Literal["user", "assistant", "tool"]


class ToolCall(msgspec.Struct, frozen=True):
    id: str
    name: str
    args: dict[str, Any]


class Reasoning(msgspec.Struct, frozen=True):
    """The model's reasoning text. The metadata belong to the provider and are opaque."""

    text: str
    metadata: dict[str, Any] = {}


class Message(msgspec.Struct, frozen=True):
    """Text, tool calls and reasoning of an assistant; `call_id`, `tool` and `is_error` of a result.

    There is no system message: the system prompt is built anew for each model call.
    """

    role: Role
    content: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    tool: str | None = None
    is_error: bool = False
    reasoning: tuple[Reasoning, ...] = ()


class StoredMessage(msgspec.Struct, frozen=True):
    """A message as stored."""

    id: int
    turn: int
    created_at: int  # seconds since the epoch
    message: Message


class Step(msgspec.Struct, frozen=True):
    text: str
    done: bool = False
    postcondition: str = ""
    evidence: str = ""


class Plan(msgspec.Struct, frozen=True):
    steps: tuple[Step, ...] = ()


class Budget(msgspec.Struct, frozen=True):
    """Tokens spent, and the limit (None: unlimited)."""

    spent_tokens: int = 0
    limit_tokens: int | None = None

    @property
    def exhausted(self) -> bool:
        return self.limit_tokens is not None and self.spent_tokens >= self.limit_tokens


def idempotency_key(session: str, tool: str, args: dict[str, Any]) -> str:
    """Equal for the same intent: session, tool and canonical arguments."""
    canonical = json.dumps([session, tool, args], sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()


def storable(value: Any) -> Any:
    """The value as every store can hold it, and will return it.

    Models and tools produce text with lone surrogates (an emoji cut in half), which is not valid Unicode, and
    numbers that JSON has no words for. A text keeps everything else; such a number becomes None.
    """
    if isinstance(value, str):
        return value if value.isascii() else LONE_SURROGATES.sub("\ufffd", value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {storable(str(key)): storable(each) for key, each in value.items()}
    return [storable(each) for each in value] if isinstance(value, list | tuple) else value


def storable_message(message: Message) -> Message:
    calls = tuple(ToolCall(storable(c.id), storable(c.name), storable(c.args)) for c in message.calls)
    reasoning = tuple(Reasoning(storable(r.text), storable(r.metadata)) for r in message.reasoning)
    return msgspec.structs.replace(
        message, content=storable(message.content), calls=calls, reasoning=reasoning
    )


def unanswered(conversation: list[Message]) -> list[ToolCall]:
    """Calls without a result. Providers permanently reject a conversation that contains one."""
    answered = {message.call_id for message in conversation if message.role == "tool"}
    return [c for message in conversation for c in message.calls if c.id not in answered]
