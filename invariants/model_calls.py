"""model-calls: a decision that is durable is not asked for again, and no question has loose ends.

Verifies each time that the model was asked (probe `asked`): not for a turn whose decision had been
acknowledged (ack `decided`), for that would be paid twice and might be answered differently; and never
with a tool call in the conversation that has no result, for providers refuse such a conversation for
ever. Cannot see a decision that was made and lost before it was durable: that may be asked for again.

Smallest history that breaks it: ack decided turn 1, crashed, asked turn 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaoskit.model import Ack, History, Invariant, NothingToJudge, Probe, Violation


def check(history: History) -> Iterator[Violation]:
    decided: set[int] = set()
    asked = 0
    for event in history.events:
        if isinstance(event, Ack) and event.name == "decided":
            decided.add(event.data["turn"])
        elif isinstance(event, Probe) and event.name == "asked":
            asked += 1
            turn, orphans = event.data["turn"], event.data["orphans"]
            if turn in decided:
                yield Violation(
                    "repeated", f"turn {turn} was decided, and the model was asked again"
                )
            if orphans:
                yield Violation("orphan", f"the model was asked while {orphans[0]} has no result")
    if not asked:
        raise NothingToJudge


INVARIANT = Invariant(
    name="model-calls",
    summary="no decision is paid for twice, and no tool call is left without its result",
    check=check,
)
