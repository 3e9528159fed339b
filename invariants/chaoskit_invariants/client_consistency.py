"""client-consistency: every response to a client stays true, and the client's event stream has no gap.

Verifies that every accepted request (ack `told`) is eventually answered with the answer that was reported
(ack `told` or `answer`), unless it was reported as failed or cancelled; and that an answer, once reported,
is reported again whenever the client asks. Verifies that the events a client saw (effect `remember` with
the key `last-event`), however often it reconnected, are those of the log: in order, none twice, none
missing, each with the `kind`, `status` and `run` of its line if the client reports these. Cannot see an
event that came after the client disconnected.

Smallest history that breaks it: client remembers event 5, then event 3.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from chaoskit.model import Ack, Effect, History, Invariant, NothingToJudge, Probe, Violation, last

OBSERVED = ("status.derived", "run.interrupted")
CONTENT = {"kind": "kind", "status": "status", "run": "run_id"}  # as the client reports it, in the log
OVER = ("failed", "cancelled")  # states of a request that will not be answered
Line = dict[str, Any]


def check(history: History) -> Iterator[Violation]:
    responses = [ack for ack in history.of(Ack) if ack.name in ("told", "answer")]
    seen = [e.args for e in history.of(Effect) if e.key == "last-event" and "id" in e.args]
    end = last(history.of(Probe, "end"))
    if not responses and not seen:
        raise NothingToJudge
    yield from _in_order([event["id"] for event in seen])
    yield from _not_taken_back(responses)
    if end is not None:
        lines = {line["seq"]: line for line in map(json.loads, end.data["log"])}
        observed = [seq for seq, line in lines.items() if line["kind"] in OBSERVED]
        yield from _without_gaps([event["id"] for event in seen], observed)
        yield from _as_in_the_log(seen, lines)
        yield from _answered(responses, end.data["answers"])


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


def _as_in_the_log(seen: list[Line], lines: dict[int, Line]) -> Iterator[Violation]:
    for event in seen:
        line = lines.get(event["id"], {})
        for name, field in CONTENT.items():
            if line and name in event and event[name] != line.get(field):
                found = f"{name} {event[name]!r}, but its line has {line.get(field)!r}"
                yield Violation("different", f"the client saw event {event['id']} with {found}")


def _not_taken_back(responses: list[Ack]) -> Iterator[Violation]:
    answers: dict[str, str] = {}
    reported: set[str] = set()
    for ack in responses:
        request, answer = ack.data["request"], ack.data["answer"]
        if answer is None:
            # Only a response counts: an answer may become durable while another response is on its way.
            if request in reported:
                yield Violation("forgotten", f"{request} was reported as answered, then as not answered")
            continue
        if ack.name == "told":
            reported.add(request)
        known = answers.setdefault(request, answer)
        if answer != known:
            yield Violation("changed", f"{request} was answered {known!r}, and later {answer!r}")


def _answered(responses: list[Ack], answers: dict[str, str | None]) -> Iterator[Violation]:
    over = {ack.data["request"] for ack in responses if ack.data.get("state") in OVER}
    for ack in responses:
        request, wanted = ack.data["request"], ack.data["answer"]
        found = answers.get(request)
        if found is None and (wanted is not None or request not in over):
            yield Violation("lost", f"{request} was accepted but never answered")
        elif wanted is not None and found != wanted:
            yield Violation("changed", f"{request} was answered {wanted!r}; the answer is now {found!r}")


INVARIANT = Invariant(
    name="client-consistency",
    aliases=("told",),
    summary="every response to a client stays true, and its event stream has no gap",
    check=check,
)
