"""The changes to be written after a crash, in order.

| step                       | due                                                | change            |
|----------------------------|----------------------------------------------------|-------------------|
| 1 records, 2 tree          | a session has no link: never acknowledged          | session.removed   |
| (read at open)             | a root was ACTIVE, and has no prompt in its mail   | message.enqueued  |
| 3 no agent is ACTIVE       | an agent is; children before their parents         | session.suspended |
| 4 undelivered: re-sent or  | one is handled, or never will be: the reply to it  | message.enqueued  |
|   flagged                  | the same, and only the mark is missing             | message.delivered |
| 5 roots, by `Daemon.start` | their prompt wakes them                            |                   |

`due` is a pure function of the state, evaluated lazily while its changes are written. A recovery that is
interrupted starts over and finds the remaining changes due. The prompt comes before step 3, because that
step removes the reason for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from reference_agent.daemon import mailbox, tree
from reference_agent.daemon.journal import Journal
from reference_agent.daemon.mailbox import Limits
from reference_agent.daemon.records import (
    DAEMON,
    DELIVERED,
    OUTSIDE,
    Enqueued,
    Message,
    Removed,
    Settled,
    Simple,
    Suspended,
)
from reference_agent.daemon.state import State
from reference_agent.logs.structured import get_logger

log = get_logger(__name__)
PROMPT = (
    "The daemon stopped unexpectedly and was restarted. Your conversation is complete up to your last"
    " finished turn; a turn that was in progress is lost. Messages not yet handled are delivered now, yours"
    " after this one; messages that you have handled are not delivered again. {children}"
)
NO_CHILDREN = "You have no sub-agents."
CHILDREN = "Your sub-agents are suspended; each is resumed when you send it a message: {names}."


async def recover(journal: Journal, boot: str, limits: Limits) -> list[Simple]:
    """Write all changes due in steps 1 to 4. Idempotent."""
    written = []
    for change in due(journal.state, boot, limits):
        await journal.write(change)
        written.append(change)
        if isinstance(change, Settled) and change.outcome != DELIVERED:
            log.warning("message.set_aside", message_id=change.message_id, reason=change.outcome)
    return written


def due(state: State, boot: str, limits: Limits) -> Iterator[Simple]:
    """Yield each change once its predecessors are in the state. Examines every item once: D8."""
    for agent in list(state.agents):
        if agent not in state.parents:
            yield Removed(agent)
    for root in tree.roots(state):
        if state.agents[root].state == "ACTIVE" and not _is_prompted(state, root):
            yield Enqueued(Message(f"{boot}.{root}", DAEMON, root, prompt(state, root)))
    for agent in reversed(state.parents):  # a child is linked after its parent
        if state.agents[agent].state == "ACTIVE":
            yield Suspended(agent, state.agents[agent].blob)
    for message in list(state.undelivered.values()):
        yield from _closing(state, message, limits)


def _is_prompted(state: State, root: str) -> bool:
    return any(mail.sender == DAEMON for mail in state.mailboxes.get(root, {}).values())


def prompt(state: State, root: str) -> str:
    alive = [c for c in state.children.get(root, []) if not tree.is_stopped(state, c)]
    told = CHILDREN.format(names=", ".join(alive)) if alive else NO_CHILDREN
    return PROMPT.format(children=told)


def _closing(state: State, message: Message, limits: Limits) -> Iterator[Simple]:
    """Close a message whose fate is decided. If this writes a reply to a stopped agent, that reply is
    flagged only when it is next delivered, or by the next recovery."""
    fate = None if message.receiver == OUTSIDE else mailbox.fate(state, message, limits)
    while fate is not None and message.message_id in state.undelivered:
        yield mailbox.closing(state, message, fate)
