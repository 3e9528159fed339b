"""The workload of `tree`: plain data, drawn from a seed.

A *script* is a random tree and random operations among its agents, valid when they run. *Twists* then make
it hostile: operations are cancelled and repeated, ids collide, messages kill the process or make a provider
misbehave, texts cannot be stored. Each seed has some twists only: one that dominates would hide the others.

    {"phases": [[step, ...], ...], "call": [step, ...], "fill": [step, ...], "mailbox": 3, "segment": 24}

The daemon is closed and opened again between two phases. Each step has a time (`at`) within its phase. A step
with `cancel` is cancelled after that many seconds. Text is spelled (`spelling`): JSON cannot hold all of it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

AGENTS = 6
MOST = 200  # with more, a client that retries after a crash uses ids already forgotten (D5)
CALLED = 10  # at the end, at most
KINDS = {"ask": 5, "send": 4, "question": 2, "suspend": 2, "resume": 1}
PACES = (0.05, 0.3, 1.5)  # seconds between two operations: concurrent, overlapping, sequential
FILLED = 2  # agents whose mailbox is filled at the end
FILLABLE = 10  # filling a larger mailbox takes too long

# How often a workload has each twist.
TWISTS = {
    "cancelled": 0.4,
    "repeated": 0.4,
    "colliding": 0.4,
    "unruly": 0.35,
    "broken-agents": 0.25,
    "deadly": 0.2,
    "nasty": 0.3,
    "respawned": 0.3,
    "strangers": 0.25,
    "whole-trees": 0.25,
    "restarted": 0.3,
    "filled": 0.5,
}
UNRULY = ("poison", "mute", "number", "garbled", "hang", "cancels", "blobless", "flaky", "slow")
BROKEN_MODELS = ("stillborn", "coma", "blank", "amnesiac")
NASTY = ("", "~nul~", "~surrogate~", "~separator~", '"}\n{"', "x" * 300, "~big~")
STRANGERS = ("user", "daemon", "nobody", "", "../a0")
ADDRESSED = ("send", "ask", "question")

Step = dict[str, Any]


def workload(seed: int) -> dict[str, Any]:
    return workload_for(seed, AGENTS)


def workload_for(seed: int, agents: int) -> dict[str, Any]:
    if not 1 <= agents <= MOST:
        raise ValueError(f"expected 1 to {MOST} agents, got {agents}")
    draw = random.Random(f"tree/{seed}/{agents}")  # not hash(): it must be the same in every process
    script = Script(draw)
    for kind in kinds(draw, agents):
        script.add(kind)
    mailbox = draw.choice([3, 10, 100])
    segment = draw.choice([4, 4, 2 * agents, 10 * agents])
    called = draw.sample(script.there, min(CALLED, len(script.there)))
    chosen = {name for name, share in TWISTS.items() if draw.random() < share}
    twist = Twist(draw, script)
    for name in TWISTS:
        if name in chosen and name in PERFORMED:
            PERFORMED[name](twist)
    filled = called[:FILLED] if "filled" in chosen and mailbox <= FILLABLE else []
    return {
        "phases": phases(draw, script.in_order(), 2 if "restarted" in chosen else 1),
        "call": [message("ask", f"call-{agent}", "user", agent, "are you there") for agent in called],
        "fill": [{"do": "fill", "agent": agent, "mailbox": mailbox} for agent in filled],
        "mailbox": mailbox,
        "segment": segment,  # of the log, where there is one
    }


def kinds(draw: random.Random, agents: int) -> list[str]:
    """The kinds of operations, in order: most spawns early; stops late, or no agent would be left."""
    some = 1 + agents // 10
    found = ["spawn"] * (agents - 1) + ["poison"] * some
    found += draw.choices(list(KINDS), list(KINDS.values()), k=4 + 3 * agents // 2)
    draw.shuffle(found)
    found.sort(key=lambda kind: kind != "spawn" or draw.random() < 0.3)
    for kind in ["stop", "race"] * some:
        found.insert(draw.randrange(len(found) // 2, len(found) + 1), kind)
    return ["spawn", *found]


def phases(draw: random.Random, steps: list[Step], parts: int) -> list[list[Step]]:
    """Cut at random; the times of each part begin at 0."""
    cuts = sorted(draw.randrange(len(steps) + 1) for _ in range(parts - 1))
    found = [steps[start:end] for start, end in zip([0, *cuts], [*cuts, len(steps)], strict=True)]
    return [[{**step, "at": round(step["at"] - part[0]["at"], 3)} for step in part] for part in found]


def message(do: str, name: str, by: str, to: str, content: str) -> Step:
    return {"do": do, "id": name, "by": by, "to": to, "content": content}


class Script:
    """Operations that are valid when they run: the agents they involve have been spawned by then."""

    def __init__(self, draw: random.Random) -> None:
        self.there: list[str] = []
        self.roots: list[str] = []
        self.steps: list[Step] = []
        self._draw = draw
        self._now = 0.0
        self._pace = draw.choice(PACES)
        self._shape = draw.choice(["any", "chain", "star"])

    @property
    def now(self) -> float:
        return self._now

    def in_order(self) -> list[Step]:
        return sorted(self.steps, key=lambda step: float(step["at"]))

    def add(self, kind: str) -> None:
        draw = self._draw
        self._now += draw.expovariate(1 / self._pace)
        if kind == "spawn":
            self._spawn(self._parent())
        elif kind == "race":
            parent = self._late()
            self._spawn(parent)
            self.step({"do": "stop", "agent": parent}, after=draw.uniform(0, 0.5))
        elif kind == "stop":
            self.step({"do": "stop", "agent": self._late()})
        elif kind in ("suspend", "resume"):
            self.step({"do": kind, "agent": draw.choice(self.there)})
        else:
            self._message(kind)

    def _message(self, kind: str) -> None:
        draw, name = self._draw, f"m{len(self.steps)}"
        by, to = draw.choice(["user", *self.there]), draw.choice(self.there)
        content = "poison" if kind == "poison" else f"{kind} {name}"
        self.step(message("send" if kind == "poison" else kind, name, by, to, content))
        if kind == "question":
            self.step({"do": "reply", "id": name}, after=draw.uniform(0, 4))

    def _spawn(self, parent: str | None) -> None:
        agent = f"a{len(self.there)}"
        self.step({"do": "spawn", "agent": agent, "parent": parent})
        self.there.append(agent)
        if parent is None:
            self.roots.append(agent)

    def _parent(self) -> str | None:
        if not self.there or self._draw.random() < 0.25:
            return None
        if self._shape == "any" or self._draw.random() < 0.3:
            return self._draw.choice(self.there)
        return self.there[-1 if self._shape == "chain" else 0]

    def _late(self) -> str:
        """Not one of the first: stopping it would stop most of the others."""
        return self._draw.choice(self.there[len(self.there) // 2 :])

    def step(self, step: Step, after: float = 0.0) -> None:
        self.steps.append({"at": round(self._now + after, 3), **step})


class Twist:
    """Makes a script hostile. Each method is one twist; `some` says how much of the script it affects."""

    def __init__(self, draw: random.Random, script: Script) -> None:
        self._draw = draw
        self._script = script

    def some(self, share: float, *among: str) -> Iterator[Step]:
        """Some of the steps, and at least one."""
        able = [step for step in self._script.steps if step["do"] in among]
        found = [step for step in able if self._draw.random() < share]
        yield from found or self._draw.sample(able, min(1, len(able)))

    def later(self, step: Step, longest: float, **changes: Any) -> None:
        """The step once more, perhaps at the same time."""
        again = {**step, **changes, "at": round(step["at"] + self._draw.uniform(0, longest), 3)}
        again.pop("cancel", None)
        self._script.steps.append(again)

    def a_time(self) -> float:
        return round(self._draw.uniform(0, self._script.now), 3)

    def cancelled(self) -> None:
        """Any operation, early or late; half of them are repeated, as by a client with a timeout."""
        every = ("spawn", *ADDRESSED, "reply", "suspend", "resume", "stop")
        for step in self.some(0.3, *every):
            step["cancel"] = round(
                self._draw.choice([0.0, self._draw.uniform(0, 0.05), self._draw.random()]), 4
            )
            if self._draw.random() < 0.5:
                self.later(step, 3)

    def repeated(self) -> None:
        """The same id again; half of the time it is not the same message."""
        draw = self._draw
        for step in self.some(0.25, *ADDRESSED):
            change = draw.choice(["content", "to", "by", "do", "", "", "", ""])
            values = {
                "content": "other",
                "to": self._anybody(),
                "by": self._anybody(),
                "do": draw.choice(ADDRESSED),
            }
            self.later(step, 4, **({change: values[change]} if change else {}))

    def colliding(self) -> None:
        """Ids chosen by a sender that resemble or equal others."""
        draw = self._draw
        known = [step["id"] for step in self._script.steps if step["do"] in ADDRESSED]
        for step in list(self.some(0.15, "send")):
            other = draw.choice(known)
            same = draw.choice(
                [f"{other}.reply", f"{other}.reply", other, self._anybody(), "", "user", "ü" * 300]
            )
            self.later(step, 2, id=same, by=self._sender())

    def unruly(self) -> None:
        """The provider misbehaves in a turn."""
        for step in self.some(0.15, *ADDRESSED):
            step["content"] = self._draw.choice(UNRULY)

    def broken_agents(self) -> None:
        """Agents that cannot be created, or cannot be restored. Nothing depends on them."""
        draw = self._draw
        for number, model in enumerate(draw.sample(BROKEN_MODELS, 2)):
            agent, at = f"z{number}", self.a_time()
            parent = draw.choice([None, *self._script.there])
            self._script.steps.append(
                {"at": at, "do": "spawn", "agent": agent, "parent": parent, "model": model}
            )
            told = message(draw.choice(["send", "ask"]), f"to-{agent}", "user", agent, model)
            self._script.steps.append({"at": at, **told})
            for what in ("suspend", "resume"):
                self._script.steps.append(
                    {"at": round(at + draw.uniform(0, 9), 3), "do": what, "agent": agent}
                )

    def deadly(self) -> None:
        """A message that kills the whole process each time."""
        for number in range(self._draw.choice([1, 1, 2])):
            to, kind = self._draw.choice(self._script.there), self._draw.choice(["send", "send", "ask"])
            told = message(kind, f"deadly-{number}", self._sender(), to, "deadly")
            self._script.steps.append({"at": self.a_time(), **told})

    def nasty(self) -> None:
        """Contents, ids and names that are legal somewhere on the way and not elsewhere."""
        for step in self.some(0.2, *ADDRESSED):
            step["content"] = self._draw.choice(NASTY)
        for step in list(self.some(0.05, "send")):
            self.later(step, 1, id=step["id"] + self._draw.choice(["~nul~", "~surrogate~", "~separator~"]))

    def respawned(self) -> None:
        """Under a used, a reserved, or an invalid name."""
        draw = self._draw
        for step in list(self.some(0.2, "spawn")):
            name = draw.choice([step["agent"]] * 3 + list(STRANGERS))
            parent = draw.choice([step["parent"], None, self._anybody(), "nobody"])
            self.later(step, 5, agent=name, parent=parent)

    def strangers(self) -> None:
        """Operations that involve nobody, the outside or the daemon, and replies to what is no question."""
        draw, steps = self._draw, self._script.steps
        for number in range(4):
            step = message(draw.choice(ADDRESSED), f"s{number}", self._anybody(), self._anybody(), "stranger")
            step[draw.choice(["by", "to"])] = draw.choice(STRANGERS)
            steps.append({"at": self.a_time(), **step})
            steps.append(
                {"at": self.a_time(), "do": draw.choice(["suspend", "resume", "stop"]), "agent": "nobody"}
            )
        sent = [step["id"] for step in self.some(0.2, "send")]
        for name in ["never", *sent[:2]]:
            steps.append({"at": self.a_time(), "do": "reply", "id": name})

    def whole_trees(self) -> None:
        root = self._draw.choice(self._script.roots)
        at = round(self._script.now * self._draw.uniform(0.5, 1), 3)
        self._script.steps.append({"at": at, "do": "stop", "agent": root})

    def _anybody(self) -> str:
        return self._draw.choice(self._script.there)

    def _sender(self) -> str:
        return self._draw.choice(["user", *self._script.there])


PERFORMED = {
    "repeated": Twist.repeated,
    "colliding": Twist.colliding,
    "unruly": Twist.unruly,
    "broken-agents": Twist.broken_agents,
    "deadly": Twist.deadly,
    "nasty": Twist.nasty,
    "respawned": Twist.respawned,
    "strangers": Twist.strangers,
    "whole-trees": Twist.whole_trees,
    "cancelled": Twist.cancelled,  # last: what the others have added can be cancelled, too
}
