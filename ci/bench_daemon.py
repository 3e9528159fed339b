"""Benchmarks of the daemon: many agents, many messages, and a recovery after them.

Each measurement runs in its own process, because peak memory is one of the numbers. SQLite runs in its
thread, as in production; the provider does nothing.

    python ci/bench_daemon.py traffic STORE AGENTS MESSAGES        (also part of ci/bench)
    python ci/bench_daemon.py recovery STORE SENT UNDELIVERED
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from chaoskit.run.workspace import base_directory
from reference_agent.daemon.daemon import Daemon
from reference_agent.daemon.records import (
    DELIVERED,
    AgentRecord,
    Enqueued,
    Linked,
    Message,
    Recorded,
    Settled,
)
from reference_agent.daemon.stores import DaemonStore, opened_store
from reference_agent.ids import ids_from
from reference_agent.store.kinds import Location
from reference_agent.store.registry import STORES

WAVE = 2  # messages per agent before waiting for them: queued messages take memory, too


class Echo:
    """A provider and its session: echoes messages and keeps only a count."""

    def __init__(self, turns: int = 0) -> None:
        self._turns = turns

    async def create(self, agent_id: str, model: str) -> Echo:  # noqa: ARG002
        return Echo()

    async def restore(self, agent_id: str, model: str, blob: str) -> Echo:  # noqa: ARG002
        return Echo(int(blob))

    async def send(self, message_id: str, content: str) -> str:  # noqa: ARG002
        self._turns += 1
        return content

    def suspend(self) -> str:
        return str(self._turns)

    async def close(self) -> None:
        """Nothing to close."""


def daemon_on(store: DaemonStore) -> Daemon:
    return Daemon(store, {"echo": Echo()}, new_id=ids_from("bench"))


async def traffic(directory: Path, store: str, agents: int, messages: int) -> dict[str, float]:
    async with opened_store(Location(directory, store), clock=time.time) as opened:
        daemon = daemon_on(opened)
        names = [f"a{n}" for n in range(agents)]
        for n, name in enumerate(names):
            parent = names[n // 10] if n else None
            await daemon.spawn(name, parent=parent, provider="echo", model="m")
        started = time.perf_counter()
        for number in range(messages):
            await daemon.send(names[number % agents], f"message {number}")
            if number % (WAVE * agents) == 0:
                await daemon.settled()
        await daemon.settled()
        took = time.perf_counter() - started
        assert not daemon.set_aside()
        assert sum(int(record.blob) for record in daemon.state.agents.values()) == messages
    return {"per_second": messages / took, "seconds": took}


async def recovery(directory: Path, store: str, sent: int, undelivered: int) -> dict[str, float]:
    """Minimum CPU time of ten recoveries; no agent is resumed, so all start from the same state."""
    async with opened_store(Location(directory, store), clock=time.time) as opened:
        await opened.write(Recorded(AgentRecord("a", "echo", "m", "SUSPENDED", "0")))
        await opened.write(Linked("a", None))
        for n in range(sent):
            await opened.write(Enqueued(Message(f"m{n}", "user", "a", f"message {n}")))
            if n < sent - undelivered:
                await opened.write(Settled(f"m{n}", DELIVERED))
    taken = []
    for _ in range(10):
        started = time.process_time()
        async with opened_store(Location(directory, store), clock=time.time) as opened:
            daemon = daemon_on(opened)
            await daemon.recover()
            taken.append(time.process_time() - started)
            assert len(daemon.state.undelivered) == undelivered
    return {"seconds": min(taken)}


def measured(what: str, *args: object) -> dict[str, float]:
    """Runs a measurement in its own process, which prints its result as JSON."""
    command = [sys.executable, __file__, what, *map(str, args)]
    found: dict[str, float] = json.loads(subprocess.check_output(command))
    return found


def daemon_cost() -> dict[str, object]:
    return {"traffic": _compare_traffic(), "recovery": _compare_recoveries()}


def _compare_traffic() -> dict[str, object]:
    print("\n1,000 agents in one daemon: messages handled\n  goal: memory does not grow with the messages")
    rows = {}
    for store in STORES.names():
        for messages in (10_000, 100_000):
            found = rows[f"{store}, {messages:,}"] = measured("traffic", store, 1000, messages)
            print(
                f"  {f'{store}, {messages:,} messages':<42} {found['per_second']:>10.1f}/s"
                f"   peak {found['peak_mb']:.0f} MB"
            )
    return {"goal": "memory does not grow with the messages", "rows": rows}


def _compare_recoveries() -> dict[str, object]:
    goal = "grows with the undelivered messages, not with all messages ever sent"
    print(f"\nopening and recovering\n  goal: {goal}")
    rows = {}
    for store in STORES.names():
        for sent, undelivered in ((10_000, 1000), (100_000, 1000), (100_000, 2000)):
            name = f"{store}, {undelivered:,} undelivered of {sent:,}"
            found = rows[name] = measured("recovery", store, sent, undelivered)
            print(f"  {name:<42} {1000 * found['seconds']:>10.1f} ms   peak {found['peak_mb']:.0f} MB")
    return {"goal": goal, "rows": rows}


MEASUREMENTS: dict[str, Callable[..., Coroutine[Any, Any, dict[str, float]]]] = {
    "traffic": traffic,
    "recovery": recovery,
}


def main() -> None:
    if len(sys.argv) == 1:
        daemon_cost()
        return
    what, store, *numbers = sys.argv[1:]
    with tempfile.TemporaryDirectory(dir=base_directory()) as directory:
        found = asyncio.run(MEASUREMENTS[what](Path(directory), store, *map(int, numbers)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**found, "peak_mb": peak}))


if __name__ == "__main__":
    main()
