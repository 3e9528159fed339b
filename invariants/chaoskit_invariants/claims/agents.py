"""Claims about agents: what a certificate of a framework examines, with effects counted from outside.

The model and the tools belong to the harness, so requests, effects and answers are observed without
trusting the framework. An effect is identified by what it does; its wording (`note`) is not part of it,
because a model words things differently every time.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from chaoskit.model import (
    Ack,
    Claim,
    Crashed,
    Effect,
    Ended,
    Event,
    History,
    NothingToJudge,
    Probe,
    Struck,
    Violation,
    last,
)


def resumes(history: History) -> Iterator[Violation]:
    """Resumes and finishes after any crash. Broken by: crashed, born, ended(failed).

    The violation has a different kind if no work had begun before the crash, because that breaks no promise
    about work in progress. A life whose disk fails may stop or wait for space; the next life must finish.
    """
    _needs(_disturbed(history))
    end = list(history.of(Ended))[-1]
    if end.how in ("died", "crashed") or end.life in _struck(history):
        raise NothingToJudge
    if end.how != "completed":
        begun = any(history.of(Probe, "asked")) or any(history.of(Effect))
        kind = "stuck" if begun else "never-starts"
        yield Violation(kind, f"life {end.life} {end.how}: {_reason(end.detail)}")


def _reason(detail: str) -> str:
    """The line of a traceback that names the error; some libraries append lines of advice."""
    lines = detail.strip().splitlines() or ["no reason given"]
    named = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(: |$)", line)]
    return (named or lines)[-1]


def effects_kept(history: History) -> Iterator[Violation]:
    """No effect is lost, except those reported to the user. Broken by: crashed, end without the effect.

    Each report excuses one effect, and only if there was a reason to report: see `surfaced`.
    """
    _needs(last(history.of(Probe, "end")) is not None)
    excuses = Counter(each.facts for each in _questions(history) if not each.needless)
    for effect, times in (_meant(history) - _done(history)).items():
        excused = min(times, excuses[_facts_of(effect)])
        excuses[_facts_of(effect)] -= excused
        if times > excused:
            yield Violation("lost", f"{effect} never happened, although the agent finished")


def effects_once(history: History) -> Iterator[Violation]:
    """No effect is duplicated. Broken by: effect, crashed, effect."""
    done, meant = _done(history), _meant(history)
    _needs(bool(done))
    for effect, times in (done - meant).items():
        kind = "doubled" if meant[effect] else "unasked"
        yield Violation(kind, f"{effect} happened {_times(meant[effect] + times)}")


def surfaced(history: History) -> Iterator[Violation]:
    """An unknown outcome is reported, not guessed: the agent queries it by its key, or asks the user.

    The outcome of the last effect before a crash is unknown if the model had not seen its result yet. If
    the effect is neither repeated nor reported, its result was stored, and nothing was unknown. A report is
    needless if the model had not asked for the call, nothing had interrupted it, or the model had been
    asked to continue with its result. Cannot see that a result was stored before the model was asked.

    Broken by: effect, crashed, the same effect again. Or: asked, asked, crashed, the first call surfaced.
    """
    questions = list(_questions(history))
    judged = bool(questions)
    guessed: set[str] = set()
    for effect in _interrupted(history):
        name = _name(effect)
        later = [e for e in history.of(Effect) if e.life > effect.life and _name(e) == name]
        judged = judged or bool(later)
        if any(again.applied for again in later):
            guessed.add(_facts(effect.args))
            yield Violation("guessed", f"{name} happened, and was blindly repeated after a crash")
    _needs(judged)
    for question in questions:
        if question.needless:
            yield Violation("needless", f"{question.call} was reported as unknown, but {question.needless}")
        if question.repeated and question.facts not in guessed:
            yield Violation("guessed", f"{question.call} was reported as unknown, but was executed anyway")


def _interrupted(history: History) -> Iterator[Effect]:
    """Effects that were the last event of a life before it crashed, or stopped with an error."""
    latest: Effect | None = None
    for event in history.events:
        if isinstance(event, Effect):
            latest = event if event.applied else None
        elif isinstance(event, Probe) and event.name == "asked":
            latest = None
        elif latest is not None and _is_a_death(event):
            yield latest
            latest = None


def _is_a_death(event: Event) -> bool:
    return isinstance(event, Crashed) or (isinstance(event, Ended) and event.how == "failed")


class Question(msgspec.Struct, frozen=True):
    """A call that was reported to the user as unknown, the first time."""

    call: str
    facts: str  # its arguments: a report does not name the service
    needless: str | None  # why; None if there was a reason to ask
    repeated: bool  # whether it was done after that


def _questions(history: History) -> Iterator[Question]:
    """Every call reported as unknown. A framework may repeat its report."""
    calls = _Calls(history)
    meant = Counter[str]()
    for effect, times in _meant(history).items():
        meant[_facts_of(effect)] += times
    seen: dict[tuple[str, str], str] = {}
    for place, event in enumerate(history.events):
        calls.note(event)
        if not (isinstance(event, Ack) and event.name == "surfaced"):
            continue
        facts = _facts(event.data["args"])
        if (event.data["call"], facts) in seen:
            continue
        seen[event.data["call"], facts] = facts
        rest = (e for e in history.events[place:] if isinstance(e, Effect) and e.applied)
        later = sum(_facts(effect.args) == facts for effect in rest)
        others = max(0, meant[facts] - list(seen.values()).count(facts))  # with the same arguments
        yield Question(event.data["call"], facts, calls.why_needless(facts, event.life), later > others)


class _Calls:
    """Which calls the model has asked for, and which of them have an unknown outcome."""

    def __init__(self, history: History) -> None:
        self._struck = _struck(history)
        # Without the calls that the model asked for, only crashes are known.
        self._told = any(probe.data.get("call") for probe in history.of(Probe, "asked"))
        self._disturbed = False
        self._given: dict[str, Probe] = {}  # calls by their arguments: the request they are the answer to
        self._latest: str | None = None
        self._used: set[str] = set()  # calls whose result the model has seen
        self._unknown: set[str] = set()

    def note(self, event: Event) -> None:
        if isinstance(event, Probe) and event.name == "asked":
            self._ask(event)
        elif isinstance(event, Crashed):
            self._disturbed = True
            if event.fault.tier.startswith("power"):  # what had been stored may be gone
                self._unknown |= set(self._given)
                self._used.clear()
            elif self._latest is not None:
                self._unknown.add(self._latest)

    def _ask(self, probe: Probe) -> None:
        call, turn, orphans = probe.data.get("call"), probe.data["turn"], probe.data["orphans"]
        for facts, given in self._given.items():
            if given.data["turn"] < turn and given.data["call"]["id"] not in orphans:
                self._used.add(facts)
        self._latest = _facts(call["args"]) if call else None
        if self._latest is not None:
            self._given[self._latest] = probe
            self._used.discard(self._latest)
            self._unknown.discard(self._latest)

    def why_needless(self, facts: str, life: int) -> str | None:
        if not (self._disturbed or any(struck <= life for struck in self._struck)):
            return "nothing had been interrupted"
        if not self._told:
            return None
        if facts not in self._given:
            return "the model had not asked for it"
        if {life, self._given[facts].life} & self._struck:
            return None  # an error of the disk may leave any of its calls without a result
        if facts in self._used:
            return "the model had been asked to continue with its result"
        return None if facts in self._unknown else "nothing had interrupted it"


def same_answer(history: History) -> Iterator[Violation]:
    """The answer is the same as without a crash. Broken by: crashed, end with a different answer."""
    end, expected = last(history.of(Probe, "end")), next(history.expected(Probe, "end"), None)
    if end is None or expected is None:
        raise NothingToJudge
    if end.data["answer"] != expected.data["answer"]:
        found, wanted = end.data["answer"], expected.data["answer"]
        yield Violation("other", f"the answer is {found!r} instead of {wanted!r}")


def model_once(history: History) -> Iterator[Violation]:
    """A model call that finished and was acted upon is not paid for again.

    Broken by: asked for turn 1, effect of turn 1, crashed, asked for turn 1.
    """
    _needs(any(history.of(Probe, "asked")) and _disturbed(history))
    latest, acted = 0, set[int]()
    turns: dict[str, int] = {}  # of each call: a life may first finish what an earlier one began
    for event in history.events:
        if isinstance(event, Effect):
            acted.add(turns.get(_facts(event.args), latest))
        elif isinstance(event, Probe) and event.name == "asked":
            latest = event.data["turn"]
            if event.data.get("call"):
                turns[_facts(event.data["call"]["args"])] = latest
            if latest in acted:
                yield Violation(
                    "repeated", f"the model was asked again for turn {latest}, which had been acted upon"
                )


def no_orphan(history: History) -> Iterator[Violation]:
    """No tool call without a result is sent to the model. Broken by: asked with orphans."""
    asked = list(history.of(Probe, "asked"))
    _needs(any(probe.life > 0 or probe.data["orphans"] for probe in asked))
    for probe in asked:
        if probe.data["orphans"]:
            calls = ", ".join(probe.data["orphans"])
            yield Violation(
                "orphan", f"the model was asked for turn {probe.data['turn']} while {calls} had no result"
            )


def valid(history: History) -> Iterator[Violation]:
    """All persisted data passes the framework's own schema. Broken by: recovered, not valid."""
    looked = [probe for probe in history.of(Probe, "recovered") if "valid" in probe.data]
    _needs(bool(looked))
    for probe in looked:
        if not probe.data["valid"]:
            yield Violation("refused", f"the framework rejects the persisted data: {probe.data['trouble']}")


def consume_once(history: History) -> Iterator[Violation]:
    """An approval is used once, however many processes resume. Broken by: raced, the gated effect twice.

    The effect must wait for the approval: it must not happen before the task is parked.
    """
    raced = list(history.of(Probe, "raced"))
    _needs(bool(raced))
    gated = _done(history)
    for probe in raced:
        times = max(gated.values(), default=0)
        if times != 1:
            resumers = probe.data["resumers"]
            kind = "doubled" if times else "lost"
            yield Violation(
                kind, f"{resumers} processes resumed at once, and the effect happened {_times(times)}"
            )
    parked = next((n for n, e in enumerate(history.events) if isinstance(e, Probe) and e.name == "parked"), 0)
    for event in history.events[:parked]:
        if isinstance(event, Effect) and event.applied:
            yield Violation("unapproved", f"{_name(event)} happened before anyone had approved it")


def fork(history: History) -> Iterator[Violation]:
    """Resuming twice from one checkpoint gives the same state. Broken by: forked, not the same."""
    forked = list(history.of(Probe, "forked"))
    _needs(bool(forked))
    for probe in forked:
        if not probe.data["same"]:
            yield Violation(
                "differs", f"the first resume gave {probe.data['one']}, the second {probe.data['other']}"
            )


def _needs(something: bool) -> None:
    if not something:
        raise NothingToJudge


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _disturbed(history: History) -> bool:
    return any(history.of(Crashed)) or any(history.of(Struck))


def _struck(history: History) -> set[int]:
    """Lives that survived a fault; it is recorded when the life ends."""
    return {strike.life for strike in history.of(Struck)}


def _meant(history: History) -> Counter[str]:
    probe = next(history.of(Probe, "meant"), None)
    return Counter(_known_as(*effect) for effect in probe.data["effects"]) if probe else Counter()


def _done(history: History) -> Counter[str]:
    return Counter(_name(effect) for effect in history.of(Effect) if effect.applied)


def _name(effect: Effect) -> str:
    return _known_as(effect.service, effect.action, effect.args)


def _known_as(service: str, action: str, args: dict[str, Any]) -> str:
    return f"{service}.{action} {_facts(args)}"


def _facts(args: dict[str, Any]) -> str:
    return json.dumps({k: v for k, v in args.items() if k != "note"}, sort_keys=True)


def _facts_of(name: str) -> str:
    return name.split(" ", 1)[1]


EXACTLY_ONCE = "effect exactly-once"


RESUMES = Claim(
    name="resumes",
    summary="resumes and finishes after any crash",
    check=resumes,
    subject="agent",
    aspect="prefix continuation",
    # A promise to resume after a crash concerns work that had begun. A first start that cannot be repeated
    # is bad, but breaks no such promise.
    unpromised=("never-starts",),
)
EFFECTS_KEPT = Claim(
    name="effects-kept", summary="no effect is lost", check=effects_kept, subject="agent", aspect=EXACTLY_ONCE
)
EFFECTS_ONCE = Claim(
    name="effects-once",
    summary="no effect happens twice",
    check=effects_once,
    subject="agent",
    aspect=EXACTLY_ONCE,
    basic=False,
)
SURFACED = Claim(
    name="surfaced",
    summary="an unknown outcome is reported, not guessed",
    check=surfaced,
    subject="agent",
    aspect=EXACTLY_ONCE,
    basic=False,
)
SAME_ANSWER = Claim(
    name="same-answer",
    summary="the answer is the same as without a crash",
    check=same_answer,
    subject="agent",
    aspect="recovery determinism",
)
MODEL_ONCE = Claim(
    name="model-once",
    summary="finished model calls are not paid for again",
    check=model_once,
    subject="agent",
    aspect="",
    basic=False,
)
NO_ORPHAN = Claim(
    name="no-orphan",
    summary="no tool call without its result reaches the model",
    check=no_orphan,
    subject="agent",
    aspect="",
)
VALID = Claim(
    name="valid",
    summary="nothing is persisted that the framework refuses to load",
    check=valid,
    subject="agent",
    aspect="checkpoint validity",
)
CONSUME_ONCE = Claim(
    name="consume-once",
    summary="an approval is used once, however many processes resume",
    check=consume_once,
    subject="agent",
    aspect="consume-once",
    basic=False,
)
FORK = Claim(
    name="fork",
    summary="resuming twice from one checkpoint gives the same state",
    check=fork,
    subject="agent",
    aspect="fork determinism",
    basic=False,
)
