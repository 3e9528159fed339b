"""delivery: each accepted message, replies included, is handled once, or set aside for a reason.

Verifies every acknowledged message (ack `sent`) at each later probe. It is in the message log. If it is
marked as delivered, the receiver's history has it. If it is set aside, the receiver is stopped, the message
is poison or five crashes may have hit it, and the receiver's history does not have it. At the `end` it is
either delivered or set aside, and once it is settled, that does not change. No history has a message twice,
has a message that is not in the log, or loses a turn between two probes. A settled question has its reply in
the log, and at the `end` also in the asker's history. Whenever a client asks, the reply reported to it (ack
`replied`) is what the receiver replied. Cannot see messages that were never acknowledged.

Smallest history that breaks it: ack sent m, recovered without m.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chaoskit.model import Ack, Crashed, History, Invariant, Json, NothingToJudge, Probe, Violation

TRIES = 5  # crashes after which a message may be set aside, whoever caused them


def check(history: History) -> Iterator[Violation]:
    told: dict[str, Json] = {}
    said: dict[str, str] = {}
    before: Json = {"agents": {}, "messages": {}}
    looks = crashes = 0
    for event in history.events:
        if isinstance(event, Ack) and event.name == "sent":
            told[event.data["id"]] = event.data
        elif isinstance(event, Ack) and event.name == "replied":
            first = said.setdefault(event.data["id"], event.data["said"])
            if first != event.data["said"]:
                yield Violation("changed", f"the reply to {event.data['id']} changed")
        elif isinstance(event, Crashed) or (isinstance(event, Ack) and event.name == "died"):
            crashes += 1
        elif isinstance(event, Probe) and "parents" in event.data:
            looks += len(told)
            yield from _histories(event.data)
            yield from _lasting(before, event.data)
            for data in told.values():
                is_excused = data["poison"] or crashes >= TRIES
                yield from _message(data, event.data, is_end=event.name == "end", is_excused=is_excused)
            yield from _replies(said, told, event.data["agents"])
            before = event.data
    if not looks and not said:
        raise NothingToJudge


def _histories(found: Json) -> Iterator[Violation]:
    for agent, record in found["agents"].items():
        for message, times in Counter(id_ for id_, _ in record["turns"]).items():
            if times > 1:
                yield Violation("doubled", f"{agent} handled {message} {times} times")
            if message not in found["messages"]:
                yield Violation("unlogged", f"{agent} handled {message}, which is not in the log")


def _lasting(before: Json, now: Json) -> Iterator[Violation]:
    """What one probe shows is still so at the next."""
    for agent, record in before["agents"].items():
        turns = now["agents"].get(agent, record)["turns"]
        if turns[: len(record["turns"])] != record["turns"]:
            yield Violation("rewritten", f"the history of {agent} lost or changed a turn")
    for message, known in before["messages"].items():
        outcome = now["messages"].get(message, known)["outcome"]
        if known["outcome"] is not None and outcome != known["outcome"]:
            yield Violation("resettled", f"{message} was {known['outcome']}, but is now {outcome}")


def _message(sent: Json, found: Json, *, is_end: bool, is_excused: bool) -> Iterator[Violation]:
    message, receiver = sent["id"], sent["to"]
    known = found["messages"].get(message)
    outcome = known and known["outcome"]
    if known is None:
        yield Violation("lost", f"{message} was accepted, but is not in the log")
    elif outcome is None:
        if is_end:
            yield Violation("stuck", f"{message} is still undelivered at the end")
    elif outcome == "delivered":
        if not _has(found, receiver, message):
            yield Violation("lost", f"{message} is marked as delivered, but {receiver} never handled it")
    elif _has(found, receiver, message):
        yield Violation("contradicted", f"{message} was set aside ({outcome}), but {receiver} handled it")
    elif not is_excused and _state(found, receiver) != "STOPPED":
        yield Violation("given up", f"{message} was set aside ({outcome}) without a reason")
    if outcome is not None and sent["asks"]:
        yield from _reply(sent, found, is_end=is_end)


def _reply(sent: Json, found: Json, *, is_end: bool) -> Iterator[Violation]:
    """Check the reply to a settled question."""
    reply, asker = f"{sent['id']}.reply", sent["from"]
    if reply not in found["messages"]:
        yield Violation("unanswered", f"{sent['id']} is settled, but has no reply")
        return
    lives = _state(found, asker) in ("ACTIVE", "SUSPENDED")
    if is_end and lives and not _has(found, asker, reply):
        yield Violation("unanswered", f"{asker} never received the reply to {sent['id']}")


def _replies(said: dict[str, str], told: dict[str, Json], agents: Json) -> Iterator[Violation]:
    for message, text in said.items():
        receiver = agents.get(told[message]["to"]) if message in told else None
        if receiver and [message, text] not in receiver["turns"]:
            yield Violation("changed", f"the reply to {message} differs from what its receiver replied")


def _has(found: Json, agent: str, message: str) -> bool:
    turns = found["agents"].get(agent, {"turns": []})["turns"]
    return any(id_ == message for id_, _ in turns)


def _state(found: Json, agent: str) -> str | None:
    record = found["agents"].get(agent)
    return str(record["state"]) if record else None


INVARIANT = Invariant(
    name="delivery",
    summary="an accepted message is handled exactly once or set aside for a reason; no reply is lost",
    check=check,
)
