"""`reference-agent serve`: wires the services together behind the HTTP API.

The boot sweep finishes before the socket listens, so no client ever sees a status from before the restart.
"""

from __future__ import annotations

import asyncio
import socket
from argparse import Namespace
from contextlib import closing, suppress
from ipaddress import ip_address

from reference_agent.ids import random_id, system_clock
from reference_agent.recovery.manager import BootReport, RecoveryManager
from reference_agent.service.coordinator import Coordinator
from reference_agent.sessions.record import SessionRecord
from reference_agent.terminal.notes import ASK
from reference_agent.terminal.problems import Problem
from reference_agent.terminal.screen import complain, counted, tell
from reference_agent.terminal.setup import Setup, open_session, prepared
from reference_agent.turn.agent import Agent
from reference_agent.turn.opening import HeldLog
from reference_agent.turn.runtime import Listener, Results


def run(options: Namespace) -> int:
    with prepared(options) as setup:
        ended_by = asyncio.run(_serve(options, setup))
    return 128 + ended_by  # as a shell reports it: 130 after Ctrl-C, 143 after SIGTERM


async def _serve(options: Namespace, setup: Setup) -> int:
    """Return the signal that ended it."""
    try:
        from reference_agent.service.http_api import LOOPBACK  # noqa: PLC0415 - needs the extra `http`
        from reference_agent.service.server import serve  # noqa: PLC0415
    except ImportError as error:
        raise Problem(
            f"serve needs a package that is not installed: {error.name} (pip install 'chaoskit[http]')"
        ) from None
    with closing(bound(options.host, options.port)) as listening:
        setup.make_directory()
        coordinator = coordinate(setup, random_id("boot"))
        report = coordinator.boot()

        def ready() -> None:
            tell(f"listening on {address(listening)}; {summary(report)}")

        sweeping = asyncio.create_task(_sweep(coordinator, options.sweep))
        try:
            hosts = {*LOOPBACK, *own_names(options.host, listening), *options.allow_host}
            return await serve(coordinator, setup.provider, listening, ready, hosts=hosts)
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
    except (OSError, TypeError, UnicodeError) as error:  # the last two: no encoding for such a name
        found.close()
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise Problem(f"cannot listen on {host} port {port}: {reason}") from None
    if not ip_address(found.getsockname()[0]).is_loopback:
        complain(f"{host}: other machines can connect, and there is no authentication{_unnamed(host, found)}")
    return found


def _unnamed(host: str, listening: socket.socket) -> str:
    if own_names(host, listening):
        return ""
    return "; --allow-host NAME lets clients use this machine's name or address"


def own_names(host: str, listening: socket.socket) -> set[str]:
    """The names in `Host` headers that --host implies. A wildcard address implies none: it is no name."""
    found = listening.getsockname()[0]
    ip = ip_address(found)
    if (getattr(ip, "ipv4_mapped", None) or ip).is_unspecified:
        return set()
    return {f"[{name}]" if ":" in name else name for name in (host, found)}


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
    found = f"{report.boot_id}: {counted(len(statuses), 'session')}"
    for status in sorted(set(statuses) - {"idle"}):
        found += f", {statuses.count(status)} {status}"
    return found + "".join(f"; {name}: {reason}" for name, reason in report.failed.items())


async def _sweep(coordinator: Coordinator, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        await coordinator.sweep()
