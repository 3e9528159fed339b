"""The scenarios of the whole agent.

- `agent`: several sessions, requests, failing models, misbehaving tools and hooks, approvals, restarts with
  other options; judged by the specification.
- `service`: the same over HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from chaoskit.model import Json, Scenario, Service, Target
from chaoskit_scenarios.agent.payments import STORES, TARGET
from chaoskit_scenarios.mutants import AGENT_MUTANTS, SESSION_MUTANTS, WHOLE_MUTANTS
from chaoskit_scenarios.sessions.scenarios import FOR_HTTP
from chaoskit_scenarios.whole.values import INFINITE, LONE

SERVICES = (
    Service(name="model"),
    Service(name="client"),
    Service(name="board"),
    Service(name="payments", honours_keys=True),
    Service(name="mail", verifiable=True),
)


def workload(seed: int) -> dict[str, Any]:
    from chaoskit_scenarios.whole import workload as drawing  # noqa: PLC0415 - Hypothesis, in the supervisor only

    return drawing.workload(seed)


def over_http(seed: int) -> dict[str, Any]:
    """Nothing that is not valid JSON: it never gets past the parser."""
    plain = json.dumps(workload(seed), ensure_ascii=False)
    for mark in (LONE, INFINITE):
        plain = plain.replace(mark, "")
    return {**json.loads(plain), "http": True}


def scenario(
    name: str, summary: str, drawing: Callable[[int], Json], preload: tuple[str, ...] = ()
) -> Scenario:
    return Scenario(
        name=name,
        summary=summary,
        target=Target(entry="chaoskit_scenarios.whole.target:main", preload=(*TARGET.preload, *preload)),
        workload=drawing,
        generated=True,
        services=SERVICES,
        invariants=("recovers", "specification"),
        mutants=(*WHOLE_MUTANTS, *AGENT_MUTANTS, *SESSION_MUTANTS),
        stores=STORES,
    )


SCENARIOS = {
    found.name: found
    for found in (
        scenario(
            "agent",
            "the whole agent under generated workloads: sessions, failures, restarts, approvals, hooks",
            workload,
        ),
        scenario(
            "service",
            "the same over HTTP, with real connections and a stream of events",
            over_http,
            ("chaoskit_scenarios.whole.over_http", "chaoskit_scenarios.whole.wire", *FOR_HTTP),
        ),
    )
}
