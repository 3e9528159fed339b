"""Serves the HTTP API on a socket with uvicorn until a signal ends it."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable

import uvicorn

from reference_agent.ids import random_id
from reference_agent.providers.base import Provider
from reference_agent.service.coordinator import Coordinator
from reference_agent.service.http_api import application

PATIENCE = 3  # seconds that open streams get when the server stops


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, coordinator: Coordinator) -> None:
        super().__init__(config)
        self._coordinator = coordinator

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._coordinator.stop()  # first: notifies waiting and watching clients, who then leave
        await super().shutdown(sockets)


async def serve(
    coordinator: Coordinator, provider: Provider, listening: socket.socket, ready: Callable[[], None]
) -> None:
    """`ready` is called once connections will be served."""
    config = uvicorn.Config(
        application(coordinator, random_id, provider=provider.name, model=provider.model),
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=PATIENCE,
    )
    server = Server(config, coordinator)
    for ending in (signal.SIGINT, signal.SIGTERM):
        # Installed before uvicorn installs its handlers, and kept after it: uvicorn re-raises captured
        # signals when it is done, but this process still has work to do.
        signal.signal(ending, server.handle_exit)
    listening.listen()
    ready()
    await server.serve(sockets=[listening])
