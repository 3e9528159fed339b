"""What is kept about agents and messages, and the changes that it is kept as: one write each (D2)."""

from __future__ import annotations

from typing import Literal

import msgspec

OUTSIDE = "user"  # whoever is no agent: may send, and fetches its replies itself
DAEMON = "daemon"  # sends the recovery prompt
DELIVERED = "delivered"

AgentState = Literal["ACTIVE", "SUSPENDED", "STOPPED"]


class AgentRecord(msgspec.Struct, frozen=True):
    agent_id: str
    provider: str
    model: str
    state: AgentState
    blob: str  # the provider's; nobody else reads it
    handled: str | None = None  # the last message that the blob knows of (D4)
    reply: str | None = None  # and what was said to it


class Message(msgspec.Struct, frozen=True):
    message_id: str
    sender: str
    receiver: str
    content: str
    wants_reply: bool = False
    reply_to: str | None = None
    failed: bool = False  # a reply that says why there is none
    tries: int = 0


def reply_id(message_id: str) -> str:
    """Made, not given: a reply that is written again is the same reply (D5)."""
    return f"{message_id}.reply"


class Change(msgspec.Struct, frozen=True, tag_field="kind"):
    """What can be written."""


class Recorded(Change, frozen=True, tag="session.recorded"):
    record: AgentRecord


class Removed(Change, frozen=True, tag="session.removed"):
    """A session that never got a link: nobody was told of it."""

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
    """Written before the turn: one that ends the process has been counted (D7)."""

    message_id: str
    tries: int


class Settled(Change, frozen=True, tag="message.delivered"):
    """`outcome` is `delivered`, or why it is set aside."""

    message_id: str
    outcome: str


class Remembered(Change, frozen=True, tag="message.remembered"):
    """Of a message that is settled, in a snapshot."""

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
    """All that counts, as the changes that lead there."""

    changes: tuple[Simple, ...]


AnyChange = Simple | Snapshot


def point_of(change: AnyChange) -> str:
    """The name under which it is announced: that of its kind."""
    return str(type(change).__struct_config__.tag)
