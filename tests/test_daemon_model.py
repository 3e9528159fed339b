"""The specification of the daemon, in both directions."""

import pytest
from chaoskit_invariants.daemon_model import INVARIANT

from chaoskit.faults.disk import DiskError
from chaoskit.faults.kill import Kill
from chaoskit.model import (
    Ack,
    Crashed,
    Fail,
    History,
    Invoke,
    NothingToJudge,
    Ok,
    PersistPoint,
    Probe,
    Struck,
)

LIMITS = Probe(0, 0, "limits", {"mailbox": 2})
POINT = PersistPoint("write", 1)
CRASH = Crashed(0, 1, Kill(POINT, "after"))
STRUCK = Struck(0, DiskError(POINT, "EIO"))
DONE = {"outcome": "done"}


def refused(kind="Refused"):
    return {"outcome": "refused", "kind": kind, "why": "because"}


def requested(name, **args):
    return Invoke(0, 0, 1, name, args)


def operation(name, result, **args):
    return [requested(name, **args), Ok(0, 0, 1, result)]


def spawned(agent, parent=None, result=DONE, **more):
    return operation("spawn", result, agent=agent, parent=parent, **more)


def message(**changes):
    facts = {"id": "m", "by": "user", "to": "a", "asks": False, "doomed": False, "storable": True}
    facts |= {"content": "x", "digest": "x"} | changes
    return facts


def sent(result=None, **changes):
    facts = message(**changes)
    return operation("send", result or {**DONE, "id": facts["id"]}, **facts)


def settled():
    return operation("settle", DONE)


def filled(accepted):
    return operation("fill", {**DONE, "accepted": accepted}, agent="a", mailbox=2, named="0")


def agent(state="SUSPENDED", **turns):
    return {
        "state": state,
        "turns": [[name, said] for name, (_, said) in turns.items()],
        "contents": {name: content for name, (content, _) in turns.items()},
    }


def look(agents=None, parents=None, messages=None, name="end", **memory):
    agents = {"a": agent()} if agents is None else agents
    parents = dict.fromkeys(agents) if parents is None else parents
    messages = messages or {}
    found = {
        "agents": {each: record["state"] for each, record in agents.items()},
        "parents": parents,
        "children": {
            above: [e for e, p in parents.items() if p == above] for above in parents.values() if above
        },
        "undelivered": [each for each, known in messages.items() if known["outcome"] is None],
        "asking": {},
        "questions": {},
        **memory,
    }
    data = {"agents": agents, "parents": parents, "messages": messages, "memory": found}
    return [Probe(0, 0, name, data)]


def outcome(name, result):
    return {name: {"outcome": result}}


A = spawned("a")
GIVEN = outcome("m", "delivered")
READ = {"a": agent(m=("x", "yes"))}

RESTARTED = [*A, CRASH, Probe(1, 0, "found", {"active": ["a"], "prompts": ["boot_1.a"]})]

ALLOWED = {
    "a root is told": [
        *RESTARTED,
        *look(messages=outcome("boot_2.a", None), undelivered=["boot_2.a"], name="recovered"),
    ],
    "a spawn is repeated": [*A, *A, *look()],
    "another parent is refused": [*A, *spawned("b"), *spawned("a", "b", refused())],
    "a name is not allowed": spawned("../a", result=refused()),
    "a cancelled spawn may have happened": [*spawned("a", result={"outcome": "cancelled"}), *look()],
    "a cancelled spawn may not have happened": [*spawned("a", result={"outcome": "cancelled"}), *look({})],
    "an interrupted spawn may have happened": [requested("spawn", agent="a", parent=None), CRASH, *look()],
    "a message is handled": [*A, *sent(), *look(READ, messages=GIVEN)],
    "a message is repeated": [*A, *sent(), *sent(), *look(READ, messages=GIVEN)],
    "another message under its id is refused": [*A, *sent(), *sent(refused(), content="y", digest="y")],
    "an id like that of a reply is refused": [*A, *sent(refused(), id="m.reply")],
    "what cannot be stored is refused": [*A, *sent(refused(), storable=False)],
    "a doomed message is set aside": [*A, *sent(doomed=True), *look(messages=outcome("m", "poison"))],
    "five crashes excuse": [*A, *sent(), *[CRASH] * 5, *look(messages=outcome("m", "poison"))],
    "the process may have died": [
        *A,
        *sent(),
        *[Ack(0, 0, "died", {})] * 5,
        *look(messages=outcome("m", "poison")),
    ],
    "a mailbox is full": [*A, *sent(id="1"), *sent(id="2"), *sent(refused("MailboxFull"))],
    "a mailbox is filled": [*A, *settled(), *filled(2)],
    "an error of the disk": [*A, *sent({"outcome": "error", "why": "EIO"}), STRUCK],
    "any error when the disk fails": [requested("send", **message()), Fail(0, 0, 1, "KeyError"), STRUCK],
    "a stop stops": [*A, *operation("stop", DONE, agent="a"), *look({"a": agent("STOPPED")})],
    "a stopped agent refuses": [*A, *operation("stop", DONE, agent="a"), *sent(refused())],
}
FORBIDDEN = {
    "unprompted": [*RESTARTED, *look(messages=outcome("boot_1.a", "delivered"), name="recovered")],
    "lost": [*A, *look({})],
    "invented": look(),
    "accepted": [*A, *spawned("b"), *spawned("a", "b")],
    "refused": [*A, *spawned("a", result=refused())],
    "broken": [requested("send", **message()), Fail(0, 0, 1, "IntegrityError")],
    "stuck": [*A, *sent(), *look(messages=outcome("m", None))],
    "doubled": [
        *A,
        *sent(),
        *look({"a": {**agent(m=("x", "yes")), "turns": [["m", "yes"]] * 2}}, messages=GIVEN),
    ],
    "given up": [*A, *sent(), *look(messages=outcome("m", "poison"))],
    "unanswered": [*A, *sent(asks=True), *look(READ, messages=GIVEN)],
    "changed": [
        *A,
        *sent(asks=True),
        *operation("reply", {**DONE, "said": "no"}, id="m"),
        *look(READ, messages=GIVEN),
    ],
    "rewritten": [*A, *sent(), *look(READ, messages=GIVEN), *look(messages=GIVEN)],
    "leaked": [*A, *settled(), *filled(1)],
    "unbounded": [*A, *settled(), *filled(3)],
    "stopped": [*A, *look({"a": agent("STOPPED")})],
    "revived": [*A, *operation("stop", DONE, agent="a"), *look()],
    "contradiction": [*A, *look(undelivered=["m"])],
}
ALSO_FORBIDDEN = {
    "another message under a known id": ("accepted", [*A, *sent(), *sent(content="y", digest="y")]),
    "handled with another content": (
        "invented",
        [*A, *sent(), *look({"a": agent(m=("y", "yes"))}, messages=GIVEN)],
    ),
    "a repetition is refused": ("refused", [*A, *sent(), *sent(refused())]),
    "full without a reason": ("refused", [*A, *settled(), *sent(refused("MailboxFull"))]),
    "an error of a disk that is fine": ("broken", [*A, *sent({"outcome": "error", "why": "EIO"})]),
    "a place is reserved for nobody": ("leaked", [*A, *look(asking={"a": 1})]),
    "below a stopped agent": ("accepted", [*A, *operation("stop", DONE, agent="a"), *spawned("b", "a")]),
}


def kinds(events):
    return {each.kind for each in INVARIANT.check(History((LIMITS, *events)))}


@pytest.mark.parametrize("events", ALLOWED.values(), ids=ALLOWED)
def test_it_allows(events):
    assert kinds(events) == set()


@pytest.mark.parametrize(("kind", "events"), FORBIDDEN.items(), ids=FORBIDDEN)
def test_it_names(kind, events):
    assert kind in kinds(events)


@pytest.mark.parametrize(("kind", "events"), ALSO_FORBIDDEN.values(), ids=ALSO_FORBIDDEN)
def test_it_forbids(kind, events):
    assert kind in kinds(events)


def test_it_judges_daemons_only():
    with pytest.raises(NothingToJudge):
        list(INVARIANT.check(History((CRASH,))))
