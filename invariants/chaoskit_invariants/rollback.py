"""rollback: recovery keeps exactly the complete turns, including all that were acknowledged.

Verifies, for every recovery, that the messages found right after it are those of the run without faults, up
to the end of some turn (or to any point, if there is no checkpoint yet), and that this turn is no earlier
than the last acknowledged one. Cannot see what recovery does to anything but messages.

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
    ends_of_turns = _ends(expected.data["messages"])
    ends_of_turns |= {ack.data["messages"] for ack in history.expected(Ack, "turn")}
    acknowledged = 0
    asked_user = False  # an open question changes everything after it
    for event in history.events:
        asked_user = asked_user or (isinstance(event, Ack) and event.name == "surfaced")
        if isinstance(event, Ack) and event.name == "turn":
            acknowledged = event.data["messages"]
        elif isinstance(event, Probe) and event.name == "recovered":
            found = event.data["messages"]
            # Without a checkpoint there is nothing to roll back to: all messages stay.
            ends = ends_of_turns if event.data["checkpoint"] is not None else set(range(len(found) + 1))
            whole = found if asked_user else expected.data["messages"]
            yield from _judge(found, whole, ends, acknowledged)


def _ends(messages: list[Any]) -> set[int]:
    """Where turns end: after an answer, and after the last result of an assistant's calls."""
    ends = {0}
    for count, (role, _, calls) in enumerate(messages, 1):
        following = messages[count][0] if count < len(messages) else None
        if following != "tool" and (role == "tool" or (role == "assistant" and not calls)):
            ends.add(count)
    return ends


def _judge(
    found: list[object], whole: list[object], ends_of_turns: set[int], acknowledged: int
) -> Iterator[Violation]:
    if len(found) < acknowledged:
        yield Violation(
            "lost",
            f"{acknowledged} messages were acknowledged in a checkpoint, "
            f"but {len(found)} were found after recovery",
        )
    elif found != whole[: len(found)]:
        yield Violation("changed", "recovery left messages that the undisturbed run does not have")
    elif len(found) not in ends_of_turns:
        yield Violation(
            "partial",
            f"recovery left {len(found)} messages, in the middle of a turn "
            f"(turns end at {', '.join(map(str, sorted(ends_of_turns)))})",
        )


INVARIANT = Invariant(
    name="rollback", summary="recovery keeps every acknowledged turn and removes incomplete ones", check=check
)
