"""The specification of the agent, in both directions: small histories that it allows or forbids."""

import itertools
import json

import pytest
from chaoskit_invariants.specification.rules import RULES
from chaoskit_invariants.specified import INVARIANT

from chaoskit.faults.disk import DiskError
from chaoskit.faults.kill import Kill
from chaoskit.model import (
    Ack,
    Crashed,
    Effect,
    History,
    Invoke,
    NothingToJudge,
    Ok,
    PersistPoint,
    Probe,
    Struck,
)

POINT = PersistPoint("write", 1)
CRASH = Crashed(0, 1, Kill(POINT, "after"))
STRUCK = Struck(0, DiskError(POINT, "EIO"))
GIVEN = Probe(0, 0, "given", {"sessions": ["s"], "words": {"s": ["hello there"]}})
ORDER = itertools.count(1)


def boot(**options):
    return Probe(0, 0, "boot", {"number": 0, "boot": "b", "options": options, "calm": False})


def asked_for(name, result, life=0, **args):
    """An operation of a client that is answered at once."""
    number = next(ORDER)
    return [Invoke(life, 0, number, name, {"session": "s", **args}), Ok(life, 0, number, result)]


def post(state, request="r", words="hello there", **result):
    given = {"state": state, "request_id": request, **result}
    return asked_for("post", given, request=request, words=words)


def user(text="hello there"):
    return {"role": "user", "text": text}


def assistant(text="", *calls):
    said = {"role": "assistant", "text": text}
    return {**said, "calls": [list(call) for call in calls]} if calls else said


def result(call, text):
    return {"role": "tool", "text": text, "call": call}


def asked(*said, time=0.0):
    return Probe(0, 0, "asked", {"session": "s", "boot": 0, "time": time, "said": list(said)})


def replied(reply, tokens=10, *, decided=True):
    probe = Probe(0, 0, "replied", {"session": "s", "tokens": tokens, "reply": reply})
    return [probe, *([Ack(0, 0, "decided", {"session": "s", "turn": 1})] if decided else [])]


def model_failed(status, retry_after=None):
    facts = {"session": "s", "words": "hello there", "turn": 0, "status": status, "retry_after": retry_after}
    return Probe(0, 0, "model-failed", facts)


def effect(key="k", label="n", service="mail"):
    return Effect(0, 0, service, "act", {"session": "s", "n": label, "boot": 0}, key, applied=True)


def end(*conversation, **changes):
    facts = {
        "session": "s",
        "status": "idle",
        "boot": "b",
        "now": 0.0,
        "lines": 0,
        "spent": 0,
        "questions": [],
        "conversation": list(conversation),
        "notes": 0,
        "messages": [[message["role"], message["text"]] for message in conversation],
        "usage": [[1, changes.get("spent", 0)]],
        "log": [],
    }
    return Probe(0, 0, "session", {**facts, **changes})


UNSEEN = {"kind": "status.derived", "status": "idle", "run": None}
WAITING = post("waiting", **{"token": "t"})  # noqa: PIE804 - not a password
HI = user()
CALL = ("c", "mail", "n")
ASKS = [asked(HI), *replied(assistant("yes"))]
MAILS = [asked(HI), *replied(assistant("", CALL))]
MAILED = [HI, assistant("", CALL), result("c", "done, r-1"), assistant("yes")]
OVER = {"usage": [[1, 20]], "spent": 20}

STARTED = '{"seq": 1, "kind": "run.started", "run_id": "x", "request_id": "r", "boot_id": "b"}'
OVER_TOO = '{"seq": 2, "kind": "run.completed", "run_id": "x"}'
WANTS = assistant("", ("c", "approve", "n"))


def brings(brought, number=800, *, answered=True, who="me"):
    """A client presents the token with a result; its answer may be lost."""
    args = {"session": "s", "which": "newest", "as": who, "result": brought}
    found = [
        Invoke(0, 0, number, "resume", args),
        Ack(0, 0, "presented", {"session": "s", "token": "t"}),
        Ok(0, 0, number, {"state": "running", "request_id": "me", "run_id": "x"}),
    ]
    return found if answered else found[:2]


WITHOUT_NAMES = Probe(0, 0, "given", {**GIVEN.data, "nameless": "you"})
WAITED = [asked(HI), *replied(WANTS), *post("waiting", run_id="x")]
RESUMED = [*WAITED, *brings("yes")]


def approved(brought):
    """The request is answered, after this result of its call."""
    log = {"log": [STARTED, OVER_TOO], "lines": 2, "spent": 20, "usage": [[1, 20]]}
    return [
        asked(HI, WANTS, result("c", brought)),
        *replied(assistant("yes")),
        *post("answered", answer="yes"),
        end(HI, WANTS, result("c", brought), assistant("yes"), **log),
    ]


ENDED_MEANWHILE = {"refused": "nothing_to_do", "status": "interrupted_startup"}
SUPERSEDES = [
    Invoke(0, 0, 700, "post", {"session": "s", "request": "q", "words": "other"}),
    Ack(0, 0, "accepted", {"session": "s", "request": "q", "run": "y"}),
    Ok(0, 0, 700, {"state": "failed", "request_id": "q", "reason": "stopped by a hook: enough"}),
]
STOPPED = "error: cancelled: stopped by a hook: enough"
STOP = Probe(0, 0, "hook", {"session": "s", "on": "TurnStart", "do": "stop"})


def logged(*lines):
    """A log that also has these lines, and a conversation in which nothing happened."""
    numbered = ({"seq": n, **line} for n, line in enumerate(lines, 1))
    return end(log=[json.dumps(line) for line in numbered], lines=len(lines))


def of_token(kind, **more):
    return {"kind": f"token.{kind}", "token_id": "t", **more}


RUN = {"kind": "run.started", "run_id": "x", "request_id": "r", "boot_id": "b"}
MINTED = of_token("minted", run_id="x")
RESUMED_LINE = {"kind": "run.resumed", "run_id": "x"}
DONE = {"kind": "run.completed", "run_id": "x"}
TURN = {"kind": "turn.completed", "turn": 1}
ALLOWED = {
    "a run that is resumed with its token": [
        logged(RUN, MINTED, of_token("consumed"), RESUMED_LINE, TURN, DONE)
    ],
    "a call that was answered before its request failed": [
        *(STOP, asked(HI), *replied(WANTS), *post("waiting", run_id="x")),
        *approved(STOPPED),
    ],
    "a request that waited and was superseded": [
        STOP,
        *(*WAITED, *SUPERSEDES),
        *post("cancelled", reason="superseded"),
    ],
    "a client without a name that repeats itself": [
        *(WITHOUT_NAMES, *WAITED, *brings("yes", who="you"), *brings("yes", 801, who="you"))
    ],
    "another client cancels what this one wants to continue": [
        Invoke(0, 0, 900, "cancel", {"session": "s"}),
        *asked_for("continue", ENDED_MEANWHILE),
        Ok(0, 0, 900, {"state": "cancelled", "request_id": "r"}),
    ],
    "a result that was brought, and is there": [*RESUMED, *approved("yes")],
    "a repeat with another result changes nothing": [*RESUMED, *brings("no", 801), *approved("yes")],
    "a repeat may have been the first": [
        *(*WAITED, *brings("yes", answered=False), *brings("no", 801), *approved("no"))
    ],
    "an answer that the model gave": [
        *ASKS,
        *post("answered", answer="yes"),
        *post("answered", answer="yes"),
    ],
    "a failure that the model caused": [asked(HI), model_failed(400), *post("failed", reason="HTTP 400")],
    "a failure after every attempt": [
        boot(max_retries=1),
        *([asked(HI), model_failed(503)] * 2),
        *post("failed", reason="HTTP 503"),
    ],
    "a cancellation that was asked for": [
        *asked_for("cancel", {"state": "running", "request_id": "r"}),
        *post("cancelled"),
    ],
    "a request that failed at the moment it was cancelled, and waits when it is tried again": [
        boot(),
        asked(HI),
        model_failed(400),
        *asked_for("cancel", {"state": "running", "request_id": "r"}),
        *post("failed", reason="HTTP 400"),
        *post("waiting"),
    ],
    "a refusal while another operation is under way": [
        Invoke(0, 0, 900, "post", {"session": "s", "request": "q", "words": "w"}),
        *post(None, refused="busy"),
    ],
    "a disk that refuses, after a disk error": [STRUCK, *post(None, refused="not_durable")],
    "an effect for each call": [*MAILS, effect(), end(*MAILED, spent=10)],
    "a second attempt after a failure that the model was shown": [
        *MAILS,
        effect(),
        asked(HI, assistant("", CALL), result("c", "error: ValueError: no")),
        *replied(assistant("", ("d", "mail", "n"))),
        effect(),
    ],
    "a decision that stands": [*ASKS, *post("answered", answer="yes"), end(HI, assistant("yes"), spent=10)],
    "a patient retry": [
        boot(),
        asked(HI),
        model_failed(429, retry_after=2),
        asked(HI, time=2.0),
        *replied(assistant("yes")),
    ],
    "a token that a restart has revoked": [
        *WAITING,
        *asked_for("restart", None),
        *asked_for("resume", {"refused": "token_revoked"}, which="newest"),
    ],
}

FORBIDDEN = {
    "answers: invented": [*ASKS, *post("answered", answer="no")],
    "answers: changed": [*ASKS, *post("answered", answer="yes"), *post("answered", answer="no")],
    "answers: forgotten": [*ASKS, *post("answered", answer="yes"), *post("failed", reason="?")],
    "answers: asked again": [*ASKS, *post("answered", answer="yes"), asked(HI)],
    "justified: unjustified": [boot(), asked(HI), model_failed(503), *post("failed", reason="HTTP 503")],
    "limits: endless": [boot(max_turns=1), asked(HI, assistant("", CALL), result("c", "done, r-1"))],
    "cancelled: uncancelled": [*post("cancelled")],
    "cancelled: cancel lost": [
        *post("running"),
        *asked_for("cancel", {"state": "running", "request_id": "r"}),
        asked(HI),
    ],
    "ends: unfinished": [
        *asked_for("again", {"state": "running"}, request="r", words="hello there", finishing=True)
    ],
    "ends: unusable": [*post("failed", request="s-canary-1", reason="HTTP 400")],
    "refusals: broken": [*post(None, broke="AssertionError")],
    "refusals: refused": [*post(None, refused="not_durable")],
    "refusals: refused, continue": asked_for("continue", ENDED_MEANWHILE),
    "refusals: reused": [
        *ASKS,
        *post("answered", answer="yes"),
        *asked_for("other words", {"state": "answered"}, request="r", words="something else"),
    ],
    "once: doubled": [*MAILS, effect(), effect()],
    "once: undecided": [effect()],
    "agrees: claimed": [*MAILS, end(*MAILED, spent=10)],
    "agrees: denied": [
        *MAILS,
        effect(),
        end(HI, assistant("", CALL), result("c", "error: not run: no"), assistant("yes"), spent=10),
    ],
    "explained: unexplained": [
        *MAILS,
        asked(HI, assistant("", CALL), result("c", "error: no result was recorded")),
        *replied(assistant("yes")),
        *post("answered", answer="yes"),
        end(HI, assistant("", CALL), result("c", "error: no result was recorded"), assistant("yes"), **OVER),
    ],
    "valid: orphan": [asked(HI, assistant("", CALL), user("more"))],
    "valid: ids": [asked(HI, assistant("", ("", "mail", "n")), result("", "done, r-1"))],
    "valid: strange": [asked(user("who said that?"))],
    "closed: open": [*asked_for("read", {"state": "idle", "open": ["c"]})],
    "stands: replaced": [
        *post("answered", answer="yes"),
        *ASKS,
        asked(HI, assistant("", CALL), result("c", "done, r-1")),
        *replied(assistant("yes")),
        effect(),
        end(HI, assistant("", CALL), result("c", "error: denied: no"), assistant("yes"), **OVER),
    ],
    "complete: incomplete": [*ASKS, *post("answered", answer="yes"), end(spent=10)],
    "retries: hasty": [boot(), asked(HI), model_failed(429, retry_after=2), asked(HI, time=1.0)],
    "retries: stubborn": [boot(max_retries=0), asked(HI), model_failed(503), asked(HI)],
    "budget: overspent": [boot(limit_tokens=5), *ASKS, asked(HI, assistant("yes"), HI)],
    "budget: budget": [end(spent=5, usage=[[1, 10]])],
    "tokens: token lost": [*WAITING, *asked_for("resume", {"refused": "token_revoked"}, which="newest")],
    "tokens: used twice": [
        *RESUMED,
        Invoke(0, 0, 801, "resume", {"session": "s", "which": "first", "as": "you", "result": "no"}),
        Ack(0, 0, "presented", {"session": "s", "token": "t"}),
        Ok(0, 0, 801, {"state": "running", "request_id": "you", "run_id": "x"}),
    ],
    "one story: used up": [
        logged(RUN, MINTED, of_token("consumed"), RESUMED_LINE, of_token("revoked"), DONE)
    ],
    "one story: runs, not resumed": [logged(RUN, MINTED, of_token("consumed"), DONE)],
    "one story: turns": [logged(RUN, TURN, TURN, DONE)],
    "explained: unexplained, cancelled": [*WAITED, *approved(STOPPED)],
    "cancelled: superseded": [*(*WAITED, *SUPERSEDES, *post("waiting", run_id="x"))],
    "tokens: used twice, without a name": [
        *(WITHOUT_NAMES, *WAITED, *brings("yes", who="you"), *brings("no", 801, who="you"))
    ],
    "brought: result lost": [*RESUMED, *approved("no")],
    "brought: result lost, repeated": [*RESUMED, *brings("no", 801), *approved("no")],
    "events: stream": [
        Effect(
            0,
            0,
            "client",
            "remember",
            {"of": "s", "id": 2, "kind": "x", "status": None, "run": None},
            "e",
            applied=False,
        ),
        end(),
    ],
    "one story: status": [end(status="running")],
    "one story: memory": [end(HI, messages=[])],
    "one story: gap": [end(log=['{"seq": 2, "kind": "boot.seen", "boot_id": "b"}'], lines=1)],
    "one story: notes": [end(HI, assistant("", ("c", "jot", "n")), result("c", "note 1"), assistant("ok"))],
    "one story: runs": [
        *post("running", run_id="x"),
        end(log=[STARTED.replace('"r"', '"q"'), OVER_TOO], lines=2),
    ],
    "one story: runs, without an end": [
        end(log=['{"seq": 1, "kind": "run.started", "run_id": "x", "boot_id": "b"}'], lines=1)
    ],
}


def violations(events):
    given = () if events[0] is WITHOUT_NAMES else (GIVEN,)
    return {violation.kind for violation in INVARIANT.check(History((*given, *events)))}


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("name", ALLOWED)
def test_a_history_that_is_allowed(name):
    assert violations(ALLOWED[name]) == set()


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("kind", FORBIDDEN)
def test_a_history_that_is_not(kind):
    assert kind.partition(",")[0] in violations(FORBIDDEN[kind])


def test_every_rule_has_a_history_that_breaks_it():
    assert {kind.partition(":")[0] for kind in FORBIDDEN} == set(RULES)


def test_without_a_generated_workload_there_is_nothing_to_judge():
    with pytest.raises(NothingToJudge):
        list(INVARIANT.check(History((CRASH,))))
