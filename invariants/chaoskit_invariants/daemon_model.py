"""daemon-model: what clients of a daemon may observe, after any history of operations and crashes.

This module is the specification of the daemon, in executable form. It knows agents, messages and operations,
and nothing of files, SQL or recovery. It follows the history and keeps two kinds of knowledge: what *must* be
so, because an operation was reported as done, and what *may* be so, because one was requested. Crashes,
cancellations and disk errors leave an operation that may have happened.

    spawn     an agent exists from then on, with one parent, which was not stopped. The same spawn is done
              again; another parent is refused.
    stop      the agent and all below it are stopped for ever. Nobody else is.
    send      a message has one sender, receiver and content. The same send again is done, another one under
              its id is refused. What was sent is handled exactly once, with that content, by its receiver; or
              it is set aside: the receiver is stopped, or it fails on this message, or five crashes hit it.
    reply     a question has one answer: what its receiver said in the turn that handled it. If it was set
              aside, the asker gets the reason instead.
    suspend, resume     change what is ACTIVE. An agent is ACTIVE only below ACTIVE agents, and takes turns
              only while it is.
    settle    afterwards nothing is undelivered.
    restart   a root that was ACTIVE at a crash gets a message of the daemon that says so, once recovered.
    fill      an agent with an empty mailbox accepts as many messages as a mailbox holds, and no more.

An operation is done, or it is refused, for a reason that may be true. Any other exception is `broken`, unless
the disk has failed in this life. What the daemon says about its state (`memory`) is what is on disk.

Verifies each outcome and the probes `recovered` and `end`. Cannot see what no operation and no probe shows,
such as the order in which messages are handled.

Smallest history that breaks it: invoke send m, fail IntegrityError.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from chaoskit.model import (
    Ack,
    Crashed,
    Fail,
    History,
    Invariant,
    Invoke,
    Json,
    NothingToJudge,
    Ok,
    Probe,
    Struck,
    Violation,
)

OUTSIDE = "user"
RESERVED = (OUTSIDE, "daemon")
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
REPLY = ".reply"
PROMPT = "boot_"  # the ids of the messages with which the daemon itself wakes a root
TRIES = 5  # crashes after which a message may be set aside, whoever caused them


class Message(NamedTuple):
    sender: str
    receiver: str
    digest: str
    asks: bool
    doomed: bool  # its receiver may fail on it, however often it tries


class Expected(NamedTuple):
    """What must come of an operation, as known when it is requested; None: either."""

    done: bool | None = None
    why: str = ""


def check(history: History) -> Iterator[Violation]:
    if not any(history.of(Probe, "limits")):
        raise NothingToJudge
    struck = {each.life for each in history.of(Struck)}
    model = Model()
    requested: dict[tuple[int, int], tuple[Invoke, Expected]] = {}
    for event in history.events:
        match event:
            case Probe(name="limits"):
                model.mailbox = event.data["mailbox"]
            case Invoke():
                requested[event.life, event.op] = event, model.expect(event)
            case Ok():
                invoke, expected = requested.pop((event.life, event.op))
                yield from model.outcome(invoke, expected, event.result, is_struck=event.life in struck)
            case Fail():
                invoke, _ = requested.pop((event.life, event.op))
                if event.life not in struck:
                    yield Violation(
                        "broken", f"{_said(invoke)} ended with an undocumented error: {event.error}"
                    )
            case Crashed() | Ack(name="died"):
                model.crashes += 1
                model.restarts += 1
                model.is_quiet = False
            case Struck():
                model.crashes += TRIES  # each attempt that the disk refuses counts
            case Probe(name="idle-turn"):
                agent, state = event.data["agent"], event.data["state"]
                yield Violation("asleep", f"{agent} takes a turn, but is {state}")
            case Probe(name="found"):
                model.finds(event.data)
            case Probe() if "memory" in event.data:
                yield from model.looks(event.name, event.data)


class Model:
    def __init__(self) -> None:
        self.mailbox = 0
        self.crashes = 0
        self.restarts = 0  # since everything was delivered
        self.is_quiet = False  # nothing has been requested since everything was delivered
        self.parents: dict[str, str | None] = {}  # of agents that exist
        self.may_be_under: defaultdict[str, set[str | None]] = defaultdict(set)
        self.unruly: set[str] = set()  # agents that may fail to be created or restored
        self.stopped: set[str] = set()
        self.may_stop: set[str] = set()
        self.sent: dict[str, Message] = {}  # accepted
        self.may_be_sent: defaultdict[str, set[Message]] = defaultdict(set)
        self.said: dict[str, str] = {}
        self.load: Counter[str] = Counter()  # per agent: places of its mailbox that may be taken
        self.seen: dict[str, list[Json]] = {}  # turns, when last looked at
        self.to_prompt: dict[str, set[str]] = {}  # roots that a crash interrupted, and the prompts before it

    # --- an operation is requested

    def expect(self, invoke: Invoke) -> Expected:
        found: Expected = getattr(self, f"_expect_{invoke.name}")(invoke.args)
        if invoke.name not in ("fill", "settle", "reply"):
            self.is_quiet = False
        return found

    def _expect_spawn(self, asked: Json) -> Expected:
        agent, parent = asked["agent"], asked["parent"]
        known = agent in self.may_be_under
        if asked.get("model"):
            self.unruly.add(agent)
        if not NAME.fullmatch(agent) or agent in RESERVED:
            return Expected(done=False, why="its name is not allowed")
        self.may_be_under[agent].add(parent)
        if agent in self.parents:
            return Expected(done=self.parents[agent] == parent, why=f"it is under {self.parents[agent]}")
        if parent is not None and not known and self._is_stopped(parent):
            return Expected(done=False, why=f"{parent} is stopped")
        return Expected()

    def _expect_send(self, asked: Json) -> Expected:
        name, message = asked["id"], _message(asked)
        known = bool(self.may_be_sent[name])
        self.load[message.receiver] += 1
        self.load[message.sender] += 2 * message.asks  # the place of the reply, and for a moment the reply
        if name:
            self.may_be_sent[name].add(message)
        if name in self.sent:
            is_same = self.sent[name] == message
            return Expected(done=is_same, why="another message has this id")
        if not known and self._is_stopped(message.receiver):
            return Expected(done=False, why=f"{message.receiver} is stopped")
        return Expected()

    _expect_ask = _expect_send

    def _expect_reply(self, asked: Json) -> Expected:
        if not self._may_ask(asked["id"]):
            return Expected(done=False, why="nobody asked")
        return Expected()

    def _expect_suspend(self, asked: Json) -> Expected:
        return Expected(done=False, why="it is stopped") if self._is_stopped(asked["agent"]) else Expected()

    _expect_resume = _expect_suspend

    def _expect_stop(self, asked: Json) -> Expected:
        self.may_stop.add(asked["agent"])
        return Expected(done=True) if asked["agent"] in self.parents else Expected()

    def _expect_settle(self, _asked: Json) -> Expected:
        return Expected()

    def _expect_fill(self, asked: Json) -> Expected:
        for number in range(self.mailbox + 1):
            name = f"fill-{asked['named']}-{asked['agent']}-{number}"
            self.may_be_sent[name].add(Message(OUTSIDE, asked["agent"], "hold", asks=False, doomed=False))
        return Expected()

    # --- its outcome

    def outcome(
        self, invoke: Invoke, expected: Expected, found: Json, *, is_struck: bool
    ) -> Iterator[Violation]:
        asked, what = invoke.args, _said(invoke)
        match found["outcome"]:
            case "done":
                if expected.done is False:
                    yield Violation("accepted", f"{what} was done, although {expected.why}")
                yield from getattr(self, f"_done_{invoke.name}")(asked, found)
            case "refused":
                # With a failing disk a message may be accepted and a mailbox stay full: nothing is delivered.
                is_due = expected.done and found["kind"] != "NotAnswered" and not is_struck
                if is_due or not self._may_refuse(invoke.name, asked, found["kind"]):
                    yield Violation("refused", f"{what} was refused without a reason: {found['why']}")
            case "error":
                if not is_struck:
                    yield Violation("broken", f"{what} ended with an error of the disk: {found['why']}")

    def _done_spawn(self, asked: Json, _found: Json) -> Iterator[Violation]:
        self.parents.setdefault(asked["agent"], asked["parent"])
        yield from ()

    def _done_send(self, asked: Json, found: Json) -> Iterator[Violation]:
        if asked["id"] and found["id"] != asked["id"]:
            yield Violation("accepted", f"{asked['id']} was accepted as {found['id']}")
        self.may_be_sent[found["id"]].add(_message(asked))
        self.sent.setdefault(found["id"], _message(asked))

    def _done_ask(self, asked: Json, found: Json) -> Iterator[Violation]:
        if asked["id"]:
            yield from self._done_send(asked, found)
            yield from self._done_reply(asked, found)

    def _done_reply(self, asked: Json, found: Json) -> Iterator[Violation]:
        if self.said.setdefault(asked["id"], found["said"]) != found["said"]:
            yield Violation("changed", f"the reply to {asked['id']} changed")

    def _done_suspend(self, _asked: Json, _found: Json) -> Iterator[Violation]:
        yield from ()

    _done_resume = _done_suspend

    def _done_stop(self, asked: Json, _found: Json) -> Iterator[Violation]:
        self.stopped.add(asked["agent"])
        yield from ()

    def _done_settle(self, _asked: Json, _found: Json) -> Iterator[Violation]:
        self.is_quiet, self.restarts = True, 0
        outside = self.load[OUTSIDE]  # it fetches its replies when it likes
        self.load = Counter({OUTSIDE: outside})
        yield from ()

    def _done_fill(self, asked: Json, found: Json) -> Iterator[Violation]:
        agent, accepted = asked["agent"], found["accepted"]
        if not self.is_quiet or agent not in self.parents:
            return
        if accepted < self.mailbox and not self._may_be_stopped(agent):
            yield Violation(
                "leaked", f"the empty mailbox of {agent} takes {accepted} of {self.mailbox} messages"
            )
        elif accepted > self.mailbox:
            yield Violation("unbounded", f"the mailbox of {agent} takes more than {self.mailbox} messages")

    # --- reasons to refuse

    def _may_refuse(self, operation: str, asked: Json, kind: str) -> bool:
        match operation:
            case "spawn":
                return self._may_refuse_spawn(asked, kind)
            case "send" | "ask" if kind != "NotAnswered":
                return self._may_refuse_message(asked, kind)
            case "ask" | "reply":
                return self._may_stay_unanswered(asked["id"], kind)
            case "stop":
                return asked["agent"] not in self.parents
        return not self._must_run(asked["agent"]) or (
            kind == "AgentFailed" and self._may_fail(asked["agent"])
        )

    def _may_refuse_spawn(self, asked: Json, kind: str) -> bool:
        agent, parent = asked["agent"], asked["parent"]
        if kind == "AgentFailed":
            return self._may_fail(agent) or (parent is not None and self._may_fail(parent))
        if not NAME.fullmatch(agent) or agent in RESERVED:
            return True
        may_be_taken = agent in self.unruly or bool(self.may_be_under[agent] - {parent})
        return may_be_taken or (parent is not None and not self._must_run(parent))

    def _may_refuse_message(self, asked: Json, kind: str) -> bool:
        message = _message(asked)
        if kind == "MailboxFull":
            # Each restart may have sent a prompt.
            return any(self.load[each] + self.restarts > self.mailbox for each in _crowded(message))
        others = self.may_be_sent[asked["id"]] - {message}
        is_taken = bool(others) or asked["id"].endswith(REPLY) or not asked["storable"]
        senders = [] if message.sender == OUTSIDE else [message.sender]
        return is_taken or not all(map(self._must_run, [message.receiver, *senders]))

    def _may_stay_unanswered(self, name: str, kind: str) -> bool:
        if kind != "NotAnswered":
            return name not in self.sent or not self.sent[name].asks
        return any(
            self._may_be_set_aside(each) or (each.sender != OUTSIDE and not self._must_run(each.sender))
            for each in self.may_be_sent[name]
        )

    def _may_be_set_aside(self, message: Message) -> bool:
        receiver = message.receiver
        return (
            message.doomed
            or self.crashes >= TRIES
            or self._may_be_stopped(receiver)
            or self._may_fail(receiver)
        )

    def _may_ask(self, name: str) -> bool:
        return any(each.asks for each in self.may_be_sent[name])

    def _line(self, agent: str) -> set[str]:
        """The agent and all that may be above it."""
        line, left = set(), [agent]
        while left:
            each = left.pop()
            if each not in line:
                line.add(each)
                left += [above for above in self.may_be_under.get(each, ()) if above is not None]
        return line

    def _is_stopped(self, agent: str) -> bool:
        above: str | None = agent
        seen = set()
        while above is not None and above not in seen:
            if above in self.stopped:
                return True
            seen.add(above)
            above = self.parents.get(above)
        return False

    def _may_be_stopped(self, agent: str) -> bool:
        return bool(self._line(agent) & self.may_stop)

    def _must_run(self, agent: str) -> bool:
        return agent in self.parents and not self._may_be_stopped(agent)

    def _may_fail(self, agent: str) -> bool:
        return bool(self._line(agent) & self.unruly)

    # --- what is there

    def finds(self, before: Json) -> None:
        """What a recovery begins with; it may be interrupted, and begin again."""
        for root in before["active"]:
            self.to_prompt.setdefault(root, set(before["prompts"]))

    def _prompts(self, found: Json) -> Iterator[Violation]:
        for root, earlier in self.to_prompt.items():
            mine = {n for n in found["messages"] if n.startswith(PROMPT) and n.endswith(f".{root}")}
            if not mine - earlier:
                yield Violation(
                    "unprompted", f"{root} was ACTIVE at a crash, and is not told that it was restarted"
                )
        self.to_prompt.clear()

    def looks(self, name: str, found: Json) -> Iterator[Violation]:
        yield from self._prompts(found)
        yield from self._tree(found)
        yield from self._turns(found)
        yield from self._messages(found, is_end=name == "end")
        yield from _agrees(found)

    def _tree(self, found: Json) -> Iterator[Violation]:
        agents, parents = found["agents"], found["parents"]
        for agent, parent in self.parents.items():
            if agent not in agents or parents.get(agent, "nowhere") != parent:
                yield Violation("lost", f"{agent} was spawned under {parent}, which is not what is there")
        for agent, record in agents.items():
            if agent not in parents or parents[agent] not in self.may_be_under.get(agent, ()):
                yield Violation("invented", f"{agent} is there, but nobody spawned it there")
            is_stopped = record["state"] == "STOPPED"
            if is_stopped and not self._may_be_stopped(agent):
                yield Violation("stopped", f"{agent} is stopped, but nobody stopped it")
            if not is_stopped and self._is_stopped(agent):
                yield Violation("revived", f"{agent} was stopped, but is {record['state']}")

    def _turns(self, found: Json) -> Iterator[Violation]:
        """Each message is handled once, by its receiver, and says what was sent."""
        for agent, record in found["agents"].items():
            handled = [name for name, _ in record["turns"]]
            for name in handled:
                if handled.count(name) > 1:
                    yield Violation("doubled", f"{agent} handled {name} {handled.count(name)} times")
                if not self._may_handle(agent, name, record["contents"][name]):
                    yield Violation("invented", f"{agent} handled {name}, which nobody sent to it like that")
            before = self.seen.get(agent, [])
            if record["turns"][: len(before)] != before:
                yield Violation("rewritten", f"the history of {agent} lost or changed a turn")
            self.seen[agent] = record["turns"]

    def _may_handle(self, agent: str, name: str, digest: str) -> bool:
        if name.startswith((PROMPT, "message_")):
            return True
        if name.endswith(REPLY) and any(
            each.asks and each.sender == agent for each in self.may_be_sent[name.removesuffix(REPLY)]
        ):
            return True
        meant = {self.sent[name]} if name in self.sent else self.may_be_sent[name]
        return any((each.receiver, each.digest) == (agent, digest) for each in meant)

    def _messages(self, found: Json, *, is_end: bool) -> Iterator[Violation]:
        known = found["messages"]
        for name in known:
            question = name.removesuffix(REPLY)
            is_reply = name != question and self._may_ask(question)
            if not (self.may_be_sent[name] or is_reply or name.startswith((PROMPT, "message_"))):
                yield Violation("invented", f"{name} is in the log, but nobody sent it")
            if is_end and known[name]["outcome"] is None and not is_reply:
                yield Violation("stuck", f"{name} is still undelivered at the end")
        for name, message in self.sent.items():
            yield from self._message(name, message, found)
        for name, said in self.said.items():
            yield from self._answered(name, said, found)

    def _message(self, name: str, message: Message, found: Json) -> Iterator[Violation]:
        known = found["messages"].get(name)
        turns = dict(found["agents"].get(message.receiver, {"turns": []})["turns"])
        if known is None:
            yield Violation("lost", f"{name} was accepted, but is not in the log")
        elif known["outcome"] == "delivered" and name not in turns:
            yield Violation("lost", f"{name} is marked as delivered, but {message.receiver} never handled it")
        elif known["outcome"] not in (None, "delivered") and name in turns:
            yield Violation(
                "given up", f"{message.receiver} handled {name}, which was set aside ({known['outcome']})"
            )
        elif known["outcome"] not in (None, "delivered") and not self._may_be_set_aside(message):
            yield Violation("given up", f"{name} was set aside ({known['outcome']}) without a reason")
        elif known["outcome"] and message.asks and f"{name}{REPLY}" not in found["messages"]:
            yield Violation("unanswered", f"{name} is settled, but has no reply")

    def _answered(self, name: str, said: str, found: Json) -> Iterator[Violation]:
        """The reply is what some possible receiver said in the turn that handled the question."""
        meant = {self.sent[name]} if name in self.sent else self.may_be_sent[name]
        told = [dict(found["agents"].get(each.receiver, {"turns": []})["turns"]).get(name) for each in meant]
        if said not in told:
            yield Violation("changed", f"the reply to {name} differs from what its receiver replied")


def _agrees(found: Json) -> Iterator[Violation]:
    """Memory holds what is on disk."""
    memory = found["memory"]
    children: defaultdict[str, list[str]] = defaultdict(list)
    for agent, parent in found["parents"].items():
        if parent is not None:
            children[parent].append(agent)
    undelivered = [name for name, known in found["messages"].items() if known["outcome"] is None]
    for what, on_disk in (
        ("agents", {agent: record["state"] for agent, record in found["agents"].items()}),
        ("parents", found["parents"]),
        ("children", {agent: sorted(below) for agent, below in children.items()}),
        ("undelivered", sorted(undelivered)),
    ):
        in_memory = _sorted(memory[what])
        if in_memory != on_disk:
            yield Violation("contradiction", f"{what} in memory: {in_memory}, on disk: {on_disk}")
    if memory["asking"] != memory["questions"]:
        yield Violation(
            "leaked", f"places are reserved for {memory['asking']}, asking are {memory['questions']}"
        )


def _sorted(value: Json) -> Json:
    if isinstance(value, list):
        return sorted(value)
    return {key: sorted(each) if isinstance(each, list) else each for key, each in value.items()}


def _message(asked: Json) -> Message:
    return Message(asked["by"], asked["to"], asked["digest"], asked["asks"], asked["doomed"])


def _crowded(message: Message) -> set[str]:
    """A question takes a place for its reply, too."""
    return {message.receiver, message.sender} if message.asks else {message.receiver}


def _said(invoke: Invoke) -> str:
    main = invoke.args.get("id") or invoke.args.get("agent") or ""
    return f"{invoke.name} {main[:40]}".strip()


INVARIANT = Invariant(
    name="daemon-model",
    summary="every outcome of an operation on a daemon, and all it holds, is allowed by its specification",
    check=check,
)
