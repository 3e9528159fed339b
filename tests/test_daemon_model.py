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

CANCELLED = {"outcome": "cancelled"}
STOPPED = operation("stop", DONE, agent="a")
UNRULY = spawned("a", model="m")
BELOW = spawned("b", "a")
ASKED = [*A, *sent(asks=True)]
ANSWERED = outcome("m", "delivered") | outcome("m.reply", "delivered")


def replied(said="yes", result=None):
    return operation("reply", result or {**DONE, "said": said}, id="m")


def suspended(result, agent="a"):
    return operation("suspend", result, agent=agent)


def dead(times):
    return [Ack(0, 0, "died", {})] * times


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
    "a restart may have sent a prompt": [*A, *sent(id="1"), CRASH, *sent(refused("MailboxFull"), id="2")],
    "nothing is quiet after a crash": [*A, *settled(), CRASH, *filled(1)],
    "nothing is quiet after a message": [*A, *settled(), *sent(), *filled(1)],
    "an unknown mailbox takes nothing": [*settled(), *filled(0)],
    "a stopped mailbox takes nothing": [*A, *STOPPED, *settled(), *filled(0)],
    "what a mailbox was filled with": [
        *(*A, *settled(), *filled(2)),
        *look({"a": agent(**{"fill-0-a-0": ("hold", "yes")})}, messages=outcome("fill-0-a-0", "delivered")),
    ],
    "a failing disk may set messages aside": [*A, *sent(), STRUCK, *look(messages=outcome("m", "poison"))],
    "a full mailbox refuses a repeat, if the disk fails": [
        STRUCK,
        *(*A, *sent(id="1"), *sent(id="2"), *sent(refused("MailboxFull"), id="1")),
    ],
    "a question takes two places of its sender": [
        *(*A, *spawned("b"), *sent(by="b", id="1", asks=True)),
        *sent(refused("MailboxFull"), by="b", id="2", asks=True),
    ],
    "who is outside fetches replies when it likes": [
        *(*A, *sent(id="1", asks=True), *settled()),
        *sent(refused("MailboxFull"), id="2", asks=True),
    ],
    "a model that does not exist": spawned("a", result=refused("AgentFailed"), model="m"),
    "a parent that fails": [*UNRULY, *spawned("b", "a", refused("AgentFailed"))],
    "an agent that fails cannot be resumed": [
        *UNRULY,
        *operation("resume", refused("AgentFailed"), agent="a"),
    ],
    "an agent that fails may lose a message": [*UNRULY, *sent(), *look(messages=outcome("m", "failed"))],
    "a spawn below an agent": [*A, *BELOW, *look({"a": agent(), "b": agent()}, {"a": None, "b": "a"})],
    "a spawn below nobody is refused": spawned("b", "x", refused()),
    "a name that another parent may have": [
        *(*A, *spawned("c", result=CANCELLED)),
        *spawned("c", "a", refused()),
    ],
    "a spawn that was cancelled, repeated below a stopped agent": [
        *(*A, *spawned("b", "a", CANCELLED), *STOPPED, *BELOW)
    ],
    "a cancelled message may have been sent": [*A, *sent(CANCELLED), *look(READ, messages=GIVEN)],
    "an interrupted message may have been sent": [
        *(*A, requested("send", **message()), CRASH, *look(READ, messages=GIVEN))
    ],
    "a cancelled message, repeated to a stopped agent": [*A, *sent(CANCELLED), *STOPPED, *sent()],
    "a message without an id gets one": [
        *(*A, *sent({**DONE, "id": "n"}, id="")),
        *look({"a": agent(n=("x", "yes"))}, messages=outcome("n", "delivered")),
    ],
    "a sender that is stopped": [*A, *spawned("b"), *STOPPED, *sent(refused(), by="a", to="b")],
    "nobody can be suspended": suspended(refused(), "x"),
    "nobody can be stopped": operation("stop", refused(), agent="x"),
    "a stopped agent cannot be suspended": [*A, *STOPPED, *suspended(refused())],
    "nobody asked": [*A, *sent(), *replied(result=refused())],
    "nobody asked that": replied(result=refused()),
    "a reply that never comes": [*A, *sent(asks=True, doomed=True), *replied(result=refused("NotAnswered"))],
    "a reply to who is stopped": [
        *(*A, *spawned("b"), *sent(by="a", to="b", asks=True), *STOPPED),
        *replied(result=refused("NotAnswered")),
    ],
    "a reply": [*ASKED, *replied(), *replied(), *look(READ, messages=ANSWERED)],
    "a reply that waits": [
        *ASKED,
        *look(READ, messages=GIVEN | outcome("m.reply", None), undelivered=["m.reply"]),
    ],
    "a reply that is handled": [
        *(*A, *spawned("b"), *sent(by="b", asks=True)),
        *look({**READ, "b": agent(**{"m.reply": ("yes", "ok")})}, messages=ANSWERED),
    ],
    "a message of the daemon that is handled": [
        *(*A, *look({"a": agent(**{"boot_2.a": ("hi", "ok")})}, messages=outcome("boot_2.a", "delivered")))
    ],
    "a message to a stopped agent": [
        *(*A, *sent(), *STOPPED, *look({"a": agent("STOPPED")}, messages=outcome("m", "stopped")))
    ],
    "all below a stopped agent are stopped": [
        *(*A, *BELOW, *STOPPED),
        *look({"a": agent("STOPPED"), "b": agent("STOPPED")}, {"a": None, "b": "a"}),
    ],
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
    "four crashes excuse nothing": (
        "given up",
        [*A, *sent(), *dead(4), *look(messages=outcome("m", "poison"))],
    ),
    "a place is left": ("refused", [*A, *settled(), *sent(id="1"), *sent(refused("MailboxFull"), id="2")]),
    "a place is left, all prompts are delivered": (
        "refused",
        [*A, CRASH, *settled(), *sent(id="1"), *sent(refused("MailboxFull"), id="2")],
    ),
    "all places are free again": (
        "refused",
        [*A, *sent(id="1"), *sent(id="2"), *settled(), *sent(refused("MailboxFull"), id="3")],
    ),
    "a full mailbox refuses a repeat": (
        "refused",
        [*A, *sent(id="1"), *sent(id="2"), *sent(refused("MailboxFull"), id="1")],
    ),
    "a place for the reply is left": (
        "refused",
        [*A, *spawned("b"), *sent(refused("MailboxFull"), by="b", asks=True)],
    ),
    "handled, and set aside": (
        "given up",
        [
            *A,
            *sent(),
            *STOPPED,
            *look({"a": agent("STOPPED", m=("x", "yes"))}, messages=outcome("m", "stopped")),
        ],
    ),
    "a turn of who sleeps": ("asleep", [*A, Probe(0, 0, "idle-turn", {"agent": "a", "state": "SUSPENDED"})]),
    "a name that is not allowed": ("accepted", spawned("../a")),
    "a name that is reserved": ("accepted", spawned("daemon")),
    "a new name is refused": ("refused", spawned("a", result=refused())),
    "a name that is given again is refused": (
        "refused",
        [requested("spawn", agent="a", parent=None), CRASH, *spawned("a", result=refused())],
    ),
    "a new name is refused below a parent": ("refused", [*A, *spawned("b", "a", refused())]),
    "an agent that works is said to fail": ("refused", [*A, *spawned("b", "a", refused("AgentFailed"))]),
    "an agent that works cannot be resumed": (
        "refused",
        [*A, *operation("resume", refused("AgentFailed"), agent="a")],
    ),
    "an agent that fails is refused for another reason": (
        "refused",
        [*UNRULY, *operation("resume", refused(), agent="a")],
    ),
    "a new message is refused": ("refused", [*A, *sent(refused())]),
    "a message to a stopped agent is accepted": ("accepted", [*A, *STOPPED, *sent()]),
    "a message under another id": ("accepted", [*A, *sent({**DONE, "id": "other"})]),
    "a reply that nobody wanted": ("accepted", [*A, *sent(), *replied()]),
    "a reply is refused": ("refused", [*ASKED, *replied(result=refused())]),
    "a reply that never comes without a reason": (
        "refused",
        [*ASKED, *replied(result=refused("NotAnswered"))],
    ),
    "a reply that changes": ("changed", [*ASKED, *replied(), *replied("no")]),
    "a stopped agent is suspended": ("accepted", [*A, *STOPPED, *suspended(DONE)]),
    "an agent cannot be suspended": ("refused", [*A, *suspended(refused())]),
    "an agent cannot be stopped": ("refused", [*A, *operation("stop", refused(), agent="a")]),
    "two levels below a stopped agent": (
        "revived",
        [
            *(*A, *BELOW, *spawned("c", "b"), *STOPPED),
            *look(
                {"a": agent("STOPPED"), "b": agent("STOPPED"), "c": agent()}, {"a": None, "b": "a", "c": "b"}
            ),
        ],
    ),
    "above a stopped agent": (
        "stopped",
        [
            *(*A, *BELOW, *operation("stop", DONE, agent="b")),
            *look({"a": agent("STOPPED"), "b": agent("STOPPED")}, {"a": None, "b": "a"}),
        ],
    ),
    "under another parent": ("lost", [*A, *BELOW, *look({"a": agent(), "b": agent()})]),
    "a prompt for another root": (
        "unprompted",
        [*RESTARTED, *look(messages=outcome("boot_2.b", None), undelivered=["boot_2.b"], name="recovered")],
    ),
    "a message that is no prompt": (
        "unprompted",
        [*A, *sent(id="m.a"), *RESTARTED[2:], *look(messages=outcome("m.a", None), undelivered=["m.a"])],
    ),
    "a reply handled by who did not ask": (
        "invented",
        [*ASKED, *look({"a": agent(m=("x", "yes"), **{"m.reply": ("yes", "ok")})}, messages=ANSWERED)],
    ),
    "a reply that nobody asked for": ("invented", [*A, *sent(), *look(READ, messages=ANSWERED)]),
    "handled by another": (
        "invented",
        [*A, *spawned("b"), *sent(), *look({"a": agent(), "b": agent(m=("x", "yes"))}, messages=GIVEN)],
    ),
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
