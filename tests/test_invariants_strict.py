"""The smallest histories that an invariant once accepted although its definition forbids them, and their
sound neighbours: what looks like them and must still be accepted."""

import json

import pytest

from chaoskit.faults.disk import DiskError
from chaoskit.model import Ack, Born, Effect, Ended, Fail, Invoke, NothingToJudge, PersistPoint, Probe, Struck
from tests.test_invariants import (
    A_ABOVE_B,
    ASIDE,
    ASKED,
    B_READ_M,
    BEGUN,
    BOTH,
    COMPLETED,
    CRASH,
    CUT,
    DONE,
    GIVEN,
    MEANT,
    MINT,
    STARTED,
    UNDISTURBED,
    WAIT,
    A,
    B,
    C,
    X,
    accepted,
    agent,
    asked,
    books,
    cadence,
    check,
    decided,
    effect,
    end,
    found,
    found_tree,
    log,
    on_disk,
    recovered,
    responded,
    resume,
    save,
    saved,
    sent,
    shown,
    spawned,
    status,
    token_end,
    turn,
)

CANCELLED, FAILED = "run.cancelled", "run.failed"
REBORN = Born(1)
STRUCK = Struck(0, DiskError(PersistPoint("write", 1, 1), "ENOSPC"))
TIP = Probe(0, 0, "meant", {"effects": [["mail", "send", {"to": "x"}]] * 2})
KNOWABLE = Probe(0, 0, "meant", {"effects": [["mail", "send", {"to": "x"}]], "verifiable": ["mail"]})
EMPTY = Probe(0, 0, "meant", {"effects": []})


def lines(*events):
    return [json.dumps({"seq": n, **event}) + "\n" for n, event in enumerate(events, 1)]


def at_birth(lines_found, life=1):
    return Probe(life, 0, "found", {"snapshot": None, "lines": lines_found})


def run(kind, name="A", **more):
    return {"kind": f"run.{kind}", "run_id": name, **more}


def late(kind="run.interrupted", reason="process_restart"):
    return end(log=lines(run("started"), {"kind": kind, "run_id": "A", "reason": reason}))


def resumed_as(name):
    """Accepted by the life that runs to the end."""
    return Ack(1, 0, "accepted", {"request": "r", "run": name})


def surfaced(call="c", life=1, **args):
    return Ack(life, 0, "surfaced", {"call": call, "tool": "send", "args": args or {"to": "x"}})


def issued(**calls):
    return Probe(1, 0, "recovered", {"calls": calls})


def answered(turn, tokens=10):
    return Probe(0, 0, "answered", {"turn": turn, "tokens": tokens})


def attempt(turn, number):
    return Ack(0, 0, "failed-attempt", {"turn": turn, "attempt": number})


def answer(text="yes", request="r"):
    return Ack(0, 0, "answer", {"request": request, "answer": text})


def closer(messages, beyond=0, checkpoint=1):
    data = {"messages": messages, "answers": {}, "log": [], "checkpoint": checkpoint, "beyond": beyond}
    return Probe(1, 0, "recovered", data)


def about(seq, **named):
    return Ack(0, 0, "accepted", {**named, "log_seq": seq})


def stamped(*events, files=()):
    """A final log of tokens, with times."""
    return Probe(1, 0, "end", {"log": lines(*events), "files": list(files), "never": "secret_"})


def token(kind, at=0, **more):
    return {"kind": f"token.{kind}", "token_id": "T", "ts": f"1970-01-01T00:00:{at:02}Z", **more}


CONSUMED = {"request_id": "A", "result": "yes"}
EXPIRES = {"expires_at": "1970-01-01T00:00:30.5Z"}
SAVES = [save(1), saved(1), save(2), saved(2), save(3), saved(3)]
ALL_SAVED = (found((1, "text"), (2, "text"), (3, "text")),)
STOP_A = Invoke(0, 0, 1, "stop", {"agent": "a"})


def saw(event, **more):
    return Effect(0, 0, "client", "remember", {"id": event, **more}, "last-event", applied=False)


ONCE_ACCEPTED = [
    # --- single-interruption
    ("single-interruption/misrecorded", [*BOTH, accepted("A"), CRASH, end(log=log(STARTED, CANCELLED))], ()),
    ("single-interruption/misrecorded", [*BOTH, accepted("A"), CRASH, end(log=log(STARTED, FAILED))], ()),
    (
        "single-interruption/misrecorded",
        [*BOTH, accepted("A"), CRASH, at_birth(1), end(log=log(STARTED, DONE))],  # without an answer
        (),
    ),
    ("single-interruption/unearned", [*BOTH, CRASH, resumed_as("A"), late()], ()),
    ("single-interruption/unearned", [Born(0), accepted("A"), end(log=log(STARTED, CUT), life=0)], ()),
    ("single-interruption/unearned", [*BOTH, CRASH, accepted("A"), late(reason="wait_timeout")], ()),
    ("single-interruption/unstarted", [*BOTH, accepted("A"), CRASH, end(log=log(CUT, STARTED))], ()),
    # --- bookkeeping
    ("bookkeeping/usage", [decided(2), books()], ()),
    ("bookkeeping/usage", [answered(1, tokens=7), decided(1), books()], ()),
    ("bookkeeping/versions", [turn(1), turn(2), books()], ()),
    ("bookkeeping/versions", [books(versions=(2, 2)), books()], ()),
    ("bookkeeping/usage", [books(usage=[(1, 10), (2, 10)]), books()], ()),
    ("bookkeeping/errors", [attempt(1, 0), books(errors=[(2, 0)])], ()),
    ("bookkeeping/attempts", [asked(1), books(errors=[(1, 0), (1, 1)])], ()),
    # --- saves
    ("saves/gap", [*SAVES, CRASH, found((2, "text"), (3, "text"))], ()),
    ("saves/lost", [*SAVES, CRASH, found((3, "text"))], ALL_SAVED),
    ("saves/lost", [save(1), save(2), saved(2), saved(1), CRASH, found((1, "text"))], ()),
    # --- exactly-once
    ("exactly-once/lost", [TIP, CRASH, surfaced(), COMPLETED], ()),
    ("exactly-once/lost", [MEANT, surfaced(), COMPLETED], ()),
    ("exactly-once/needless", [MEANT, effect(), surfaced(life=0)], ()),
    ("exactly-once/lost", [MEANT, CRASH, issued(), surfaced(), COMPLETED], ()),
    ("exactly-once/needless", [MEANT, CRASH, issued(c="completed"), surfaced()], ()),
    ("exactly-once/lost", [KNOWABLE, CRASH, surfaced(), COMPLETED], ()),
    ("exactly-once/retried", [MEANT, CRASH, surfaced(), effect(life=1), COMPLETED], ()),
    ("exactly-once/unasked", [EMPTY, effect()], ()),
    # --- prefix-log
    ("prefix-log/lost", [turn(2, log_seq=3), turn(2, log_seq=2), CRASH, recovered(log=log("a", "b"))], ()),
    ("prefix-log/rewritten", [about(1, run="B"), CRASH, recovered(log=log(STARTED))], ()),
    ("prefix-log/damaged", [end(log=['{"seq": true}\n'])], ()),
    # --- model-calls
    ("model-calls/repeated", [asked(1), effect(), CRASH, REBORN, asked(1)], ()),
    ("model-calls/repeated", [asked(1), answered(1), asked(1)], ()),
    ("model-calls/changed", [turn(2), turn(1), asked(1, said="ab"), CRASH, REBORN, asked(2, said="ax")], ()),
    # --- rollback
    ("rollback/lost", [turn(2), CRASH, recovered([A, B, C], checkpoint=None)], UNDISTURBED),
    ("rollback/lost", [turn(4), turn(2), CRASH, recovered([A, B])], UNDISTURBED),
    ("rollback/changed", [turn(2), CRASH, surfaced(), recovered([A, X])], UNDISTURBED),
    (
        "rollback/partial",
        [turn(2), CRASH, closer([A, B, C, UNDISTURBED[2].data["messages"][3]], 2)],
        UNDISTURBED,
    ),
    # --- crash-equivalence
    ("crash-equivalence/answer", [end(answers={"x": "!"})], (end(),)),
    ("crash-equivalence/effects", [effect("bank"), end()], (effect("mail"), end())),
    ("crash-equivalence/questions", [end(questions=[["send", {}]])], (end(questions=[]),)),
    ("crash-equivalence/transcript", [CRASH, surfaced(), end([X])], (end([A]),)),
    (
        "crash-equivalence/answer",
        [answer("no"), CRASH, surfaced(), end(answers={"r": "no"})],
        (end(answers={"r": "yes"}),),
    ),
    ("crash-equivalence/effects", [effect("bank"), CRASH, surfaced(to="y"), end()], (effect("mail"), end())),
    # --- cadence
    ("cadence/turns", [cadence("turn"), decided(1), answer()], ()),
    ("cadence/turns", [cadence("periodic", 2), decided(1), decided(2), end()], ()),
    # --- client-consistency
    ("client-consistency/changed", [responded("yes"), responded("no")], ()),
    ("client-consistency/forgotten", [responded("yes"), responded(), end(answers={"r": "yes"})], ()),
    ("client-consistency/changed", [answer("yes"), CRASH, end(answers={"r": "no"})], ()),
    ("client-consistency/different", [saw(1, kind="run.interrupted"), end(log=log("status.derived"))], ()),
    # --- recovers
    ("recovers/hung", [Ended(0, "hung", "did not finish in 1 s"), Ended(1, "died", "signal SIGSEGV")], ()),
    ("recovers/unfinished", [CRASH, REBORN, COMPLETED], (end(),)),
    # --- shown
    ("shown/different", [recovered([["user", "?!", None]]), shown("you: yes\n")], ()),
    ("shown/different", [recovered([A]), shown("you: a" + " and something that was rolled back" * 3)], ()),
    # --- snapshot
    ("snapshot/torn", [on_disk("null")], ()),
    ("snapshot/torn", [on_disk("{}")], ()),
    (
        "snapshot/ahead",
        [
            on_disk('{"last_seq": 1, "run": {"run_id": "B"}}'),
            end(log=lines(run("started"), run("started", "B"))),
        ],
        (),
    ),
    # --- status
    (
        "status/lost",
        [Probe(0, 0, "status", {"status": "idle", "boot": "b1", "now": 1, "lines": 2}), end(log=log("a"))],
        (),
    ),
    ("status/wrong", status("waiting", BEGUN, {**MINT, "run_id": "another"}, WAIT), ()),
    (
        "status/wrong",
        [
            end(
                log=lines(
                    {"kind": "boot.seen", "boot_id": "b1"},
                    BEGUN,
                    {"kind": "status.derived", "status": "idle", "ts": "1970-01-01T00:00:10Z"},
                )
            )
        ],
        (),
    ),
    # --- tokens
    ("tokens/expired", [stamped(token("minted", **EXPIRES), token("consumed", at=31, **CONSUMED))], ()),
    (
        "tokens/expired",
        [
            stamped(
                token("minted"),
                {"kind": "run.waiting", "resume_token_id": "T", "deadline_at": EXPIRES["expires_at"]},
                token("consumed", at=31, **CONSUMED),
            )
        ],
        (),
    ),
    ("tokens/early", [stamped(token("minted", **EXPIRES), token("expired", at=29))], ()),
    ("tokens/unminted", [token_end("consumed")], ()),
    ("tokens/reminted", [token_end("minted", "minted")], ()),
    ("tokens/refused", [resume("refused"), token_end("minted")], ()),
    ("tokens/stuck", [stamped(token("minted", run_id="R"), token("consumed", **CONSUMED))], ()),
    # --- tree
    ("tree/killed", [spawned("a"), CRASH, found_tree("recovered", a=agent("STOPPED"))], ()),
    ("tree/lost", [found_tree("recovered", a=agent()), found_tree()], ()),
    (
        "tree/moved",
        [found_tree("recovered", a=agent(), b=agent()), found_tree(a=agent(), b=agent(), parents=A_ABOVE_B)],
        (),
    ),
    ("tree/revived", [found_tree("recovered", a=agent("STOPPED")), found_tree(a=agent())], ()),
    # --- no-active
    ("no-active/damaged", [CRASH, found_tree("recovered", damage=["the blob of a"])], ()),
    # --- delivery
    (
        "delivery/contradicted",
        [sent(), found_tree(messages={"m": ASIDE}, b=agent("STOPPED", ("m", "yes")))],
        (),
    ),
    (
        "delivery/unlogged",
        [sent(), found_tree(messages={"m": GIVEN}, b=B_READ_M, c=agent("ACTIVE", ("x", "")))],
        (),
    ),
    (
        "delivery/rewritten",
        [
            sent(),
            found_tree("recovered", {"m": GIVEN}, b=agent("SUSPENDED", ("m", "no"))),
            found_tree(messages={"m": GIVEN}, b=B_READ_M),
        ],
        (),
    ),
    (
        "delivery/resettled",
        [
            sent(poison=True),
            found_tree("recovered", {"m": ASIDE}, b=agent()),
            found_tree(messages={"m": GIVEN}, b=B_READ_M),
        ],
        (),
    ),
]

STILL_ACCEPTED = [
    # A run that ended by itself, and the crash came later.
    ("single-interruption", [*BOTH, accepted("A"), CRASH, at_birth(2), end(log=log(STARTED, CANCELLED))], ()),
    (
        "single-interruption",
        [
            *BOTH,
            accepted("A"),
            CRASH,
            end(
                log=lines(run("started"), {"kind": "request.cancelled", "request_id": "r"}, run("cancelled"))
            ),
        ],
        (),
    ),
    (
        "single-interruption",
        [*BOTH, accepted("A"), Fail(0, 0, 1, "no"), CRASH, end(log=log(STARTED, FAILED))],
        (),
    ),
    (
        "single-interruption",
        [*BOTH, accepted("A"), CRASH, end(log=log(STARTED, FAILED))],
        (end(log=log(STARTED, FAILED)),),
    ),
    # The store had the answer, only the log was behind.
    (
        "single-interruption",
        [*BOTH, accepted("A"), CRASH, at_birth(1), end(log=log(STARTED, DONE), answers={"r": "yes"})],
        (),
    ),
    (
        "single-interruption",
        [
            *BOTH,
            resumed_as("A"),
            end(log=lines(run("started"), run("waiting"), run("interrupted", reason="wait_timeout"))),
        ],
        (),
    ),
    # Nobody was told which of two identical charges belongs to which decision: in their order.
    (
        "bookkeeping",
        [answered(1, 7), answered(2, 8), decided(1), decided(2), books(usage=[(1, 7), (2, 8)])],
        (),
    ),
    ("bookkeeping", [answered(1, 7), CRASH, REBORN, answered(1, 9), decided(1), books(usage=[(1, 9)])], ()),
    ("saves", [*SAVES, CRASH, found((3, "text"))], (found((3, "text")),)),  # keeps the latest only
    ("saves", [save(1, "old"), saved(1), save(1, "new"), CRASH, found((1, "old"))], ()),
    ("exactly-once", [TIP, CRASH, surfaced("c"), surfaced("d"), COMPLETED], ()),
    ("exactly-once", [TIP, effect(), CRASH, surfaced("c"), effect(life=1), COMPLETED], ()),
    ("exactly-once", [MEANT, CRASH, issued(c="issued"), surfaced(), surfaced(), COMPLETED], ()),
    ("exactly-once", [MEANT, CRASH, issued(), effect(life=1), surfaced(), COMPLETED], ()),  # a timeout
    ("exactly-once", [MEANT, surfaced(life=0), STRUCK, Ended(0, "failed"), COMPLETED], ()),
    ("prefix-log", [about(1, run="A"), CRASH, recovered(log=log(STARTED))], ()),
    # The effect belongs to a turn that an earlier life had asked for.
    ("model-calls", [asked(1), asked(2), CRASH, REBORN, effect(life=1), asked(2)], ()),
    ("model-calls", [asked(1), answered(1), CRASH, REBORN, asked(1)], ()),  # it was not durable yet
    ("rollback", [turn(2), CRASH, surfaced(), recovered([A, B, C, X])], UNDISTURBED),
    ("cadence", [cadence("periodic", 2), decided(1), answer()], ()),
    ("cadence", [cadence("turn"), decided(1), turn(2), answer(), end()], ()),
    ("client-consistency", [answer("yes"), responded(), responded("yes"), end(answers={"r": "yes"})], ()),
    ("client-consistency", [responded(state="cancelled"), end(answers={"r": None})], ()),
    ("client-consistency", [saw(1, kind="status.derived"), end(log=log("status.derived"))], ()),
    ("recovers", [CRASH, REBORN, end(), COMPLETED, Born(2), Ended(2, "completed")], (end(),)),
    ("shown", [recovered([["user", "?!", None]]), shown("you: ?!\n")], ()),
    ("tokens", [stamped(token("minted", **EXPIRES), token("consumed", at=30, **CONSUMED))], ()),
    ("tokens", [stamped(token("minted", **EXPIRES), token("expired", at=30))], ()),
    (
        "tokens",
        [stamped(token("minted", run_id="R"), token("consumed", **CONSUMED), run("resumed", "R"))],
        (),
    ),
    ("status", status("waiting", BEGUN, {**MINT, "expires_at": None}, {**WAIT, "deadline_at": None}), ()),
    ("tree", [spawned("a"), STOP_A, CRASH, found_tree("recovered", a=agent("STOPPED"))], ()),
    (
        "tree",
        [
            spawned("b", "a"),
            STOP_A,
            CRASH,
            found_tree(a=agent("STOPPED"), b=agent("STOPPED"), parents=A_ABOVE_B),
        ],
        (),
    ),
    ("delivery", [sent(asks=True), found_tree(messages=ASKED, b=B_READ_M)], ()),
]

NOT_JUDGED = [
    ("recovers", [CRASH, Ended(0, "crashed")], ()),  # nobody started it again
    ("recovers", [CRASH, Ended(0, "crashed"), REBORN], ()),
    ("exactly-once", [effect(), COMPLETED], ()),  # nobody knows what was meant
    (
        "crash-equivalence",
        [CRASH, surfaced(), end([["tool", "unknown", None]])],
        (end([["tool", "ok", None]]),),
    ),
]


@pytest.mark.requirement("C2")
@pytest.mark.parametrize(("signature", "events", "baseline"), ONCE_ACCEPTED)
def test_what_the_definition_forbids_is_found(signature, events, baseline):
    name, kind = signature.split("/")
    assert kind in {violation.kind for violation in check(name, events, baseline)}


@pytest.mark.requirement("C2")
@pytest.mark.parametrize(("name", "events", "baseline"), STILL_ACCEPTED)
def test_what_only_looks_like_it_is_accepted(name, events, baseline):
    assert check(name, events, baseline) == []


@pytest.mark.requirement("C2")
@pytest.mark.parametrize(("name", "events", "baseline"), NOT_JUDGED)
def test_what_proves_nothing_is_not_judged(name, events, baseline):
    with pytest.raises(NothingToJudge):
        check(name, events, baseline)
