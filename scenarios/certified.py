"""What an adapter is put through: the scenario of a store, and that of an agent."""

from __future__ import annotations

import random
from collections.abc import Callable

from chaoskit.adapter import Adapter
from chaoskit.model import Json, Scenario, Target

SESSIONS = ("a", "b", "c")
SAVES = 30
SIZES = (3, 40, 40, 200, 900, 5_000, 20_000)
LARGE = 1_000_000  # one of them
STORE_CLAIMS = ("durable", "atomic", "prefix", "loadable", "continues", "isolated", "immutable",
                "consistent", "idempotent", "fenced")  # fmt: skip


def store(adapter: Adapter) -> Scenario:
    """Sessions interleaved, sizes mixed, one large save, one session deleted where that is possible."""
    return Scenario(
        name=f"target:{adapter.name}",
        summary=adapter.summary,
        target=_target(adapter, "chaoskit.inside.stores:main"),
        workload=_saves(adapter),
        invariants=STORE_CLAIMS,
    )


def _target(adapter: Adapter, entry: str) -> Target:
    return Target(
        entry=entry,
        preload=(adapter.reference,),
        deadline=float(adapter.options.get("deadline", 30)),
        requires=adapter.requires,
    )


def _saves(adapter: Adapter) -> Callable[[int], Json]:
    def workload(seed: int) -> Json:
        rng = random.Random(seed)
        count = adapter.options.get("saves", SAVES)
        large = rng.randrange(count // 2, count)
        do = "save" if "save" in adapter.methods else "append"
        steps: list[Json] = []
        for n in range(1, count + 1):
            size = (
                min(LARGE, adapter.options.get("largest", LARGE))
                if n == large
                else rng.choice(SIZES)
            )
            steps.append({"do": do, "session": rng.choice(SESSIONS), "n": n, "size": size})
        if "delete" in adapter.methods:
            steps.insert(count * 2 // 3, {"do": "delete", "session": SESSIONS[-1]})
        return {"adapter": adapter.reference, "sessions": list(SESSIONS), "steps": steps}

    return workload
