"""Mailbox capacity, and the fate of a message. Pure."""

from __future__ import annotations

import msgspec

from reference_agent.daemon import tree
from reference_agent.daemon.records import DAEMON, DELIVERED, Enqueued, Message, Settled, reply_id
from reference_agent.daemon.state import State


class Limits(msgspec.Struct, frozen=True):
    mailbox: int = 100  # messages that may wait for one agent, plus the replies it waits for (D6)
    # Turns that may fail, or never end because the process dies, for one message (D7). More than three: a
    # message that is killed three times in a row need not be the one at fault.
    tries: int = 5
    suspect: int = 2  # after this many, its next turn excludes the turns of other suspects
    patience: float = 600.0  # seconds until a provider that does not answer has failed


class Fate(msgspec.Struct, frozen=True):
    """`outcome` is for the log, `said` for the sender."""

    outcome: str
    said: str

    @property
    def is_failure(self) -> bool:
        return self.outcome != DELIVERED


def load(state: State, agent: str) -> int:
    return len(state.mailboxes.get(agent, ())) + state.asking[agent]


def next_for(state: State, agent: str) -> Message | None:
    """In order, except that the recovery prompt precedes messages that were there at the crash."""
    mail = state.mailboxes.get(agent, {}).values()
    prompts = (message for message in mail if message.sender == DAEMON)
    return next(prompts, None) or next(iter(mail), None)


def fate(state: State, message: Message, limits: Limits) -> Fate | None:
    """What is already decided about a message; None if the receiver has yet to handle it.

    `handled` is checked first: a receiver that was stopped after its turn has replied all the same. Only
    the last message that a receiver handled can still be undelivered, because the next one begins only
    after this one is settled.
    """
    receiver = state.agents[message.receiver]
    if receiver.handled == message.message_id:
        return Fate(DELIVERED, receiver.reply or "")
    if tree.is_stopped(state, message.receiver):
        return Fate("stopped", f"{message.receiver} is stopped")
    if message.tries >= limits.tries:
        reason = f"{message.receiver} failed or crashed on this message {message.tries} times"
        return Fate("poison", reason)
    return None


def closing(state: State, message: Message, fate: Fate) -> Enqueued | Settled:
    """The next change that carries out a fate: the reply first, so that it cannot be lost."""
    answer = reply_id(message.message_id)
    if message.wants_reply and not state.knows(answer):
        reply = Message(
            answer,
            message.receiver,
            message.sender,
            fate.said,
            reply_to=message.message_id,
            failed=fate.is_failure,
        )
        return Enqueued(reply)
    return Settled(message.message_id, fate.outcome)
