"""client-consistency: every response to a client stays true, and the client's event stream has no gap.

Verifies that every accepted request (ack `told`) is eventually answered with the answer that was reported;
and that the events a client saw (effect `remember` with the key `last-event`), however often it
reconnected, are those of the log: in order, none twice, none missing. Cannot see an event that came after
the client left.

Smallest history that breaks it: client remembers event 5, then event 3.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

from chaoskit.model import Ack, Effect, History, Invariant, NothingToJudge, Probe, Violation, last

OBSERVED = ("status.derived", "run.interrupted")


def check(history: History) -> Iterator[Violation]:
    responses = list(history.of(Ack, "told"))
    seen = [e.args["id"] for e in history.of(Effect) if e.key == "last-event" and "id" in e.args]
    end = last(history.of(Probe, "end"))
    if not responses and not seen:
        raise NothingToJudge
    yield from _in_order(seen)
    if end is not None:
        events = [json.loads(line) for line in end.data["log"]]
        yield from _without_gaps(seen, [event["seq"] for event in events if event["kind"] in OBSERVED])
        for ack in responses:
            yield from _answered(ack, end.data["answers"])


def _in_order(seen: list[int]) -> Iterator[Violation]:
    for before, after in pairwise(seen):
        if after <= before:
            yield Violation("repeated", f"event {after} came after event {before}")


def _without_gaps(seen: list[int], observed: list[int]) -> Iterator[Violation]:
    newest = max(seen, default=0)
    for missed in sorted({seq for seq in observed if seq <= newest} - set(seen)):
        yield Violation("missed", f"event {missed} is in the log, but the client never saw it")
    for unknown in sorted(set(seen) - set(observed)):
        yield Violation("unknown", f"the client saw event {unknown}, which is not in the log")


def _answered(ack: Ack, answers: dict[str, str | None]) -> Iterator[Violation]:
    request, wanted = ack.data["request"], ack.data["answer"]
    found = answers.get(request)
    if found is None:
        yield Violation("lost", f"{request} was accepted but never answered")
    elif wanted is not None and found != wanted:
        yield Violation("changed", f"{request} was answered {wanted!r}; the answer is now {found!r}")


INVARIANT = Invariant(
    name="client-consistency",
    aliases=("told",),
    summary="every response to a client stays true, and its event stream has no gap",
    check=check,
)
