"""The scenarios that test an adapter: one for stores, one for agents."""

from __future__ import annotations

from collections.abc import Callable

from chaoskit import registry
from chaoskit.adapter import Adapter
from chaoskit.model import Json, Scenario, Service, Target
from chaoskit_scenarios.store_workload import CHANGES, LARGE, Shape, Step, long, usual


def store(adapter: Adapter) -> Scenario:
    """Saves, appends and deletions of several sessions, whatever the adapter allows (`store_workload`)."""
    return Scenario(
        name=f"target:{adapter.name}",
        summary=adapter.summary,
        target=_target(adapter, "chaoskit.inside.store_driver:main", looks_again=True),
        workload=_changes(adapter, usual),
        variants={"long": _changes(adapter, long)},
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


def _changes(adapter: Adapter, draw: Callable[[int, Shape], list[Step]]) -> Callable[[int], Json]:
    shape = Shape(
        kinds=tuple(do for do in ("save", "append") if do in adapter.methods),
        deletes="delete" in adapter.methods,
        changes=adapter.options.get("saves", CHANGES),
        largest=adapter.options.get("largest", LARGE),
        names=tuple(adapter.options.get("session_names", ())),
    )

    def workload(seed: int) -> Json:
        steps = draw(seed, shape)
        sessions = list(dict.fromkeys(step["session"] for step in steps))
        return {"adapter": adapter.reference, "sessions": sessions, "steps": steps}

    return workload
