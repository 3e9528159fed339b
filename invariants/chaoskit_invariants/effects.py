"""exactly-once: every intended effect happens once; none is lost, none is duplicated.

The intended effects are those the target was asked for (probe `meant`), or else those of the undisturbed
run.

Verifies the Ledger, which is kept outside the target: a repeated call that a service recognised by its key
and did not apply again does not count. A lost effect is judged only if the run finished.

If it is impossible to know whether an interrupted call happened, exactly once is impossible. The target
must then not retry the call (at most once), and must report it (ack `surfaced`). Only such a report excuses
a missing effect, and each report excuses one. A report is a needless question, and excuses nothing, if

- nothing was interrupted before it,
- the completion of the call was already acknowledged (ack `finished`),
- the call had never been issued: it is not among the `calls` found after recovery, and it was not tried in
  this life, or
- its service can be asked what happened to it (`verifiable` in the probe `meant`).

Cannot see effects on anything but the World, nor which service a reported call would have used: calls are
distinguished by their arguments.

Smallest history that breaks it: effect, crashed, effect, where the undisturbed run has it once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from chaoskit.model import (
    Ack,
    Crashed,
    Effect,
    Ended,
    Event,
    History,
    Invariant,
    NothingToJudge,
    Probe,
    Struck,
    Violation,
)

UNSETTLED = ("issued", "unknown")  # states of a call whose outcome is not known


class Question(msgspec.Struct, frozen=True):
    """A call that was reported as unknown, the first time."""

    call: str
    args: str
    needless: str | None  # why; None if there is a reason to ask
    retries: int  # effects with these arguments that were applied later


def check(history: History) -> Iterator[Violation]:
    expected = _meant(history)
    done = _done(history.of(Effect))
    if expected is None or not (expected or done):
        raise NothingToJudge
    for effect, times in (done - expected).items():
        wanted = expected[effect]
        kind = "doubled" if wanted else "unasked"
        yield Violation(kind, f"{effect} happened {wanted + times} times instead of {wanted}")
    questions = list(_questions(history, expected))
    if any(end.how == "completed" for end in history.of(Ended)):
        yield from _lost(expected - done, questions)
    for question in questions:
        if question.needless:
            yield Violation("needless", f"{question.call} was reported as unknown, but {question.needless}")
    yield from _retried(expected, questions)


def _meant(history: History) -> Counter[str] | None:
    """The effects the target reports it was asked for; otherwise those of the undisturbed run, if any."""
    probe = next(history.of(Probe, "meant"), None)
    if probe is not None:
        return Counter(f"{s}.{action} {_args(args)}" for s, action, args in probe.data["effects"])
    return _done(history.expected(Effect)) if history.baseline else None


def _lost(missing: Counter[str], questions: list[Question]) -> Iterator[Violation]:
    excuses = Counter(question.args for question in questions if not question.needless)
    for effect, times in missing.items():
        excused = min(times, excuses[_args_of(effect)])
        excuses[_args_of(effect)] -= excused
        if times > excused:
            yield Violation("lost", f"{effect} never happened, and was not reported as unknown")


def _retried(expected: Counter[str], questions: list[Question]) -> Iterator[Violation]:
    """A call that was reported as unknown must not be tried again; other calls with its arguments may."""
    wanted = Counter[str]()
    for effect, times in expected.items():
        wanted[_args_of(effect)] += times
    asked = Counter[str]()
    for question in questions:
        asked[question.args] += 1
        if wanted[question.args] and question.retries > wanted[question.args] - asked[question.args]:
            yield Violation("retried", f"{question.call} was reported as unknown, but was executed again")


def _questions(history: History, expected: Counter[str]) -> Iterator[Question]:
    """Each call that was reported as unknown. A target may repeat the report after a crash."""
    seen: set[str] = set()
    for place, event in enumerate(history.events):
        if isinstance(event, Ack) and event.name == "surfaced" and event.data["call"] not in seen:
            seen.add(event.data["call"])
            later = _done(e for e in history.events[place:] if isinstance(e, Effect))
            args = _args(event.data["args"])
            yield Question(
                event.data["call"],
                args,
                _needless(history, event, history.events[:place], expected),
                sum(times for effect, times in later.items() if _args_of(effect) == args),
            )


def _needless(history: History, ack: Ack, before: tuple[Event, ...], expected: Counter[str]) -> str | None:
    struck = {strike.life for strike in history.of(Struck)}  # recorded when the life ends
    if (
        not any(isinstance(event, Crashed) for event in before)
        and min(struck, default=ack.life + 1) > ack.life
    ):
        return "nothing had been interrupted"
    if any(
        isinstance(e, Ack) and e.name == "finished" and e.data["call"] == ack.data["call"] for e in before
    ):
        return "it had finished"
    args = _args(ack.data["args"])
    if ack.life not in struck and not _was_issued(ack, args, before):
        return "it had never been issued"
    meant = next(history.of(Probe, "meant"), None)
    verifiable = tuple(meant.data.get("verifiable", ())) if meant else ()
    services = {effect.partition(".")[0] for effect in expected if _args_of(effect) == args}
    if services and services <= set(verifiable):
        return f"{min(services)} can report what happened to it"
    return None


def _was_issued(ack: Ack, args: str, before: tuple[Event, ...]) -> bool:
    """Whether the call was found unsettled after recovery, or tried in this life; True if nobody looked."""
    found = [e for e in before if isinstance(e, Probe) and e.life == ack.life and "calls" in e.data]
    if not found:
        return True
    tried = (e for e in before if isinstance(e, Effect) and e.life == ack.life)
    known = found[0].data["calls"].get(ack.data["call"]) in UNSETTLED
    return known or any(_args(effect.args) == args for effect in tried)


def _done(effects: Iterable[Effect]) -> Counter[str]:
    return Counter(f"{e.service}.{e.action} {_args(e.args)}" for e in effects if e.applied)


def _args(args: object) -> str:
    return msgspec.json.encode(args, order="sorted").decode()


def _args_of(effect: str) -> str:
    return effect.split(" ", 1)[1]


INVARIANT = Invariant(
    name="exactly-once",
    summary="every side effect happens exactly once, however often the agent is killed",
    check=check,
)
