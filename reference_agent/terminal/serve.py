"""`reference-agent serve`: wires the services together behind the HTTP API.

The boot sweep finishes before the socket listens, so no client ever sees a status from before the restart.
"""

from __future__ import annotations

import asyncio
import socket
from argparse import Namespace
from contextlib import ExitStack, closing, suppress
from ipaddress import ip_address

from reference_agent.ids import random_id, system_clock
from reference_agent.recovery.manager import BootReport, RecoveryManager
from reference_agent.service.coordinator import Coordinator
from reference_agent.sessions.record import SessionRecord
from reference_agent.terminal.notes import ASK
from reference_agent.terminal.screen import complain, tell
from reference_agent.terminal.setup import Problem, Setup, explained, log_to, open_session, set_up
from reference_agent.turn.agent import Agent
from reference_agent.turn.opening import HeldLog
from reference_agent.turn.runtime import Listener, Results


def run(options: Namespace) -> int:
    try:
        with ExitStack() as stack:
            setup = set_up(options)
            log_to(stack, options.log, setup.config)
            with explained(setup):
                asyncio.run(_serve(options, setup))
    except Problem as problem:
        complain(str(problem))
        return problem.code
    return 0


async def _serve(options: Namespace, setup: Setup) -> None:
    try:
        from reference_agent.service.server import serve  # noqa: PLC0415 - needs the extra `http`
    except ImportError as error:
        raise Problem(
            f"serve needs a package that is not installed: {error.name} (pip install 'chaoskit[http]')"
        ) from None
    with closing(bound(options.host, options.port)) as listening:
        setup.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        coordinator = coordinate(setup, random_id("boot"))
        report = coordinator.boot()

        def ready() -> None:
            tell(f"listening on {address(listening)}; {summary(report)}")

        sweeping = asyncio.create_task(_sweep(coordinator, options.sweep))
        try:
            await serve(coordinator, setup.provider, listening, ready)
        finally:
            sweeping.cancel()
            with suppress(asyncio.CancelledError):
                await sweeping
            await coordinator.close()
            await setup.provider.aclose()


def bound(host: str, port: int) -> socket.socket:
    """Bind the socket before any session is touched; clients cannot connect yet."""
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by every connection: otherwise each small response waits 40 ms for an acknowledgement.
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise Problem(f"cannot listen on {host} port {port}: {error.strerror}") from None
    if not ip_address(found.getsockname()[0]).is_loopback:
        complain(f"{host}: other machines can connect, and there is no authentication")
    return found


def address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def coordinate(setup: Setup, boot: str) -> Coordinator:
    async def open_agent(record: SessionRecord, results: Results, tell: Listener) -> Agent:
        held = HeldLog(record.log, boot)
        return await open_session(setup, record.session, tell=tell, tools=(ASK,), results=results, held=held)

    recovery = RecoveryManager(boot, system_clock)
    return Coordinator(setup.directory, open_agent=open_agent, recovery=recovery, clock=system_clock)


def summary(report: BootReport) -> str:
    statuses = list(report.status.values())
    found = f"{report.boot_id}: {len(statuses)} sessions"
    for status in sorted(set(statuses) - {"idle"}):
        found += f", {statuses.count(status)} {status}"
    return found + "".join(f"; {name}: {reason}" for name, reason in report.failed.items())


async def _sweep(coordinator: Coordinator, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        await coordinator.sweep()
