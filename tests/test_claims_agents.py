"""The claims about agents, each in three directions: broken, held, and nothing to judge."""

from __future__ import annotations

from typing import Any

import pytest
from chaoskit_invariants.claims import agents

from chaoskit.faults.disk import DiskError
from chaoskit.faults.kill import Kill
from chaoskit.model import (
    Ack,
    Born,
    Crashed,
    Effect,
    Ended,
    Event,
    History,
    Invariant,
    NothingToJudge,
    PersistPoint,
    Probe,
    Struck,
)

pytestmark = pytest.mark.requirement("C4")

CRASH = Crashed(0, 1, Kill(PersistPoint("write", 1), "after"))
CRASHED_AGAIN = Crashed(1, 1, Kill(PersistPoint("write", 1), "after"))
STRUCK = Struck(0, DiskError(PersistPoint("write", 1, 1), "ENOSPC"))
BIRTH = Born(1)
MEANT = Probe(0, 0, "meant", {"effects": [["mail", "send", {"to": "x"}]]})


def effect(life: int = 0, *, applied: bool = True, **args: Any) -> Effect:
    return Effect(life, 0, "mail", "send", {"to": "x", **args}, None, applied)


def asked(turn: int, life: int = 0, *orphans: str) -> Probe:
    return Probe(life, 0, "asked", {"turn": turn, "orphans": list(orphans)})


def given(turn: int, to: str = "x", life: int = 0, orphans: tuple[str, ...] = ()) -> Probe:
    """The model was asked, and answered with a call."""
    call = {"id": f"call_{turn}", "tool": "mail", "args": {"to": to, "note": "as agreed"}}
    return Probe(life, 0, "asked", {"turn": turn, "orphans": list(orphans), "call": call})


def reported(call: str, to: str, life: int = 1) -> Ack:
    return Ack(life, 0, "surfaced", {"call": call, "args": {"to": to}})


def meant(*to: str) -> Probe:
    return Probe(0, 0, "meant", {"effects": [["mail", "send", {"to": each}] for each in to]})


def end(answer: str = "done", life: int = 1) -> Probe:
    return Probe(life, 0, "end", {"answer": answer})


def surfaced(life: int = 1, **args: Any) -> Ack:
    return Ack(life, 0, "surfaced", {"call": "call_1", "args": {"to": "x", **args}})


def raced() -> Probe:
    return Probe(0, 0, "raced", {"resumers": 2, "refused": 0})


def forked(same: bool) -> Probe:
    return Probe(0, 0, "forked", {"one": "[1]", "other": "[1]" if same else "[2]", "same": same})


def recovered(**facts: Any) -> Probe:
    return Probe(1, 0, "recovered", facts)


BROKEN: list[tuple[Invariant, list[Event], str]] = [
    (agents.RESUMES, [asked(1), CRASH, BIRTH, Ended(1, "failed", "Trace\nOSError: no")], "stuck"),
    (agents.RESUMES, [effect(), CRASH, BIRTH, Ended(1, "hung", "did not finish")], "stuck"),
    (agents.RESUMES, [CRASH, BIRTH, Ended(1, "failed", "Trace\nOSError: no")], "never-starts"),
    (agents.EFFECTS_KEPT, [MEANT, CRASH, BIRTH, end()], "lost"),
    (agents.EFFECTS_KEPT, [MEANT, CRASH, BIRTH, surfaced(cc="y"), end()], "lost"),
    (agents.EFFECTS_ONCE, [MEANT, effect(), CRASH, BIRTH, effect(1)], "doubled"),
    (agents.EFFECTS_ONCE, [MEANT, effect(), CRASH, BIRTH, effect(1, note="reworded")], "doubled"),
    (agents.EFFECTS_ONCE, [MEANT, effect(cc="y")], "unasked"),
    (agents.SURFACED, [asked(1), effect(), CRASH, BIRTH, effect(1)], "guessed"),
    (agents.SURFACED, [asked(1), effect(), CRASH, BIRTH, effect(1, note="reworded")], "guessed"),
    (agents.SURFACED, [effect(), CRASH, BIRTH, surfaced(), effect(1)], "guessed"),
    (agents.SAME_ANSWER, [CRASH, BIRTH, end("another")], "other"),
    (agents.MODEL_ONCE, [asked(1), effect(), CRASH, BIRTH, asked(1, 1)], "repeated"),
    # Acted upon by a life that had not asked for it.
    (agents.MODEL_ONCE, [asked(1), CRASH, BIRTH, effect(1), CRASHED_AGAIN, Born(2), asked(1, 2)], "repeated"),
    (agents.NO_ORPHAN, [asked(1), CRASH, BIRTH, asked(2, 1, "call_1")], "orphan"),
    (agents.VALID, [CRASH, BIRTH, recovered(valid=False, trouble="ValueError: no")], "refused"),
    (agents.CONSUME_ONCE, [effect(), effect(), raced()], "doubled"),
    (agents.CONSUME_ONCE, [raced()], "lost"),
    (agents.FORK, [forked(same=False)], "differs"),
]

# What was accepted once.
BROKEN += [
    # A full disk is no excuse for the life that follows.
    (agents.RESUMES, [asked(1), STRUCK, Ended(0, "failed"), BIRTH, Ended(1, "failed", "E: no")], "stuck"),
    (agents.RESUMES, [asked(1), STRUCK, Ended(0, "completed"), BIRTH, Ended(1, "hung")], "stuck"),
    # A report excuses one effect, of a call that the model had asked for and a crash had interrupted.
    (agents.EFFECTS_KEPT, [meant("x", "x"), CRASH, BIRTH, surfaced(), end()], "lost"),
    (agents.EFFECTS_KEPT, [MEANT, surfaced(life=0), end()], "lost"),
    (agents.EFFECTS_KEPT, [MEANT, given(1, "y"), CRASH, BIRTH, surfaced(), effect(1, to="y"), end()], "lost"),
    (agents.EFFECTS_KEPT, [MEANT, given(1), asked(2), CRASH, BIRTH, surfaced(), end()], "lost"),
    (agents.EFFECTS_KEPT, [MEANT, asked(1), CRASH, BIRTH, given(1, life=1), surfaced(), end()], "lost"),
    (agents.SURFACED, [given(1, "y"), CRASH, BIRTH, surfaced()], "needless"),
    (agents.SURFACED, [given(1), effect(), asked(2), CRASH, BIRTH, surfaced()], "needless"),
    (agents.SURFACED, [given(1), effect(), surfaced(life=0)], "needless"),
    (agents.SURFACED, [given(1), effect(), given(2, "y"), CRASH, BIRTH, surfaced()], "needless"),
    # Reported, but executed anyway.
    (agents.SURFACED, [given(1), CRASH, BIRTH, surfaced(), effect(1)], "guessed"),
    (agents.SURFACED, [effect(), STRUCK, Ended(0, "failed"), BIRTH, effect(1)], "guessed"),
    (agents.MODEL_ONCE, [asked(1), effect(), STRUCK, Ended(0, "failed"), BIRTH, asked(1, 1)], "repeated"),
    (agents.MODEL_ONCE, [asked(1), effect(), asked(1), CRASH], "repeated"),
    (agents.NO_ORPHAN, [asked(1), asked(2, 0, "call_1"), STRUCK, BIRTH], "orphan"),
    (agents.CONSUME_ONCE, [effect(), Probe(0, 0, "parked", {}), raced()], "unapproved"),
]

HELD: list[tuple[Invariant, list[Event]]] = [
    (agents.RESUMES, [CRASH, BIRTH, Ended(1, "completed")]),
    (agents.EFFECTS_KEPT, [MEANT, CRASH, BIRTH, effect(1, note="reworded"), end()]),
    (agents.EFFECTS_KEPT, [MEANT, CRASH, BIRTH, surfaced(note="reworded"), end()]),
    (agents.EFFECTS_ONCE, [MEANT, effect(), CRASH, BIRTH, effect(1, applied=False)]),
    (agents.SURFACED, [effect(), CRASH, BIRTH, surfaced()]),
    (agents.SURFACED, [CRASH, BIRTH, surfaced()]),
    (agents.SURFACED, [effect(), CRASH, BIRTH, effect(1, applied=False)]),
    (agents.SAME_ANSWER, [CRASH, BIRTH, end()]),
    # It had no effect yet: asking again costs money, and nothing else.
    (agents.MODEL_ONCE, [asked(1), CRASH, BIRTH, asked(1, 1)]),
    (agents.MODEL_ONCE, [asked(1), effect(), asked(2), CRASH, BIRTH, asked(2, 1)]),
    # Life 1 repeated turn 1 without asking, and crashed before turn 2 had an effect.
    (
        agents.MODEL_ONCE,
        [asked(1), effect(), CRASH, BIRTH, effect(1), asked(2, 1), CRASHED_AGAIN, asked(2, 2)],
    ),
    (agents.NO_ORPHAN, [asked(1), CRASH, BIRTH, asked(2, 1)]),
    (agents.VALID, [CRASH, BIRTH, recovered(valid=True)]),
    (agents.CONSUME_ONCE, [effect(), raced()]),
    (agents.FORK, [forked(same=True)]),
]

HELD += [
    (agents.RESUMES, [asked(1), STRUCK, Ended(0, "failed", "no room"), BIRTH, Ended(1, "completed")]),
    (agents.EFFECTS_KEPT, [meant("x", "x"), CRASH, BIRTH, reported("a", "x"), reported("b", "x"), end()]),
    (agents.EFFECTS_KEPT, [MEANT, given(1), CRASH, BIRTH, surfaced(), surfaced(), end()]),
    # Interrupted a second time, by a crash of the life that carried on.
    (agents.EFFECTS_KEPT, [MEANT, given(1), CRASH, BIRTH, CRASHED_AGAIN, Born(2), surfaced(2), end(life=2)]),
    (agents.SURFACED, [given(1), effect(), CRASH, BIRTH, surfaced()]),
    # Asked again although the call had no result: it was not used.
    (
        agents.SURFACED,
        [given(1), effect(), given(2, "y", 0, ("call_1",)), given(1), CRASH, BIRTH, surfaced()],
    ),
    # The model was asked again for a turn that was lost; the call was interrupted then.
    (agents.SURFACED, [given(1), asked(2), CRASH, BIRTH, given(1, life=1), CRASHED_AGAIN, surfaced(2)]),
    # A full disk may leave any call of its life without a result.
    (agents.SURFACED, [given(1), effect(), given(2, "y"), STRUCK, Ended(0, "completed"), BIRTH, surfaced()]),
    # An open question may be repeated, also when the agent has carried on.
    (agents.SURFACED, [given(1), CRASH, BIRTH, surfaced(), asked(2, 1), CRASHED_AGAIN, surfaced(2)]),
    # Two calls with the same arguments: one is reported, the other done.
    (agents.SURFACED, [meant("x", "x"), given(1), CRASH, BIRTH, surfaced(), given(2, life=1), effect(1)]),
    # Life 1 finishes turn 1, which life 0 had begun before it lost turn 2.
    (agents.MODEL_ONCE, [given(1), given(2, "y"), CRASH, BIRTH, effect(1), given(2, "y", 1)]),
    (agents.CONSUME_ONCE, [Probe(0, 0, "parked", {}), effect(), raced()]),
]

NOTHING: list[tuple[Invariant, list[Event]]] = [
    (agents.RESUMES, [Ended(0, "failed", "without any crash")]),
    (agents.RESUMES, [CRASH, BIRTH, Ended(1, "died", "signal SIGSEGV")]),
    (agents.EFFECTS_KEPT, [MEANT, CRASH, BIRTH]),
    (agents.EFFECTS_ONCE, [MEANT, CRASH, BIRTH]),
    (agents.SURFACED, [effect(), asked(2), CRASH, BIRTH, end()]),
    (agents.SURFACED, [effect(), CRASH, BIRTH, asked(2, 1), end()]),  # its result was kept
    (agents.SURFACED, [effect(), asked(2), CRASH, BIRTH, effect(1)]),  # reported by effects-once
    (agents.SAME_ANSWER, [CRASH, BIRTH]),
    (agents.MODEL_ONCE, [asked(1), effect(), asked(2)]),
    (agents.MODEL_ONCE, [CRASH, BIRTH]),
    (agents.NO_ORPHAN, [asked(1), asked(2)]),
    (agents.VALID, [CRASH, BIRTH, recovered()]),
    (agents.CONSUME_ONCE, [effect(), effect()]),
    (agents.FORK, [effect()]),
]
NOTHING += [
    # A life whose disk is full may wait for room, and nobody started it again.
    (agents.RESUMES, [asked(1), STRUCK, Ended(0, "hung", "did not finish")]),
    (agents.RESUMES, [CRASH, Ended(0, "crashed")]),
]


@pytest.mark.parametrize(("claim", "events", "kind"), BROKEN)
def test_a_broken_history_violates_the_claim(claim: Invariant, events: list[Event], kind: str) -> None:
    assert [violation.kind for violation in claim.check(history_of(events))] == [kind]


@pytest.mark.parametrize(("claim", "events"), HELD)
def test_a_sound_history_satisfies_the_claim(claim: Invariant, events: list[Event]) -> None:
    assert not list(claim.check(history_of(events)))


@pytest.mark.parametrize(("claim", "events"), NOTHING)
def test_a_history_without_evidence_is_not_judged(claim: Invariant, events: list[Event]) -> None:
    with pytest.raises(NothingToJudge):
        list(claim.check(history_of(events)))


def test_a_stuck_agent_is_reported_with_its_error_and_not_with_advice_after_it() -> None:
    detail = "Traceback:\n  File x\nsome.OperationalError: table exists\n[SQL: CREATE]\n(see https://x)"
    (violation,) = agents.RESUMES.check(history_of([CRASH, BIRTH, Ended(1, "failed", detail)]))
    assert violation.message == "life 1 failed: some.OperationalError: table exists"


def history_of(events: list[Event]) -> History:
    return History(tuple(events), (end(life=0),))
