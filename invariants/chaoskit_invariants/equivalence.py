"""crash-equivalence: a run with crashes ends like the run without: same answers, messages, effects.

Verifies the final state of a run that finished, the order of its effects, and the state beside the messages
(plan and budget, where the target reports them as `kept`). Cannot see a deviation that was repaired before
the end. A run that ends with an open question to the user (ack `surfaced`) cannot end like the others, and
is left to `exactly-once`.

Smallest history that breaks it: crashed, end with an answer that the undisturbed run did not give.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaoskit.model import Ack, Effect, History, Invariant, NothingToJudge, Probe, Violation, last


def check(history: History) -> Iterator[Violation]:
    expected = next(history.expected(Probe, "end"), None)
    end = last(history.of(Probe, "end"))
    if expected is None or end is None or any(history.of(Ack, "surfaced")):
        raise NothingToJudge
    for request, answer in expected.data["answers"].items():
        found = end.data["answers"].get(request)
        if found != answer:
            yield Violation("answer", f"{request} was answered {found!r} instead of {answer!r}")
    yield from _transcript(end.data["messages"], expected.data["messages"])
    kept, wanted = end.data.get("kept"), expected.data.get("kept")
    if kept != wanted:
        yield Violation("kept", f"plan and budget are {kept} instead of {wanted}")
    effects = [e.args for e in history.of(Effect) if e.applied]
    if effects != [e.args for e in history.expected(Effect) if e.applied]:
        yield Violation("effects", "the effects, or their order, differ from those without a crash")


def _transcript(found: list[object], expected: list[object]) -> Iterator[Violation]:
    if found == expected:
        return
    same = next(
        (n for n, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]),
        min(len(found), len(expected)),
    )
    there = found[same] if same < len(found) else "nothing"
    wanted = expected[same] if same < len(expected) else "nothing"
    yield Violation("transcript", f"message {same + 1} is {there} where {wanted} was expected")


INVARIANT = Invariant(
    name="crash-equivalence",
    summary="after any crash the run ends with the same answers, messages, plan and effects",
    check=check,
)
