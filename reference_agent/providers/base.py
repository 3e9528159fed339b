"""The interface to a model, and the plain data that cross it.

What every provider guarantees:

M1  An `Answer` is whole: its message was read to the end and its tool calls have an id, a name and
    arguments. What is cut, torn or unreadable is a ModelError, never a shorter answer.
M2  A stream is any number of deltas, then exactly one Answer, which holds the whole text: a caller
    that ignores the deltas loses nothing.
M3  Whatever goes wrong between here and the model is a ModelError that says whether asking again
    can help. Providers never retry by themselves: every attempt is the caller's to count.
M4  The system prompt is an argument of each call. It is in no message, and so is never persisted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import msgspec

from reference_agent.messages import Message

# A request that came too early (425) or too slowly (408) or too often (429) may be welcome later.
LATER = frozenset({408, 425, 429})
# The server's own trouble passes, but what it does not implement today it will not in a second.
NOT_IMPLEMENTED = frozenset({501, 505})


class Usage(msgspec.Struct, frozen=True):
    """What the call cost, in tokens."""

    input_tokens: int
    output_tokens: int


class Answer(msgspec.Struct, frozen=True):
    message: Message
    usage: Usage


class TextDelta(msgspec.Struct, frozen=True):
    """A piece of the answer's text, for someone who watches it grow."""

    text: str


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as the model sees it; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]


class ModelError(Exception):
    """No answer. `retryable` says whether asking again can help, `retry_after` when, in seconds."""

    def __init__(
        self, message: str, *, retryable: bool, retry_after: float | None = None, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after
        self.status = status


def can_pass(status: int) -> bool:
    """Whether a request that was refused with this HTTP status may be accepted when repeated."""
    return status in LATER or (status >= 500 and status not in NOT_IMPLEMENTED)


def estimated_tokens(*texts: str) -> int:
    """Four characters to a token: what a budget goes by when nobody counted."""
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
