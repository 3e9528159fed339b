"""The scenarios that test an adapter: one for stores, one for agents."""

from __future__ import annotations

import random
from collections.abc import Callable

from chaoskit import registry
from chaoskit.adapter import Adapter
from chaoskit.model import Json, Scenario, Service, Target

SESSIONS = ("a", "b", "c")
SAVES = 30
SIZES = (3, 40, 40, 200, 900, 5_000, 20_000)
LARGE = 1_000_000  # one of them


def store(adapter: Adapter) -> Scenario:
    """Sessions interleaved, sizes mixed, one large save, one session deleted where that is possible."""
    return Scenario(
        name=f"target:{adapter.name}",
        summary=adapter.summary,
        target=_target(adapter, "chaoskit.inside.store_driver:main", looks_again=True),
        workload=_saves(adapter),
        invariants=tuple(registry.claims("store")),
    )


# The scripted model's decisions, turn by turn.
SCRIPT = (
    {"tool": "pay", "args": {"invoice": "A-17", "cents": 4200}},
    {"tool": "mail", "args": {"to": "alice", "text": "A-17 is paid"}},
    {"tool": "pay", "args": {"invoice": "B-3", "cents": 990}},
    {"answer": "Both invoices are paid, and Alice knows."},
)
MEANT = (
    ["payments", "pay", {"invoice": "A-17", "cents": 4200}],
    ["mail", "send", {"to": "alice", "text": "A-17 is paid"}],
    ["payments", "pay", {"invoice": "B-3", "cents": 990}],
)


def agent(adapter: Adapter) -> Scenario:
    """Three turns with one effect each, then an answer. Payments recognise keys, mail does not."""
    return Scenario(
        name=f"target:{adapter.name}",
        summary=adapter.summary,
        target=_target(adapter, "chaoskit.inside.agent_driver:main"),
        workload=lambda _seed: {
            "adapter": adapter.reference,
            "task": "Pay A-17 and B-3, and tell Alice.",
            "fickle": False,
            "script": list(SCRIPT),
            "meant": list(MEANT),
        },
        invariants=tuple(registry.claims("agent")),
        services=(Service(name="payments", honours_keys=True), Service(name="mail")),
    )


def _target(adapter: Adapter, entry: str, *, looks_again: bool = False) -> Target:
    return Target(
        entry=entry,
        looks_again=looks_again,
        preload=(adapter.reference,),
        deadline=float(adapter.options.get("deadline", 30)),
        requires=adapter.requires,
    )


def _saves(adapter: Adapter) -> Callable[[int], Json]:
    def workload(seed: int) -> Json:
        rng = random.Random(seed)
        count = adapter.options.get("saves", SAVES)
        large = count - 2  # late: every look after it reads it again
        do = "save" if "save" in adapter.methods else "append"
        steps: list[Json] = []
        for n in range(1, count + 1):
            size = min(LARGE, adapter.options.get("largest", LARGE)) if n == large else rng.choice(SIZES)
            steps.append({"do": do, "session": rng.choice(SESSIONS), "n": n, "size": size})
        if "delete" in adapter.methods:
            steps.insert(count * 2 // 3, {"do": "delete", "session": SESSIONS[-1]})
        return {"adapter": adapter.reference, "sessions": list(SESSIONS), "steps": steps}

    return workload
