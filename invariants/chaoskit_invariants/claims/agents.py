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

from chaoskit.model import Ack, Claim, Crashed, Effect, Ended, History, NothingToJudge, Probe, Violation, last


def resumes(history: History) -> Iterator[Violation]:
    """Resumes and finishes after any crash. Broken by: crashed, born, ended(failed).

    The violation has a different kind if no work had begun before the crash: that breaks no promise about
    work in progress.
    """
    _needs(any(history.of(Crashed)))
    end = list(history.of(Ended))[-1]
    if end.how == "died":
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
    """No effect is lost, except those reported to the user. Broken by: crashed, end without one."""
    end = last(history.of(Probe, "end"))
    _needs(end is not None)
    told = _told(history)
    for effect in _meant(history) - _done(history):
        if _facts_of(effect) in told:
            continue
        yield Violation("lost", f"{effect} was never done, although the agent finished")


def effects_once(history: History) -> Iterator[Violation]:
    """No effect is duplicated. Broken by: effect, crashed, effect."""
    done, meant = _done(history), _meant(history)
    _needs(bool(done))
    for effect, times in (done - meant).items():
        kind = "doubled" if meant[effect] else "unasked"
        yield Violation(kind, f"{effect} was done {meant[effect] + times} times")


def surfaced(history: History) -> Iterator[Violation]:
    """An unknown outcome is reported, not guessed: it may be queried by its key, or left to the user.

    The outcome is unknown for the last effect before a crash, if the model had not seen its result yet. If
    the effect is neither repeated nor reported, its result was stored, and nothing was unknown.

    Broken by: effect, crashed, the same effect done again.
    """
    judged = bool(_told(history))
    for effect in _interrupted(history):
        name = _name(effect)
        later = [e for e in history.of(Effect) if e.life > effect.life and _name(e) == name]
        judged = judged or bool(later)
        if any(again.applied for again in later):
            yield Violation("guessed", f"{name} was done, then blindly repeated after a crash")
    _needs(judged)


def _interrupted(history: History) -> Iterator[Effect]:
    """Effects that were the last event of a life before it crashed."""
    latest: Effect | None = None
    for event in history.events:
        if isinstance(event, Effect):
            latest = event if event.applied else None
        elif isinstance(event, Probe) and event.name == "asked":
            latest = None
        elif isinstance(event, Crashed) and latest is not None:
            yield latest
            latest = None


def same_answer(history: History) -> Iterator[Violation]:
    """The answer equals the one without a crash. Broken by: crashed, end with another answer."""
    end, expected = last(history.of(Probe, "end")), next(history.expected(Probe, "end"), None)
    if end is None or expected is None:
        raise NothingToJudge
    if end.data["answer"] != expected.data["answer"]:
        yield Violation("other", f"answered {end.data['answer']!r} instead of {expected.data['answer']!r}")


def model_once(history: History) -> Iterator[Violation]:
    """A model call that finished and was acted upon is not paid for again.

    Broken by: asked for turn 1, effect of turn 1, crashed, asked for turn 1.
    """
    asked = list(history.of(Probe, "asked"))
    _needs(bool(asked) and any(history.of(Crashed)))
    turn, acted = 0, dict[int, int]()  # the life in which a turn was first acted upon
    for event in history.events:
        if isinstance(event, Effect):
            acted.setdefault(turn, event.life)
        elif isinstance(event, Probe) and event.name == "asked":
            turn = event.data["turn"]
            if acted.get(turn, event.life) < event.life:
                yield Violation(
                    "repeated", f"the model was asked again for turn {turn}, which had been acted upon"
                )


def no_orphan(history: History) -> Iterator[Violation]:
    """No tool call without a result is sent to the model. Broken by: asked with orphans."""
    asked = list(history.of(Probe, "asked"))
    _needs(any(probe.life > 0 for probe in asked))
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
            yield Violation("refused", f"the framework rejects what is persisted: {probe.data['trouble']}")


def consume_once(history: History) -> Iterator[Violation]:
    """An approval is used once, however many processes resume. Broken by: raced, the gated effect twice."""
    raced = list(history.of(Probe, "raced"))
    _needs(bool(raced))
    gated = _done(history)
    for probe in raced:
        times = max(gated.values(), default=0)
        if times != 1:
            resumers = probe.data["resumers"]
            kind = "doubled" if times else "lost"
            yield Violation(
                kind, f"{resumers} processes resumed at once, and the effect happened {times} times"
            )


def fork(history: History) -> Iterator[Violation]:
    """Resuming twice from one checkpoint yields the same state. Broken by: forked, not the same."""
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


def _meant(history: History) -> Counter[str]:
    probe = next(history.of(Probe, "meant"), None)
    return Counter(_known_as(*effect) for effect in probe.data["effects"]) if probe else Counter()


def _done(history: History) -> Counter[str]:
    return Counter(_name(effect) for effect in history.of(Effect) if effect.applied)


def _told(history: History) -> set[str]:
    """The calls reported to the user as unknown, by their arguments: a call does not name its service."""
    return {_facts(ack.data["args"]) for ack in history.of(Ack, "surfaced")}


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
