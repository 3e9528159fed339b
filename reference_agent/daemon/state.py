"""State: the result of all changes so far. Pure: it applies one change after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from reference_agent.daemon import records
from reference_agent.daemon.records import AgentRecord, AgentState, AnyChange, Message, Simple

REMEMBERED = 1000  # settled messages whose ids are still known (D5)


class State:
    def __init__(self) -> None:
        self.agents: dict[str, AgentRecord] = {}
        self.parents: dict[str, str | None] = {}  # the links
        self.children: dict[str, list[str]] = {}
        self.undelivered: dict[str, Message] = {}  # in the order of the log
        self.mailboxes: dict[str, dict[str, Message]] = {}  # the same, by receiver
        self.asking: Counter[str] = Counter()  # by sender: questions without a reply yet
        self.settled: dict[str, tuple[Message, str]] = {}  # the most recent ones, with their outcomes

    def knows(self, message_id: str) -> bool:
        return self.message(message_id) is not None

    def message(self, message_id: str) -> Message | None:
        """Undelivered, or among the last that were settled."""
        if message_id in self.settled:
            return self.settled[message_id][0]
        return self.undelivered.get(message_id)

    def add(self, change: AnyChange) -> None:
        match change:
            case records.Snapshot(changes):  # always the first change
                self._add_all(changes)
            case records.Recorded(record):
                self.agents[record.agent_id] = record
            case records.Removed(agent):
                self.agents.pop(agent, None)
            case records.Linked(agent, parent):
                self._link(agent, parent)
            case records.TurnSaved(agent, blob, message_id, reply):
                known = self.agents[agent]
                self.agents[agent] = replace(known, blob=blob, handled=message_id, reply=reply)
            case records.Suspended(agent, blob):
                self.agents[agent] = replace(self.agents[agent], state="SUSPENDED", blob=blob)
            case records.Resumed(agent):
                self._move("ACTIVE", agent)
            case records.Stopped(agents):
                self._move("STOPPED", *agents)
            case records.Enqueued(message):
                self._enqueue(message)
            case records.Tried(message_id, tries):
                self._keep(replace(self.undelivered[message_id], tries=tries))
            case records.Settled(message_id, outcome):
                self._settle(message_id, outcome)
            case records.Remembered(message, outcome):
                self.settled[message.message_id] = message, outcome

    def _add_all(self, changes: Iterable[Simple]) -> None:
        for each in changes:
            self.add(each)

    def _link(self, agent: str, parent: str | None) -> None:
        self.parents[agent] = parent
        if parent is not None:
            self.children.setdefault(parent, []).append(agent)

    def _move(self, state: AgentState, *agents: str) -> None:
        for agent in agents:
            self.agents[agent] = replace(self.agents[agent], state=state)

    def _enqueue(self, message: Message) -> None:
        self._keep(message)
        if message.wants_reply:
            self.asking[message.sender] += 1

    def _keep(self, message: Message) -> None:
        self.undelivered[message.message_id] = message
        self.mailboxes.setdefault(message.receiver, {})[message.message_id] = message

    def _settle(self, message_id: str, outcome: str) -> None:
        message = self.undelivered.pop(message_id)
        box = self.mailboxes[message.receiver]
        del box[message_id]
        if not box:
            del self.mailboxes[message.receiver]
        if message.wants_reply:
            self.asking[message.sender] -= 1
            if not self.asking[message.sender]:
                del self.asking[message.sender]
        self.settled[message_id] = message, outcome
        while len(self.settled) > REMEMBERED:
            del self.settled[next(iter(self.settled))]

    def changes(self) -> Iterator[Simple]:
        """The shortest sequence of changes that produces this state."""
        yield from map(records.Recorded, self.agents.values())
        for agent, parent in self.parents.items():  # in insertion order: a parent comes first
            yield records.Linked(agent, parent)
        for message, outcome in self.settled.values():
            yield records.Remembered(message, outcome)
        yield from map(records.Enqueued, self.undelivered.values())
