"""crash-equivalence: a run with crashes ends like the run without crashes.

Verifies the answers and messages of a run that finished, the order of its effects, and its other state
(plan and budget, where the target reports them as `kept`; its open `questions`). Cannot see a deviation
that was repaired before the end.

A run that ends with an open question to the user (ack `surfaced`) cannot end like the run without crashes.
Everything before the question is still judged: the first message that differs is the result of a call, the
answers that were acknowledged by then are the same, and so are all effects except those that were asked
about or came later. The rest is left to `exactly-once`.

Smallest history that breaks it: crashed, end with an answer that the undisturbed run did not give.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from chaoskit.model import Ack, Effect, Event, History, Invariant, NothingToJudge, Probe, Violation, last

Deed = tuple[str, str, dict[str, Any]]  # an effect: service, action, arguments


def check(history: History) -> Iterator[Violation]:
    expected = next(history.expected(Probe, "end"), None)
    end = last(history.of(Probe, "end"))
    if expected is None or end is None:
        raise NothingToJudge
    if not any(history.of(Ack, "surfaced")):
        yield from _at_the_end(history, end.data, expected.data)
        return
    found = list(_before_the_question(history, end.data, expected.data))
    if not found:
        raise NothingToJudge
    yield from found


def _at_the_end(history: History, end: dict[str, Any], expected: dict[str, Any]) -> Iterator[Violation]:
    answers, wanted = end["answers"], expected["answers"]
    for request in {**wanted, **answers}:
        if answers.get(request) != wanted.get(request):
            found = f"{answers.get(request)!r} instead of {wanted.get(request)!r}"
            yield Violation("answer", f"{request} was answered {found}")
    yield from _transcript(end["messages"], expected["messages"])
    if end.get("kept") != expected.get("kept"):
        found = f"{end.get('kept')} instead of {expected.get('kept')}"
        yield Violation("kept", f"plan and budget are {found}")
    if end.get("questions") != expected.get("questions"):
        yield Violation("questions", f"the open questions are {end.get('questions')}, but none was reported")
    if _deeds(history.of(Effect)) != _deeds(history.expected(Effect)):
        yield Violation("effects", "the effects, or their order, differ from those without a crash")


def _before_the_question(
    history: History, end: dict[str, Any], expected: dict[str, Any]
) -> Iterator[Violation]:
    before = list(takewhile(lambda e: not (isinstance(e, Ack) and e.name == "surfaced"), history.events))
    for event in before:
        if isinstance(event, Ack) and event.name == "answer":
            request, wanted = event.data["request"], expected["answers"].get(event.data["request"])
            if end["answers"].get(request) != wanted:
                found = f"{end['answers'].get(request)!r} instead of {wanted!r}"
                yield Violation("answer", f"{request} was answered {found}")
    same = _common(end["messages"], expected["messages"])
    differing = [rows[same] for rows in (end["messages"], expected["messages"]) if same < len(rows)]
    if any(row[0] != "tool" for row in differing):
        yield from _transcript(end["messages"], expected["messages"])
    asked = [ack.data["args"] for ack in history.of(Ack, "surfaced")]
    done = [deed for deed in _deeds(before) if deed[2] not in asked]
    if done != [deed for deed in _deeds(history.expected(Effect)) if deed[2] not in asked][: len(done)]:
        yield Violation("effects", "the effects before the question differ from those without a crash")


def _deeds(events: Iterator[Effect] | list[Event]) -> list[Deed]:
    return [(e.service, e.action, e.args) for e in events if isinstance(e, Effect) and e.applied]


def _transcript(found: list[object], expected: list[object]) -> Iterator[Violation]:
    if found == expected:
        return
    same = _common(found, expected)
    there = found[same] if same < len(found) else "nothing"
    wanted = expected[same] if same < len(expected) else "nothing"
    yield Violation("transcript", f"message {same + 1}: expected {wanted}, found {there}")


def _common(found: list[Any], expected: list[Any]) -> int:
    """How many messages are the same."""
    pairs = enumerate(zip(found, expected, strict=False))
    return next((n for n, (one, other) in pairs if one != other), min(len(found), len(expected)))


INVARIANT = Invariant(
    name="crash-equivalence",
    summary="after any crash the run ends with the same answers, messages, plan and effects",
    check=check,
)
