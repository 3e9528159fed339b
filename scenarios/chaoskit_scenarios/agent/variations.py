"""More scenarios of the reference agent, one per difficulty.

- `retry`: the model fails in every retryable way, and the process dies in between. The number of retries
  comes from a config file that predates this setting.
- `cadence-*`: a checkpoint after each call, or only after every second turn.
- `hooks`: hooks cap payments, deny a tool and make a plan, also after a restart.
- `fickle`: a model that never answers the same way twice. A decision made once must stand.
- `parallel`: several calls in one turn: one raises, one hangs until its deadline, one returns a lot, two
  are deliberately identical.
- `migration`: a database of the previous version is upgraded under crashes, and loses no row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaoskit.model import Json, Scenario
from chaoskit_scenarios.agent import payments
from chaoskit_scenarios.agent.payments import ALWAYS, LIKE_THE_UNDISTURBED, SERVICES, STORES, TARGET
from chaoskit_scenarios.mutants import AGENT_MUTANTS


def scenario(
    name: str,
    summary: str,
    workload: Callable[[int], Json],
    invariants: tuple[str, ...],
    stores: tuple[str, ...] = STORES,
) -> Scenario:
    return Scenario(
        name=name,
        summary=summary,
        target=TARGET,
        workload=lambda seed: {**workload(seed), "shown": True},  # also check what a resume shows
        invariants=(*invariants, "cadence", "shown"),
        services=SERVICES,
        mutants=AGENT_MUTANTS,
        stores=stores,
    )


def with_options(**more: Any) -> Callable[[int], Json]:
    """The workload of `payments`, with something added."""
    return lambda seed: {**payments.workload(seed), **more}


def two_payments(seed: int) -> Json:
    """Each first turn has two mutating calls: only there does the per-call cadence make a difference."""
    work = payments.workload(seed)
    for request in work["requests"]:
        request["steps"][0].append({"tool": "tip", "args": {"to": "the waiter", "cents": 5}})
    return {**work, "options": {"cadence": {"kind": "call"}}}


def parallel(seed: int) -> Json:
    odd = {"text": "\u2028 \x00 \U0001f600", "nested": [1, 2.5, True, None, {"": []}], "big": 2**53}
    steps = [
        [
            {"tool": "pay", "args": {"to": "a", "cents": seed % 1000 + 1}},
            {"tool": "mail", "args": {"to": "a", "text": "one", "odd": odd}},
            {"tool": "fail", "args": {"reason": "no such account"}},
            {"tool": "hang", "args": {}},
            {"tool": "lookup", "args": {"customer": "a"}},
        ],
        [
            {"tool": "tip", "args": {"to": "b", "cents": 5}},
            {"tool": "tip", "args": {"to": "b", "cents": 5}},
            {"tool": "pay", "args": {"to": "a", "cents": seed % 1000 + 1}},
            {"tool": "big", "args": {"size": 100_000}},
        ],
    ]
    return {"requests": [{"content": "do all of this", "steps": steps, "answer": "done"}]}


def migration(seed: int) -> Json:
    """Two exchanges of an older release, then a new request."""
    work = payments.workload(seed)
    old = [
        ["user", f"hello {seed}", None],
        ["assistant", "hello", None],
        ["user", "again", None],
        ["assistant", "again", None],
    ]
    script: list[Json] = [
        {"content": text, "steps": [], "answer": ""} for role, text, _ in old if role == "user"
    ]
    return {"requests": work["requests"][:1], "old": old, "script": [*script, *work["requests"][:1]]}


SCENARIOS = {
    found.name: found
    for found in (
        scenario(
            "retry",
            "the model fails in every retryable way, and the process is killed in between",
            with_options(
                failures={"1": [429, 503], "3": [500, 502, 504], "5": [408]},
                config={"model": "scripted-1", "max_turns": 20},
            ),
            LIKE_THE_UNDISTURBED,
        ),
        scenario("cadence-call", "a checkpoint after each tool call", two_payments, LIKE_THE_UNDISTURBED),
        scenario(
            "cadence-periodic",
            "a checkpoint after every second turn",
            with_options(options={"cadence": {"kind": "periodic", "turns": 2}}),
            LIKE_THE_UNDISTURBED,
        ),
        scenario(
            "hooks",
            "hooks change calls, deny a tool and make a plan, also after a restart",
            with_options(rules={"most": 99, "denied": "post"}, plan=True),
            LIKE_THE_UNDISTURBED,
        ),
        scenario(
            "fickle",
            "a model that answers differently after every restart",
            with_options(fickle=True),
            ALWAYS,
        ),
        scenario(
            "parallel",
            "parallel, failing, hanging, huge and repeated calls in one turn",
            parallel,
            LIKE_THE_UNDISTURBED,
        ),
        scenario(
            "migration",
            "a database with the previous schema is upgraded without losing a row",
            migration,
            LIKE_THE_UNDISTURBED,
            ("sqlite",),
        ),
    )
}
