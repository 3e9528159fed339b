"""The records of agents and messages, and the changes they are stored as: one write each (D2)."""

from __future__ import annotations

from typing import Literal

import msgspec

OUTSIDE = "user"  # a sender that is not an agent; it fetches its replies itself
DAEMON = "daemon"  # sends the recovery prompt
DELIVERED = "delivered"

AgentState = Literal["ACTIVE", "SUSPENDED", "STOPPED"]


class AgentRecord(msgspec.Struct, frozen=True):
    agent_id: str
    provider: str
    model: str
    state: AgentState
    blob: str  # opaque; only the provider reads it
    handled: str | None = None  # the last message contained in the blob (D4)
    reply: str | None = None  # and the reply to it


class Message(msgspec.Struct, frozen=True):
    message_id: str
    sender: str
    receiver: str
    content: str
    wants_reply: bool = False
    reply_to: str | None = None
    failed: bool = False  # the reply says why there is no answer
    tries: int = 0


REPLY = ".reply"


def reply_id(message_id: str) -> str:
    """Derived, not generated: a reply that is written again is the same reply (D5)."""
    return f"{message_id}{REPLY}"


def is_storable(value: object) -> bool:
    """Whether every store can hold it: it is text, without lone surrogates."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class Change(msgspec.Struct, frozen=True, tag_field="kind"):
    """Base class of everything that can be written."""


class Recorded(Change, frozen=True, tag="session.recorded"):
    record: AgentRecord


class Removed(Change, frozen=True, tag="session.removed"):
    """A session that never got a link, so its spawn was never acknowledged."""

    agent_id: str


class Linked(Change, frozen=True, tag="tree.linked"):
    agent_id: str
    parent: str | None


class TurnSaved(Change, frozen=True, tag="send.completed"):
    agent_id: str
    blob: str
    message_id: str
    reply: str


class Suspended(Change, frozen=True, tag="session.suspended"):
    agent_id: str
    blob: str


class Resumed(Change, frozen=True, tag="session.resumed"):
    agent_id: str


class Stopped(Change, frozen=True, tag="tree.stopped"):
    """An agent and all its descendants, at once."""

    agents: tuple[str, ...]


class Enqueued(Change, frozen=True, tag="message.enqueued"):
    message: Message


class Tried(Change, frozen=True, tag="message.tried"):
    """Written before the turn, so that a turn that kills the process is counted (D7)."""

    message_id: str
    tries: int


class Settled(Change, frozen=True, tag="message.delivered"):
    """`outcome` is `delivered`, or the reason it is set aside."""

    message_id: str
    outcome: str


class Remembered(Change, frozen=True, tag="message.remembered"):
    """A settled message, in a snapshot."""

    message: Message
    outcome: str


Simple = (
    Recorded
    | Removed
    | Linked
    | TurnSaved
    | Suspended
    | Resumed
    | Stopped
    | Enqueued
    | Tried
    | Settled
    | Remembered
)


class Snapshot(Change, frozen=True, tag="snapshot"):
    """The whole state, as the changes that produce it."""

    changes: tuple[Simple, ...]


AnyChange = Simple | Snapshot


def point_of(change: AnyChange) -> str:
    """The persist point of a change: the name of its kind."""
    return str(type(change).__struct_config__.tag)
