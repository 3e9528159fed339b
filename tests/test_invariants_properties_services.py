"""The invariants of the services and of the daemon against their definitions, over generated histories.

What a sound service derives from its log is taken from the reference agent's own code, so that the
invariant's rules and the agent's are compared with each other.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from chaoskit.model import Ack, Invoke, Probe
from reference_agent.sessions.projector import derive
from reference_agent.sessions.snapshot import SessionSnapshot, fold_all
from reference_agent.sessions.token_index import fold_all_tokens
from tests.test_invariants_properties import Broken

patient = settings(max_examples=40, suppress_health_check=list(HealthCheck))
pytestmark = pytest.mark.requirement("C2")
TTL = 600
ENDINGS = ("complete", "fail", "wait", "resume", "time out", "supersede", "restart")
STATUSES = ("running", "waiting", "idle", "interrupted_startup", "interrupted_waiting")


def stamp(seconds):
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Service:
    """Runs that end in every way, with the lines that a sound service writes about them."""

    def __init__(self, data):
        self.data, self.now, self.boots = data, 0, 0
        self.lines, self.acks, self.statuses = [], [], []
        self.restart()
        for number in range(data.draw(st.integers(1, 4))):
            self.run(f"run{number}", data.draw(st.sampled_from(ENDINGS)))

    def line(self, kind, **fields):
        line = {"seq": len(self.lines) + 1, "ts": stamp(self.now), "kind": kind, **fields}
        self.lines.append(line)
        self.now += 1
        self.statuses.append((len(self.lines), f"boot{self.boots}", self.now))

    def restart(self):
        self.boots += 1
        self.line("boot.seen", boot_id=f"boot{self.boots}")

    def run(self, run, ending):
        token, about = f"rt-{run}", {"run_id": run}
        self.line("run.started", **about, boot_id=f"boot{self.boots}", request_id=run)
        if ending in ("complete", "fail"):
            self.line("run.completed" if ending == "complete" else "run.failed", **about)
            return
        limit = stamp(self.now + TTL)
        self.line("token.minted", token_id=token, expires_at=limit, wait_kind="approval", **about, hash="x")
        self.line("run.waiting", resume_token_id=token, deadline_at=limit, wait_kind="approval", **about)
        if ending == "resume":
            self.line("token.consumed", token_id=token, request_id=run, result="yes")
            self.line("run.resumed", **about)
            self.tell("resumed", token, run)
            self.tell("refused", token, "somebody else")
            self.line("run.completed", **about)
        elif ending != "wait":
            self.give_up(token, about, ending)

    def give_up(self, token, about, ending):
        if ending == "time out":
            self.now += TTL
        if ending == "restart":
            self.boots += 1
        reason = {"time out": "wait_timeout", "restart": "process_restart"}.get(ending, "superseded")
        self.line("token.revoked", token_id=token, reason=reason)
        kind = "run.cancelled" if ending == "supersede" else "run.interrupted"
        self.line(kind, **about, reason=reason)
        if ending == "restart":
            self.line("boot.seen", boot_id=f"boot{self.boots}")

    def tell(self, name, token, request):
        code = {"code": "consumed"} if name == "refused" else {"result": "yes"}
        self.acks.append(Ack(0, 0, name, {"token": token, "request": request, **code}))

    def snapshot(self, covered):
        found = msgspec.to_builtins(fold_all(SessionSnapshot("s"), self.lines[:covered]))
        return json.dumps(found)

    def status(self, lines, boot, now):
        known = self.lines[:lines]
        return derive(fold_all(SessionSnapshot("s"), known), fold_all_tokens({}, known), boot, now)

    def history(self):
        events = [*self.acks]
        for lines, boot, now in self.statuses:
            data = {"status": self.status(lines, boot, now), "boot": boot, "now": now, "lines": lines}
            events.append(Probe(0, 0, "status", data))
        covered = self.data.draw(st.integers(0, len(self.lines)))
        found = self.data.draw(st.integers(covered, len(self.lines)))
        events.append(Probe(1, 0, "found", {"snapshot": self.snapshot(covered), "lines": found}))
        log = [json.dumps(line) + "\n" for line in self.lines]
        events.append(Probe(1, 0, "end", {"log": log, "files": ["hash"], "never": "secret_"}))
        return Broken(events, (), self.data)


@patient
@given(data=st.data())
def test_a_sound_service_is_accused_of_nothing(data):
    history = Service(data).history()
    for name in ("status", "tokens", "snapshot"):
        assert not history.found(name), name


@patient
@given(data=st.data())
def test_no_other_status_goes_unseen(data):
    history = Service(data).history()
    probe = history.pick(history.of(Probe, "status"))
    history.change(probe, status=history.pick(s for s in STATUSES if s != probe.data["status"]))
    assert history.found("status")


@patient
@given(data=st.data())
def test_no_damaged_snapshot_goes_unseen(data):
    history = Service(data).history()
    (probe,) = history.of(Probe, "found")
    text = probe.data["snapshot"]
    snapshot = json.loads(text)
    assume(snapshot["last_seq"])
    other = history.pick(
        [
            {"snapshot": text[: history.pick(range(len(text)))]},
            {"lines": snapshot["last_seq"] - 1},
            {"snapshot": json.dumps({**snapshot, "run": {"run_id": "another"}})},
            {"snapshot": "[]"},
        ]
    )
    history.change(probe, **other)
    assert history.found("snapshot")


def used_late(events, at):
    return [*events[:at], {**events[at], "ts": stamp(10 * TTL)}, *events[at + 1 :]]


def never_minted(events, at):
    return [e for e in events if (e["kind"], e.get("token_id")) != ("token.minted", events[at]["token_id"])]


def used_twice(events, at):
    return [*events, events[at]]


def used_by_another(events, at):
    return [*events[:at], {**events[at], "request_id": "another"}, *events[at + 1 :]]


def used_for_another_result(events, at):
    return [*events[:at], {**events[at], "result": "no"}, *events[at + 1 :]]


def not_recorded(events, at):
    return [*events[:at], *events[at + 1 :]]


def never_resumed(events, at):
    run = events[at]["request_id"]
    return [e for n, e in enumerate(events) if n <= at or e.get("run_id") != run]


@pytest.mark.parametrize(
    "change",
    [
        used_late,
        never_minted,
        used_twice,
        used_by_another,
        used_for_another_result,
        not_recorded,
        never_resumed,
    ],
)
def test_no_misuse_of_a_token_goes_unseen(change):
    @patient
    @given(data=st.data())
    def property_(data):
        history = Service(data).history()
        events = [json.loads(line) for line in history.end().data["log"]]
        at = history.pick(n for n, event in enumerate(events) if event["kind"] == "token.consumed")
        history.change(history.end(), log=[json.dumps(e) + "\n" for e in change(events, at)])
        assert history.found("tokens")

    property_()


# --- the daemon


class Daemon:
    """Agents that are spawned, stopped and sent messages; half of it before a crash."""

    def __init__(self, data):
        self.data = data
        self.events, self.agents, self.parents, self.messages = [], {}, {}, {}
        self.open = []
        self.do(data.draw(st.integers(1, 6)))
        self.look(1, "recovered", lambda state: "SUSPENDED" if state == "ACTIVE" else state)
        self.do(data.draw(st.integers(0, 6)))
        self.settle(len(self.open))
        self.look(1, "end", lambda state: state)

    def history(self):
        return Broken(self.events, (), self.data)

    def do(self, operations):
        for _ in range(operations):
            what = self.data.draw(st.sampled_from(["spawn", "send", "send", "stop"]))
            if what == "spawn" or not self.agents:
                self.spawn(f"a{len(self.agents)}")
            elif what == "send":
                self.send(f"m{len(self.messages)}", self.data.draw(st.sampled_from(sorted(self.agents))))
            else:
                self.stop(self.data.draw(st.sampled_from(sorted(self.agents))))
        self.settle(self.data.draw(st.integers(0, len(self.open))))

    def spawn(self, agent):
        living = [name for name, (state, _) in self.agents.items() if state != "STOPPED"]
        parent = self.data.draw(st.sampled_from([None, *living]))
        self.agents[agent], self.parents[agent] = ("SUSPENDED", []), parent
        self.events.append(Ack(0, 0, "spawned", {"agent": agent, "parent": parent}))

    def send(self, message, agent):
        self.messages[message] = None
        self.open.append((message, agent))
        data = {"id": message, "to": agent, "from": "user", "asks": False, "poison": False}
        self.events.append(Ack(0, 0, "sent", data))

    def stop(self, agent):
        self.events.append(Invoke(0, 0, 1, "stop", {"agent": agent}))
        below = [agent]
        for each in below:
            below += [child for child, parent in self.parents.items() if parent == each]
            self.agents[each] = ("STOPPED", self.agents[each][1])
        self.events.append(Ack(0, 0, "stopped", {"agent": agent}))

    def settle(self, count):
        for message, agent in self.open[:count]:
            state, turns = self.agents[agent]
            self.messages[message] = "stopped" if state == "STOPPED" else "delivered"
            if state != "STOPPED":
                turns.append([message, "yes"])
        del self.open[:count]

    def look(self, life, name, as_found):
        agents = {a: {"state": as_found(s), "turns": list(turns)} for a, (s, turns) in self.agents.items()}
        messages = {message: {"outcome": outcome} for message, outcome in self.messages.items()}
        data = {"agents": agents, "parents": dict(self.parents), "messages": messages, "damage": []}
        self.events.append(Probe(life, 0, name, data))


@patient
@given(data=st.data())
def test_a_sound_daemon_is_accused_of_nothing(data):
    history = Daemon(data).history()
    for name in ("tree", "delivery", "no-active"):
        assert not history.found(name), name


def edited(history, probe, agent, **changes):
    agents = probe.data["agents"]
    history.change(probe, agents={**agents, agent: {**agents[agent], **changes}})


def look_and_agent(history, **wanted):
    return history.pick(
        (probe, agent)
        for probe in history.of(Probe)
        for agent, record in probe.data["agents"].items()
        if all(record[field] in values for field, values in wanted.items())
    )


def loses_an_agent(h):
    probe, agent = look_and_agent(h)
    agents, parents = dict(probe.data["agents"]), dict(probe.data["parents"])
    del agents[agent], parents[agent]
    h.change(probe, agents=agents, parents=parents)


def moves_an_agent(h):
    probe, agent = look_and_agent(h)
    others = [a for a in (None, *probe.data["agents"]) if a not in (agent, probe.data["parents"][agent])]
    h.change(probe, parents={**probe.data["parents"], agent: h.pick(others)})


def revives_an_agent(h):
    probe, agent = look_and_agent(h, state=["STOPPED"])
    edited(h, probe, agent, state="SUSPENDED")


def stops_an_agent(h):
    probe, agent = look_and_agent(h, state=["SUSPENDED"])
    edited(h, probe, agent, state="STOPPED")


def loses_a_message(h):
    probe = h.pick(p for p in h.of(Probe) if p.data["messages"])
    gone = h.pick(probe.data["messages"])
    h.change(probe, messages={m: o for m, o in probe.data["messages"].items() if m != gone})


def handles_a_message_twice(h):
    probe, agent = h.pick((p, a) for p in h.of(Probe) for a, r in p.data["agents"].items() if r["turns"])
    turns = probe.data["agents"][agent]["turns"]
    edited(h, probe, agent, turns=[*turns, h.pick(turns)])


def forgets_a_turn(h):
    probe, agent = h.pick((p, a) for p in h.of(Probe) for a, r in p.data["agents"].items() if r["turns"])
    edited(h, probe, agent, turns=probe.data["agents"][agent]["turns"][:-1])


def leaves_a_message(h):
    message = h.pick(h.end().data["messages"])
    h.change(h.end(), messages={**h.end().data["messages"], message: {"outcome": None}})


def gives_up_a_message(h):
    found = h.end().data["messages"]
    message = h.pick(m for m, known in found.items() if known["outcome"] == "delivered")
    h.change(h.end(), messages={**found, message: {"outcome": "stopped"}})


def leaves_an_agent_active(h):
    probe = next(p for p in h.of(Probe, "recovered"))
    edited(h, probe, h.pick(probe.data["agents"]), state=h.pick(["ACTIVE", "LOST"]))


def damages_a_record(h):
    probe = h.pick(h.of(Probe))
    h.change(probe, damage=["the blob cannot be read"])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("tree", loses_an_agent),
        ("tree", moves_an_agent),
        ("tree", revives_an_agent),
        ("tree", stops_an_agent),
        ("delivery", loses_a_message),
        ("delivery", handles_a_message_twice),
        ("delivery", forgets_a_turn),
        ("delivery", leaves_a_message),
        ("delivery", gives_up_a_message),
        ("no-active", leaves_an_agent_active),
        ("no-active", damages_a_record),
    ],
)
def test_no_fault_of_the_daemon_goes_unseen(name, change):
    @patient
    @given(data=st.data())
    def property_(data):
        history = Daemon(data).history()
        change(history)
        assert history.found(name)

    property_()
