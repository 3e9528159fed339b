"""Scenario of the daemon.

- `tree`: a random tree of six agents and twelve random operations among them, up to three at the same
  time: spawn, send, ask, suspend, resume, stop; one message is poison. At the end everybody is asked
  whether it is there. Nothing that was acknowledged is lost, repeated, orphaned or forgotten.
"""

from __future__ import annotations

import random
from typing import Any

from chaoskit.model import Scenario, Target
from scenarios.mutants import TREE_MUTANTS
from scenarios.payments import STORES

AGENTS, OPERATIONS = 6, 12
KINDS = {"ask": 5, "send": 4, "suspend": 2, "resume": 1}


def workload(seed: int, agents: int = AGENTS, operations: int = OPERATIONS) -> dict[str, Any]:
    draw = random.Random(f"tree/{seed}")  # not hash(): it must be the same in every process
    there: list[str] = []
    steps: list[dict[str, Any]] = []
    # Who is spawned when, and one stop and one poison somewhere late: the rest is chance.
    plan = ["spawn"] * agents + draw.choices(list(KINDS), list(KINDS.values()), k=operations - 2)
    draw.shuffle(plan)
    plan.sort(key=lambda kind: kind != "spawn" or draw.random() < 0.3)  # most spawns come early
    plan[-2:-2] = ["poison", "stop"]
    for number, kind in enumerate(plan):
        if kind == "spawn" or not there:
            agent = f"a{len(there)}"
            parent = draw.choice([None, *there, *there, *there]) if there else None
            steps.append({"do": "spawn", "agent": agent, "parent": parent})
            there.append(agent)
        elif kind in ("ask", "send", "poison"):
            steps.append({
                "do": "send" if kind == "poison" else kind, "id": f"m{number}",
                "by": draw.choice(["user", *there]), "to": draw.choice(there),
                "content": "poison" if kind == "poison" else f"{kind} {number}",
            })  # fmt: skip
        else:
            among = there[len(there) // 2 :] if kind == "stop" else there  # not all of them
            steps.append({"do": kind, "agent": draw.choice(among)})
    call = [
        {"do": "ask", "id": f"call-{agent}", "by": "user", "to": agent, "content": "are you there"}
        for agent in there
    ]
    return {"batches": [*batches(steps, draw), call]}


def batches(steps: list[dict[str, Any]], draw: random.Random) -> list[list[dict[str, Any]]]:
    """Up to three at the same time; a step that is about an agent waits until it has been spawned."""
    found: list[list[dict[str, Any]]] = [[]]
    for step in steps:
        fresh = {other["agent"] for other in found[-1] if other["do"] == "spawn"}
        about = {step.get(role) for role in ("agent", "parent", "by", "to")}
        if fresh & about or len(found[-1]) == 3 or draw.random() < 0.3:
            found.append([])
        found[-1].append(step)
    return [batch for batch in found if batch]


SCENARIOS = {
    "tree": Scenario(
        name="tree",
        summary="a daemon with a tree of agents that spawn, ask, suspend and stop each other",
        target=Target(entry="scenarios.tree_target:main", preload=("aiosqlite", "sqlite3")),
        workload=workload,
        invariants=("recovers", "tree", "delivery", "no-active", "prefix-log"),
        mutants=TREE_MUTANTS,
        stores=STORES,
    )
}
