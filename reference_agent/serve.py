"""`reference-agent serve`: the services wired together, behind the HTTP API.

The boot sweep has finished before the socket listens: nobody is ever told the status of before.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import Namespace
from contextlib import suppress
from pathlib import Path

from reference_agent import logs
from reference_agent.agent import Agent, Listener
from reference_agent.calls import Results
from reference_agent.coordinator import Coordinator
from reference_agent.ids import random_id, system_clock
from reference_agent.notes import ASK, Notes
from reference_agent.sessions.record import SessionRecord
from reference_agent.sessions.recovery_manager import BootReport, RecoveryManager
from reference_agent.setup import Problem, Setup, agent_options, explained, set_up

log = logs.get_logger(__name__)
PATIENCE = 3  # seconds that open streams get when the server stops


def run(options: Namespace) -> int:
    try:
        with explained(Path(options.state or ".")):
            asyncio.run(_serve(options, set_up(options)))
    except Problem as problem:
        sys.stderr.write(f"reference-agent: {problem}\n")
        return problem.code
    return 0


async def _serve(options: Namespace, setup: Setup) -> None:
    try:
        import uvicorn  # noqa: PLC0415 - only who serves pays for it

        from reference_agent.http_api import application  # noqa: PLC0415
    except ImportError as error:
        raise Problem(f"serve needs a package that is not installed: {error.name}"
                      " (pip install 'chaoskit[http]')") from None  # fmt: skip
    setup.directory.mkdir(parents=True, exist_ok=True)
    coordinator = coordinate(setup, random_id("boot"))
    report = coordinator.boot()
    app = application(
        coordinator, random_id, provider=setup.provider.name, model=setup.provider.model
    )
    server = uvicorn.Server(uvicorn.Config(
        app, host=options.host, port=options.port, log_level="warning", lifespan="off",
        timeout_graceful_shutdown=PATIENCE,
    ))  # fmt: skip
    listening = server.config.bind_socket()
    host, port = listening.getsockname()[:2]
    sys.stdout.write(f"listening on http://{host}:{port}; {told(report)}\n")
    sys.stdout.flush()
    sweeping = asyncio.create_task(_sweep(coordinator, options.sweep))
    try:
        await server.serve(sockets=[listening])
    finally:
        sweeping.cancel()
        with suppress(asyncio.CancelledError):
            await sweeping
        await coordinator.close()


def coordinate(setup: Setup, boot: str) -> Coordinator:
    async def open_agent(record: SessionRecord, results: Results, tell: Listener) -> Agent:
        notes = Notes()
        agent = await Agent.open(
            setup.directory, session=record.session, provider=setup.provider, store=setup.store,
            events=record.log,
            toolbox=notes.tools(ASK), new_id=random_id, boot=boot, tell=tell, results=results,
            options=agent_options(setup.config), agent_id=setup.config.agent_id,
        )  # fmt: skip
        notes.directory = await agent.scratchpad()
        return agent

    recovery = RecoveryManager(boot, system_clock)
    return Coordinator(
        setup.directory, open_agent=open_agent, recovery=recovery, clock=system_clock
    )


def told(report: BootReport) -> str:
    statuses = list(report.status.values())
    found = f"{report.boot_id}: {len(statuses)} sessions"
    for status in sorted(set(statuses) - {"idle"}):
        found += f", {statuses.count(status)} {status}"
    return found + "".join(f"; {name}: {reason}" for name, reason in report.failed.items())


async def _sweep(coordinator: Coordinator, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        await coordinator.sweep()
