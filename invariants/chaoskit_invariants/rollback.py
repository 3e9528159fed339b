"""rollback: recovery keeps exactly the complete turns, including all that were acknowledged.

Verifies every recovery. The messages found right after it are those of the run without faults, up to the
end of some turn (or up to any point, if there is no checkpoint yet). This turn is no earlier than the last
acknowledged one, and its checkpoint exists. No message is left after the checkpoint (`beyond`, where the
target reports it). After an open question to the user (ack `surfaced`) messages may differ from the run
without faults, except those that were acknowledged before the question. Cannot see what recovery does to
anything but messages.

Smallest history that breaks it: ack turn 1 (2 messages), crashed, recovered with 3 messages where the turns
of the run without faults end at 2 and 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chaoskit.model import Ack, History, Invariant, NothingToJudge, Probe, Violation


def check(history: History) -> Iterator[Violation]:
    expected = next(history.expected(Probe, "end"), None)
    if expected is None or not any(history.of(Probe, "recovered")):
        raise NothingToJudge
    whole = expected.data["messages"]
    ends_of_turns = _ends(whole) | {ack.data["messages"] for ack in history.expected(Ack, "turn")}
    acknowledged = 0
    comparable: int | None = None  # messages acknowledged before the first open question, if there is one
    for event in history.events:
        if isinstance(event, Ack) and event.name == "turn":
            acknowledged = max(acknowledged, event.data["messages"])
        elif isinstance(event, Ack) and event.name == "surfaced":
            comparable = acknowledged if comparable is None else comparable
        elif isinstance(event, Probe) and event.name == "recovered":
            yield from _kept(event.data, acknowledged)
            yield from _same(event.data["messages"], whole, comparable)
            own_ends = set() if comparable is None else _ends(event.data["messages"])
            yield from _complete(event.data, ends_of_turns | own_ends, acknowledged)


def _ends(messages: list[Any]) -> set[int]:
    """Where turns end: after an answer, and after the last result of an assistant's calls."""
    ends = {0}
    for count, (role, _, calls) in enumerate(messages, 1):
        following = messages[count][0] if count < len(messages) else None
        if following != "tool" and (role == "tool" or (role == "assistant" and not calls)):
            ends.add(count)
    return ends


def _kept(data: dict[str, Any], acknowledged: int) -> Iterator[Violation]:
    found = len(data["messages"])
    if found < acknowledged:
        yield Violation(
            "lost",
            f"{acknowledged} messages were acknowledged in a checkpoint, "
            f"but {found} were found after recovery",
        )
    elif acknowledged and data["checkpoint"] is None:
        yield Violation(
            "lost", f"a checkpoint with {acknowledged} messages was acknowledged, but none exists"
        )


def _same(found: list[object], whole: list[object], comparable: int | None) -> Iterator[Violation]:
    """`comparable`: how many messages must be the same; None: all that were found."""
    found = found[:comparable]
    if found != whole[: len(found)]:
        yield Violation("changed", "recovery left messages that the undisturbed run does not have")


def _complete(data: dict[str, Any], ends_of_turns: set[int], acknowledged: int) -> Iterator[Violation]:
    found, beyond = len(data["messages"]), data.get("beyond", 0)
    if data["checkpoint"] is None or found < acknowledged:
        return  # without a checkpoint there is nothing to roll back to: all messages stay
    if found not in ends_of_turns:
        yield Violation(
            "partial",
            f"recovery left {found} messages, in the middle of a turn "
            f"(turns end at {', '.join(map(str, sorted(ends_of_turns)))})",
        )
    elif beyond:
        yield Violation("partial", f"recovery left {beyond} messages after the checkpoint")


INVARIANT = Invariant(
    name="rollback", summary="recovery keeps every acknowledged turn and removes incomplete ones", check=check
)
