"""The interface to a model, and the plain data that cross it.

Every provider guarantees:

M1  An `Answer` is complete: its message was read to the end and its tool calls have an id, a name and
    arguments. An answer that is truncated or unreadable is a ModelError, never a shorter answer.
M2  A stream is any number of deltas, then exactly one Answer with the whole text: a caller that ignores the
    deltas loses nothing.
M3  Any failure between here and the model is a ModelError that says whether a retry can help. Providers
    never retry by themselves: the caller counts every attempt.
M4  The system prompt is an argument of each call. It is in no message, and is therefore never persisted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import msgspec

from reference_agent.messages import Message

# A request that came too early (425), too slowly (408) or too often (429) may be accepted later.
LATER = frozenset({408, 425, 429})
# A server error may be temporary, but what a server does not implement will not change in a second.
NOT_IMPLEMENTED = frozenset({501, 505})


class Usage(msgspec.Struct, frozen=True):
    """The cost of the call in tokens."""

    input_tokens: int
    output_tokens: int


class Answer(msgspec.Struct, frozen=True):
    message: Message
    usage: Usage


class TextDelta(msgspec.Struct, frozen=True):
    """A piece of the answer's text, for displaying it as it grows."""

    text: str


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as the model sees it; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]


class ModelError(Exception):
    """No answer. `retryable` says whether a retry can help, `retry_after` when, in seconds."""

    def __init__(
        self, message: str, *, retryable: bool, retry_after: float | None = None, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after
        self.status = status


def can_pass(status: int) -> bool:
    """Whether a request rejected with this HTTP status may succeed when repeated."""
    return status in LATER or (status >= 500 and status not in NOT_IMPLEMENTED)


def estimated_tokens(*texts: str) -> int:
    """Four characters per token: the budget's estimate when the service reports no usage."""
    return sum(-(-len(text) // 4) for text in texts)


class Provider(Protocol):
    """See M1 to M4 above."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    async def complete(
        self, conversation: Sequence[Message], *, system: str, tools: Sequence[ToolSpec]
    ) -> Answer: ...

    def stream(
        self, conversation: Sequence[Message], *, system: str, tools: Sequence[ToolSpec]
    ) -> AsyncIterator[TextDelta | Answer]: ...
