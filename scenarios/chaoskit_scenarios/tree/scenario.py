"""The scenario of the daemon.

- `tree`: a random tree of six agents (or `--agents N`), and random operations among them at random
  (virtual) times: spawn, send, ask, ask and fetch the reply later, suspend, resume, stop. A parent is
  stopped while a child is spawned below it; some messages are poison. At the end every agent is asked
  whether it is there. Nothing that was acknowledged is lost, repeated or orphaned.
"""

from __future__ import annotations

import random
from typing import Any

from chaoskit.model import Scenario, Target
from chaoskit_scenarios.agent.payments import STORES
from chaoskit_scenarios.mutants import TREE_MUTANTS
from chaoskit_scenarios.readers import modules

AGENTS = 6
MOST = 200  # with more, a client that retries after a crash uses ids already forgotten (D5)
CALLED = 10  # at the end, at most
KINDS = {"ask": 5, "send": 4, "question": 2, "suspend": 2, "resume": 1}
PACES = (0.05, 0.3, 1.5)  # seconds between two operations: concurrent, overlapping, sequential

DAEMON_STORES = ("reference_agent.daemon.sqlite", "reference_agent.daemon.files")
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
    called = draw.sample(script.there, min(CALLED, len(script.there)))
    return {
        "steps": sorted(script.steps, key=lambda step: float(step["at"])),
        "call": [message("ask", f"call-{agent}", "user", agent, "are you there") for agent in called],
        "mailbox": draw.choice([3, 10, 100]),
        "segment": agents * draw.choice([4, 10]),  # of the log, where there is one
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


def message(do: str, name: str, by: str, to: str, content: str) -> Step:
    return {"do": do, "id": name, "by": by, "to": to, "content": content}


class Script:
    """Operations that are valid when they run: the agents they involve have been spawned by then."""

    def __init__(self, draw: random.Random) -> None:
        self.there: list[str] = []
        self.steps: list[Step] = []
        self._draw = draw
        self._now = 0.0
        self._pace = draw.choice(PACES)
        self._shape = draw.choice(["any", "chain", "star"])

    def add(self, kind: str) -> None:
        draw = self._draw
        self._now += draw.expovariate(1 / self._pace)
        if kind == "spawn":
            self._spawn(self._parent())
        elif kind == "race":
            parent = self._late()
            self._spawn(parent)
            self._step({"do": "stop", "agent": parent}, after=draw.uniform(0, 0.5))
        elif kind == "stop":
            self._step({"do": "stop", "agent": self._late()})
        elif kind in ("suspend", "resume"):
            self._step({"do": kind, "agent": draw.choice(self.there)})
        else:
            self._message(kind)

    def _message(self, kind: str) -> None:
        draw, name = self._draw, f"m{len(self.steps)}"
        by, to = draw.choice(["user", *self.there]), draw.choice(self.there)
        content = "poison" if kind == "poison" else f"{kind} {name}"
        self._step(message("send" if kind == "poison" else kind, name, by, to, content))
        if kind == "question":
            self._step({"do": "reply", "id": name}, after=draw.uniform(0, 4))

    def _spawn(self, parent: str | None) -> None:
        agent = f"a{len(self.there)}"
        self._step({"do": "spawn", "agent": agent, "parent": parent})
        self.there.append(agent)

    def _parent(self) -> str | None:
        if not self.there or self._draw.random() < 0.25:
            return None
        if self._shape == "any" or self._draw.random() < 0.3:
            return self._draw.choice(self.there)
        return self.there[-1 if self._shape == "chain" else 0]

    def _late(self) -> str:
        """Not one of the first: stopping it would stop most of the others."""
        return self._draw.choice(self.there[len(self.there) // 2 :])

    def _step(self, step: Step, after: float = 0.0) -> None:
        self.steps.append({"at": round(self._now + after, 3), **step})


SCENARIOS = {
    "tree": Scenario(
        name="tree",
        summary="a daemon with a tree of agents that spawn, ask, suspend and stop each other",
        target=Target(entry="chaoskit_scenarios.tree.target:main", preload=(*DAEMON_STORES, *modules())),
        workload=workload,
        workload_for=workload_for,
        invariants=("recovers", "tree", "delivery", "no-active", "prefix-log"),
        mutants=TREE_MUTANTS,
        stores=STORES,
    )
}
