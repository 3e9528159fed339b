"""Each invariant, in both directions: histories that it must accept and the smallest that it must not."""

import json

import msgspec
import pytest

from chaoskit import registry
from chaoskit.faults.kill import Kill
from chaoskit.model import (
    Ack,
    Born,
    Crashed,
    Effect,
    Ended,
    Fail,
    History,
    Invoke,
    NothingToJudge,
    PersistPoint,
    Probe,
)
from chaoskit.settings import Settings

CRASH = Crashed(0, 1, Kill(PersistPoint("write", 1), "after"))
COMPLETED = Ended(1, "completed")
BOTH = (Born(0), Born(1))
DAEMON = [Probe(0, 0, "limits", {"mailbox": 3}), Invoke(0, 0, 1, "stop", {"agent": "a"})]


def turn(messages, log_seq=0):
    return Ack(0, 0, "turn", {"turn": 1, "messages": messages, "log_seq": log_seq})


def recovered(messages=(), log=(), checkpoint=1):
    data = {"messages": list(messages), "answers": {}, "log": list(log), "checkpoint": checkpoint}
    return Probe(1, 0, "recovered", data)


def end(messages=(), log=(), answers=None, life=1, **more):
    data = {"messages": list(messages), "answers": answers or {}, "log": list(log), **more}
    return Probe(life, 0, "end", data)


def effect(name="mail", applied=True, life=0):
    return Effect(life, 0, name, "send", {"to": "x"}, "k", applied)


def accepted(run):
    return Ack(0, 0, "accepted", {"request": "r", "run": run})


def decided(turn):
    return Ack(0, 0, "decided", {"turn": turn})


def asked(turn, *orphans, said=""):
    return Probe(0, 0, "asked", {"turn": turn, "orphans": list(orphans), "said": list(said)})


def shown(*texts):
    return Probe(1, 0, "shown", {"shown": list(texts)})


def cadence(kind, turns=None):
    return Probe(0, 0, "cadence", {"kind": kind, "turns": turns, "seconds": None})


def finished(call, name="finished"):
    return Ack(0, 0, name, {"call": call, "tool": "send", "args": {"to": "x"}})


def books(versions=(1, 1), usage=((1, 10),), errors=()):
    data = {"versions": list(versions), "usage": list(usage), "errors": list(errors)}
    return Probe(1, 0, "end", data)


MEANT = Probe(0, 0, "meant", {"effects": [["mail", "send", {"to": "x"}]]})
ATTEMPT = Ack(0, 0, "failed-attempt", {"turn": 1, "attempt": 0})


def save(n, text="text"):
    return Invoke(0, 0, n, "save", {"n": n, "text": text})


def saved(n):
    return Ack(0, 0, "saved", {"n": n})


def found(*saves):
    return Probe(1, 0, "recovered", {"saves": [list(s) for s in saves]})


def log(*kinds, run="A"):
    return [json.dumps({"seq": n, "kind": kind, "run_id": run}) + "\n" for n, kind in enumerate(kinds, 1)]


STARTED, DONE, CUT = "run.started", "run.completed", "run.interrupted"
A, B, C, D, X = (
    ["user", "a", None],
    ["assistant", "b", None],
    ["user", "c", None],
    ["assistant", "d", None],
    ["assistant", "x", None],
)
UNDISTURBED = (turn(2), turn(4), end([A, B, C, D]))
CALLING = ["assistant", "", '[{"id": "c", "name": "pay", "args": {"cents": 5}}]']

GOOD = [
    ("recovers", [CRASH, Ended(0, "crashed"), COMPLETED], ()),
    ("rollback", [CRASH, recovered("")], UNDISTURBED),
    ("rollback", [CRASH, recovered([A], checkpoint=None)], UNDISTURBED),
    ("rollback", [CRASH, finished("c", "surfaced"), recovered([X, X])], UNDISTURBED),
    ("exactly-once", [CRASH, finished("c", "surfaced"), COMPLETED], (effect(),)),
    ("model-calls", [asked(1), CRASH, asked(1), decided(1), asked(2)], ()),
    ("bookkeeping", [ATTEMPT, books(errors=[(1, 0), (1, 1), (2, 0)])], ()),
    ("rollback", [turn(2), CRASH, recovered([A, B])], UNDISTURBED),
    ("rollback", [turn(2), CRASH, recovered([A, B, C, D])], UNDISTURBED),
    ("exactly-once", [effect(), CRASH, COMPLETED], (effect(),)),
    ("exactly-once", [MEANT, effect(), COMPLETED], ()),
    ("exactly-once", [effect(), CRASH, effect(applied=False), COMPLETED], (effect(),)),
    ("exactly-once", [CRASH, Ended(1, "failed")], (effect(),)),
    ("single-interruption", [*BOTH, accepted("A"), CRASH, end(log=log(STARTED, CUT))], ()),
    ("single-interruption", [*BOTH, accepted("A"), CRASH, end(log=log(STARTED, DONE))], ()),
    ("prefix-log", [turn(2, log_seq=2), CRASH, recovered(log=log("a", "b"))], ()),
    ("prefix-log", [CRASH, recovered(log=log("a")), end(log=log("a", "b"))], ()),
    ("saves", [save(1), saved(1), save(2), CRASH, found((1, "text"))], ()),
    ("saves", [save(1), saved(1), save(2), CRASH, found((2, "text"))], ()),
    ("model-calls", [asked(1, said="a"), turn(2), asked(2, said="abc"), Born(1), asked(2, said="abx")], ()),
    ("model-calls", [asked(1, said="ab"), turn(2), Born(1), asked(2, said="abc")], ()),
    (
        "shown",
        [
            recovered([A, CALLING, ["tool", "paid\n1", None]]),
            shown("you: a\n", '  * pay({"cents": 5})\n', "    = paid\n      1\n"),
        ],
        (),
    ),
    ("shown", [recovered([["user", "x" * 5000, None]]), shown("you: " + "x" * 2000 + "...")], ()),
    ("shown", [recovered(), shown()], ()),
    ("cadence", [cadence("turn"), decided(1), turn(2), decided(2)], ()),
    ("cadence", [cadence("turn"), decided(1), finished("a"), finished("b"), turn(2)], ()),
    ("cadence", [cadence("call"), decided(1), finished("a"), turn(2), finished("b")], ()),
    ("cadence", [cadence("periodic", 2), decided(1), decided(2), turn(2), decided(3)], ()),
    ("cadence", [cadence("turn"), decided(1), CRASH, Born(1), cadence("turn"), decided(2)], ()),
    ("crash-equivalence", [end(kept={"plan": 1})], (end(kept={"plan": 1}),)),
    (
        "crash-equivalence",
        [effect(), CRASH, end("ab", answers={"r": "yes"})],
        (effect(), end("ab", answers={"r": "yes"})),
    ),
]

BAD = [
    ("recovers/failed", [CRASH, Ended(1, "failed", "Boom: no")], ()),
    ("recovers/hung", [CRASH, Ended(1, "hung", "did not finish in 10 s")], ()),
    ("rollback/lost", [turn(2), CRASH, recovered("")], UNDISTURBED),
    ("rollback/partial", [turn(2), CRASH, recovered([A, B, C])], UNDISTURBED),
    ("rollback/changed", [turn(2), CRASH, recovered([A, X])], UNDISTURBED),
    ("exactly-once/doubled", [effect(), CRASH, effect()], (effect(),)),
    ("exactly-once/unasked", [effect(), effect("bank"), CRASH], (effect(),)),
    ("exactly-once/lost", [CRASH, COMPLETED], (effect(),)),
    ("exactly-once/lost", [MEANT, COMPLETED], ()),
    ("exactly-once/needless", [effect(), finished("c"), finished("c", "surfaced")], (effect(),)),
    ("exactly-once/doubled", [effect(), finished("c", "surfaced"), effect()], (effect(),)),
    ("model-calls/repeated", [asked(1), decided(1), CRASH, asked(1)], ()),
    ("model-calls/orphan", [asked(2, "call_1")], ()),
    ("bookkeeping/versions", [books(versions=(3, 2))], ()),
    ("bookkeeping/usage", [books(usage=[(1, 10), (1, 10)])], ()),
    ("bookkeeping/attempts", [books(errors=[(1, 0), (1, 0)])], ()),
    ("bookkeeping/errors", [ATTEMPT, books()], ()),
    ("single-interruption/repeated", [*BOTH, CRASH, end(log=log(STARTED, CUT, CUT))], ()),
    ("single-interruption/missing", [*BOTH, accepted("A"), end(log=log(STARTED))], ()),
    ("single-interruption/contradicted", [*BOTH, CRASH, end(log=log(STARTED, DONE, CUT))], ()),
    ("prefix-log/lost", [turn(2, log_seq=3), CRASH, recovered(log=log("a", "b"))], ()),
    ("prefix-log/rewritten", [recovered(log=log("a", "b")), end(log=log("a", "x"))], ()),
    ("prefix-log/gap", [end(log=log("a", "b")[1:])], ()),
    ("prefix-log/damaged", [end(log=[*log("a"), '{"seq": 2, "ki'])], ()),
    ("prefix-log/damaged", [end(log=['{"seq": 1\n'])], ()),
    ("prefix-log/damaged", [end(log=["[]\n"])], ()),
    ("saves/lost", [save(1), saved(1), CRASH, found()], ()),
    ("saves/gap", [save(1), save(2), save(3), CRASH, found((1, "text"), (3, "text"))], ()),
    ("saves/damaged", [save(1), CRASH, found((1, "te"))], ()),
    ("saves/damaged", [save(1), CRASH, found((7, "text"))], ()),
    ("recovers/hung", [Ended(0, "hung", "did not finish in 1 s"), COMPLETED], ()),
    ("model-calls/changed", [asked(1, said="ab"), turn(2), Born(1), asked(2, said="ax")], ()),
    ("model-calls/changed", [asked(1, said="ab"), asked(2, said="xbc")], ()),
    ("model-calls/forgotten", [asked(1, said="ab"), turn(2), Born(1), asked(2, said="a")], ()),
    ("shown/length", [recovered([A]), shown()], ()),
    ("shown/length", [recovered([A]), shown("you: a\n", "agent: b\n")], ()),
    ("shown/different", [recovered([A]), shown("you: b\n")], ()),
    ("shown/different", [recovered([CALLING]), shown("  * pay({})")], ()),
    ("cadence/turns", [cadence("turn"), decided(1), decided(2)], ()),
    ("cadence/turns", [cadence("periodic", 2), decided(1), decided(2), decided(3)], ()),
    ("cadence/calls", [cadence("call"), decided(1), finished("a"), finished("b")], ()),
    ("crash-equivalence/kept", [end(kept={"plan": 1})], (end(kept={"plan": 2}),)),
    ("crash-equivalence/answer", [end("", answers={"r": "no"})], (end("", answers={"r": "yes"}),)),
    ("crash-equivalence/transcript", [end("abx")], (end("abc"),)),
    ("crash-equivalence/transcript", [end("abc")], (end("ab"),)),
    (
        "crash-equivalence/effects",
        [effect("b"), effect("a"), end()],
        (effect("a"), Effect(0, 0, "b", "other", {"to": "y"}, "k", True), end()),
    ),
]

VACUOUS = [
    ("recovers", [], ()),
    ("recovers", [Ended(1, "died", "signal SIGSEGV")], ()),
    ("rollback", [CRASH], UNDISTURBED),
    ("rollback", [CRASH, recovered([A])], ()),
    ("exactly-once", [CRASH, COMPLETED], ()),
    ("single-interruption", [end(log=log(STARTED, DONE))], ()),
    ("single-interruption", [*BOTH, CRASH, end(log=[])], ()),
    ("prefix-log", [CRASH], ()),
    ("model-calls", [CRASH], ()),
    ("bookkeeping", [CRASH], ()),
    ("shown", [recovered([A])], ()),
    ("cadence", [decided(1), decided(2)], ()),
    ("cadence", [cadence("periodic"), decided(1), decided(2)], ()),
    ("cadence", [cadence("turn"), CRASH], ()),
    ("crash-equivalence", [finished("c", "surfaced"), end()], (end(),)),
    ("saves", [save(1), saved(1), CRASH], ()),
    ("crash-equivalence", [CRASH], (end(),)),
    ("crash-equivalence", [CRASH, end()], ()),
]


def token_log(*kinds, request="A", result="yes"):
    """Lines about one token; who consumed it, and with what."""
    lines = [
        {"seq": n, "kind": f"token.{kind}", "token_id": "T", "request_id": request, "result": result}
        for n, kind in enumerate(kinds, 1)
    ]
    return [json.dumps(line) + "\n" for line in lines]


def token_end(*kinds, files=(), **more):
    return Probe(1, 0, "end", {"log": token_log(*kinds, **more), "files": list(files), "never": "secret_"})


def resume(name="resumed", request="A", again=False):
    data = {"token": "T", "request": request, "result": "yes", "again": again, "code": "revoked"}
    return Ack(0, 0, name, data)


def status(found, *events, boot="b1", now=10.0):
    lines = [json.dumps({"seq": n, **event}) + "\n" for n, event in enumerate(events, 1)]
    probe = Probe(0, 0, "status", {"status": found, "boot": boot, "now": now, "lines": len(lines)})
    return [probe, end(log=[*lines, *log("later")])]


def run_event(kind, **more):
    return {"kind": f"run.{kind}", "run_id": "R", **more}


BEGUN = run_event("started", boot_id="b1")
WAIT = {**run_event("waiting", deadline_at="1970-01-01T00:01:00Z"), "resume_token_id": "T"}
MINT = {"kind": "token.minted", "token_id": "T", "expires_at": "1970-01-01T00:01:00Z"}
REVOKED = {"kind": "token.revoked", "token_id": "T"}
RESTARTED = run_event("interrupted", reason="process_restart")
LATE = run_event("interrupted", reason="wait_timeout")


WHOLE = Probe(0, 0, "given", {"sessions": ["s"], "words": {"s": []}})
UNDECIDED = [Effect(0, 0, "mail", "act", {"session": "s", "n": "n"}, "k", applied=True)]


def responded(answer=None, state="running"):
    return Ack(0, 0, "told", {"request": "r", "state": state, "answer": answer})


def saw(event):
    return Effect(0, 0, "client", "remember", {"id": event}, "last-event", applied=False)


def on_disk(text, lines=3):
    return Probe(1, 0, "found", {"snapshot": text, "lines": lines})


GOOD += [
    ("tokens", [resume(), token_end("minted", "consumed")], ()),
    ("tokens", [resume(), resume("refused", "B"), token_end("minted", "consumed")], ()),
    ("tokens", [resume("refused"), token_end("minted", "revoked")], ()),
    ("tokens", [resume(), resume(again=True), token_end("minted", "consumed", files=["hash"])], ()),
    ("status", status("idle"), ()),
    ("status", status("running", BEGUN), ()),
    ("status", status("interrupted_startup", BEGUN, boot="b2"), ()),
    ("status", status("interrupted_startup", BEGUN, MINT, WAIT, RESTARTED, boot="b2"), ()),
    ("status", status("waiting", BEGUN, MINT, WAIT), ()),
    ("status", status("interrupted_waiting", BEGUN, MINT, WAIT, now=61.0), ()),
    ("status", status("interrupted_waiting", BEGUN, MINT, WAIT, REVOKED, LATE), ()),
    ("status", status("running", BEGUN, MINT, WAIT, run_event("resumed")), ()),
    ("status", status("idle", BEGUN, run_event("completed"), boot="b2"), ()),
    ("client-consistency", [responded(), responded("yes"), end(answers={"r": "yes"})], ()),
    ("client-consistency", [saw(1), saw(2), end(log=log("status.derived", "run.interrupted", "other"))], ()),
    ("snapshot", [on_disk('{"last_seq": 3}')], ()),
]
BAD += [
    ("tokens/doubled", [resume(), resume(request="B")], ()),
    ("tokens/forgotten", [resume(), resume("refused", again=True)], ()),
    ("tokens/used up", [token_end("minted", "revoked", "consumed")], ()),
    ("tokens/used up", [token_end("minted", "consumed", "consumed")], ()),
    ("tokens/lost", [resume(), token_end("minted")], ()),
    ("tokens/changed", [resume(), token_end("minted", "consumed", result="no")], ()),
    ("tokens/secret", [token_end("minted", files=["x secret_1 y"])], ()),
    ("status/wrong", status("running", BEGUN, boot="b2"), ()),
    ("status/wrong", status("interrupted_waiting", BEGUN, MINT, WAIT, RESTARTED, boot="b2"), ()),
    ("status/wrong", status("waiting", BEGUN, MINT, WAIT, now=61.0), ()),
    ("status/wrong", status("waiting", BEGUN, WAIT), ()),
    ("client-consistency/repeated", [saw(5), saw(3)], ()),
    ("client-consistency/missed", [saw(2), end(log=log("status.derived", "status.derived"))], ()),
    ("client-consistency/unknown", [saw(1), end(log=log("other"))], ()),
    ("client-consistency/lost", [responded(), end(answers={})], ()),
    ("client-consistency/changed", [responded("yes"), end(answers={"r": "no"})], ()),
    ("snapshot/torn", [on_disk('{"last_se')], ()),
    ("snapshot/ahead", [on_disk('{"last_seq": 4}')], ()),
]
VACUOUS += [
    ("tokens", [CRASH], ()),
    ("status", [CRASH], ()),
    ("client-consistency", [CRASH, end()], ()),
    ("snapshot", [on_disk(None)], ()),
]


def agent(state="SUSPENDED", *turns):
    return {"state": state, "turns": [list(turn) for turn in turns]}


def found_tree(name="end", messages=None, damage=(), parents=None, **agents):
    """A probe of a daemon; every agent is a root by default."""
    links = dict.fromkeys(agents) if parents is None else parents
    data = {"agents": agents, "parents": links, "messages": messages or {}, "damage": list(damage)}
    return Probe(1, 0, name, data)


def spawned(child, parent=None):
    return Ack(0, 0, "spawned", {"agent": child, "parent": parent})


def sent(asks=False, poison=False, by="user"):
    data = {"id": "m", "to": "b", "from": by, "asks": asks, "poison": poison}
    return Ack(0, 0, "sent", data)


def said(text):
    return Ack(0, 0, "replied", {"id": "m", "said": text})


OPEN, GIVEN, ASIDE = {"outcome": None}, {"outcome": "delivered"}, {"outcome": "stopped"}
B_READ_M = agent("ACTIVE", ("m", "yes"))
A_ABOVE_B = {"a": None, "b": "a"}
ASKED = {"m": GIVEN, "m.reply": GIVEN}

GOOD += [
    ("tree", [spawned("a"), found_tree(a=agent(), b=agent("STOPPED"), parents=A_ABOVE_B)], ()),
    ("tree", [found_tree(a=agent("ACTIVE"), b=agent("ACTIVE"), parents=A_ABOVE_B)], ()),
    ("tree", [Ack(0, 0, "stopped", {"agent": "a"}), found_tree(a=agent("STOPPED"))], ()),
    ("delivery", [sent(), found_tree("recovered", {"m": OPEN}, b=agent())], ()),
    ("daemon-model", DAEMON, ()),  # more in test_daemon_model
    ("specification", [WHOLE], ()),  # more in test_specification
    ("delivery", [sent(), found_tree(messages={"m": GIVEN}, b=B_READ_M)], ()),
    ("delivery", [sent(), found_tree(messages={"m": ASIDE}, b=agent("STOPPED"))], ()),
    ("delivery", [sent(poison=True), found_tree(messages={"m": ASIDE}, b=agent())], ()),
    ("delivery", [sent(asks=True), said("yes"), said("yes"), found_tree(messages=ASKED, b=B_READ_M)], ()),
    (
        "delivery",
        [
            sent(asks=True, by="a"),
            found_tree(messages=ASKED, a=agent("ACTIVE", ("m.reply", "ok")), b=B_READ_M),
        ],
        (),
    ),
    ("delivery", [sent(asks=True, by="a"), found_tree(messages=ASKED, a=agent("STOPPED"), b=B_READ_M)], ()),
    ("no-active", [found_tree("recovered", a=agent(), b=agent("STOPPED"))], ()),
    ("no-active", [found_tree("end", a=agent("ACTIVE"))], ()),
]
BAD += [
    ("tree/orphan", [found_tree(a=agent(), parents={})], ()),
    ("tree/dangling", [found_tree(a=agent(), parents={"a": "b"})], ()),
    ("tree/dangling", [found_tree(a=agent(), parents=A_ABOVE_B)], ()),
    ("tree/cycle", [found_tree(a=agent(), b=agent(), parents={"a": "b", "b": "a"})], ()),
    ("tree/abandoned", [found_tree(a=agent("STOPPED"), b=agent(), parents=A_ABOVE_B)], ()),
    ("tree/alone", [found_tree(a=agent(), b=agent("ACTIVE"), parents=A_ABOVE_B)], ()),
    ("tree/lost", [spawned("a"), found_tree("recovered")], ()),
    ("tree/moved", [spawned("b"), found_tree(a=agent(), b=agent(), parents=A_ABOVE_B)], ()),
    ("tree/revived", [Ack(0, 0, "stopped", {"agent": "a"}), found_tree(a=agent())], ()),
    ("delivery/lost", [sent(), found_tree("recovered", b=agent())], ()),
    ("daemon-model/broken", [*DAEMON, Fail(0, 0, 1, "IntegrityError")], ()),
    ("specification/once: undecided", [WHOLE, *UNDECIDED], ()),
    ("delivery/lost", [sent(), found_tree("recovered", {"m": GIVEN}, b=agent())], ()),
    ("delivery/stuck", [sent(), found_tree(messages={"m": OPEN}, b=agent())], ()),
    ("delivery/given up", [sent(), found_tree(messages={"m": ASIDE}, b=agent())], ()),
    ("delivery/doubled", [sent(), found_tree(b=agent("ACTIVE", ("m", "yes"), ("m", "yes")))], ()),
    ("delivery/unanswered", [sent(asks=True), found_tree(messages={"m": GIVEN}, b=B_READ_M)], ()),
    ("delivery/unanswered", [sent(asks=True, by="a"), found_tree(messages=ASKED, a=agent(), b=B_READ_M)], ()),
    ("delivery/changed", [said("yes"), said("no")], ()),
    ("delivery/changed", [sent(asks=True), said("no"), found_tree(messages=ASKED, b=B_READ_M)], ()),
    ("no-active/active", [found_tree("recovered", a=agent("ACTIVE"))], ()),
    ("no-active/damaged", [found_tree("end", a=agent("LOST"))], ()),
    ("no-active/damaged", [found_tree("recovered", damage=["the blob of a"], a=agent())], ()),
]
VACUOUS += [
    ("tree", [CRASH, spawned("a")], ()),
    ("delivery", [CRASH, sent()], ()),
    ("daemon-model", [CRASH, sent()], ()),
    ("specification", [CRASH, sent()], ()),
    ("delivery", [found_tree()], ()),
    ("no-active", [CRASH, found_tree("recovered")], ()),
]


def check(name, events, baseline):
    history = History(tuple(events), tuple(baseline))
    return list(registry.invariant(name).check(history))


@pytest.mark.requirement("C2")
@pytest.mark.parametrize(("name", "events", "baseline"), GOOD)
def test_a_sound_history_is_accepted(name, events, baseline):
    assert check(name, events, baseline) == []


@pytest.mark.requirement("C2")
@pytest.mark.parametrize(("signature", "events", "baseline"), BAD)
def test_a_broken_history_is_found_and_named(signature, events, baseline):
    name, kind = signature.split("/")
    assert kind in {violation.kind for violation in check(name, events, baseline)}


@pytest.mark.requirement("C2")
@pytest.mark.parametrize(("name", "events", "baseline"), VACUOUS)
def test_a_history_with_nothing_to_judge_is_not_a_pass(name, events, baseline):
    with pytest.raises(NothingToJudge):
        check(name, events, baseline)


def test_every_invariant_has_sound_and_broken_examples():
    claims = set(registry.claims())  # theirs are in test_claims_stores and test_claims_agents
    names = set(registry.invariants()) - claims
    assert names == {name for name, *_ in GOOD} == {sig.split("/")[0] for sig, *_ in BAD}
    assert names == {name for name, *_ in VACUOUS}


def test_a_former_name_of_an_invariant_still_resolves():
    assert registry.invariant("told") is registry.invariant("client-consistency")
    assert registry.current_signature("told/lost") == "client-consistency/lost"


def test_a_scenario_may_list_an_invariant_by_its_former_name(monkeypatch):
    scenario = registry.scenario("http")
    listed = ["told" if name == "client-consistency" else name for name in scenario.invariants]
    former = msgspec.structs.replace(scenario, invariants=tuple(listed))
    monkeypatch.setattr(registry, "scenarios", lambda: {"http": former})
    assert registry.resolve(Settings(scenario="http")).claims == scenario.invariants


def test_other_names_are_returned_unchanged():
    for name in ("recovers", "durable", "no-such-invariant", "mine.py:INVARIANT", ""):
        assert registry.current_name(name) == name


def test_no_alias_is_the_name_of_another_invariant():
    known = registry.invariants()
    aliases = [alias for each in known.values() for alias in each.aliases]
    assert len({*known, *aliases}) == len(known) + len(aliases)
