"""Scenarios of the services around the agent: waits and tokens, boots, and all of it over HTTP.

- `waiting`: runs wait for an approval that arrives with a token; the approval is delivered, superseded,
  late, contended, or its token replaced. The process dies in between, and everything reported stays true.
- `interrupted`: boots, repeated boots, and concurrent sweeps. A run that a restart interrupted is recorded
  once, and then resumed.
- `http`: the same over a real socket, with a client that holds promises from a server that has died.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaoskit.model import Json, Scenario, Service, Target
from chaoskit_scenarios.agent import payments
from chaoskit_scenarios.agent.payments import LIKE_THE_UNDISTURBED, SERVICES, STORES, TARGET
from chaoskit_scenarios.mutants import SESSION_MUTANTS

APPROVAL = {"tool": "approve", "args": {"what": "the payment"}}


def waiting(seed: int) -> dict[str, Any]:
    """One payment per request, preceded by an approval that arrives in every possible way."""
    work = payments.workload(seed)
    first, second = work["requests"]
    requests = []
    for number, then in enumerate(("resume", "supersede", "time out", "race", "rotate")):
        pay = {"tool": "pay", "args": {"to": f"payee {number}", "cents": seed % 1000 + number}}
        requests.append(
            {
                "content": f"{first['content']} ({number})",
                "then": then,
                "answer": f"done {number}",
                "steps": [[APPROVAL], [pay]],
            }
        )
    return {"requests": [*requests, second]}


def http(seed: int) -> dict[str, Any]:
    """One request that waits, and one that does not."""
    work = waiting(seed)
    return {"requests": [work["requests"][0], work["requests"][-1]]}


FOR_HTTP = (
    "anyio._backends._asyncio",
    "anyio.streams.tls",
    "httpcore2",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.h11_impl",
)


def scenario(
    name: str,
    summary: str,
    entry: str,
    workload: Callable[[int], Json],
    *invariants: str,
    preload: tuple[str, ...] = (),
) -> Scenario:
    return Scenario(
        name=name,
        summary=summary,
        target=Target(entry=entry, preload=(*TARGET.preload, *preload)),
        workload=workload,
        services=(*SERVICES, Service(name="client")),
        mutants=SESSION_MUTANTS,
        invariants=(*LIKE_THE_UNDISTURBED, "status", "snapshot", *invariants),
        stores=STORES,
    )


SCENARIOS = {
    found.name: found
    for found in (
        scenario(
            "waiting",
            "waits for approvals that are given, superseded, too late or contested",
            "chaoskit_scenarios.sessions.target:waiting",
            waiting,
            "tokens",
        ),
        scenario(
            "interrupted",
            "repeated boots and sweeps: each run is interrupted once, then resumed",
            "chaoskit_scenarios.sessions.target:interrupted",
            payments.workload,
        ),
        scenario(
            "http",
            "a client over HTTP: every response stays true, no event is missed",
            "chaoskit_scenarios.sessions.http_target:main",
            http,
            "tokens",
            preload=FOR_HTTP,
        ),
    )
}
