"""Serves the HTTP API on a socket with uvicorn until a signal ends it."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Collection
from contextlib import closing

import uvicorn

from reference_agent.ids import random_id
from reference_agent.providers.base import Provider
from reference_agent.service.connections import Connection, Room, Shedding
from reference_agent.service.coordinator import Coordinator
from reference_agent.service.http_api import application

PATIENCE = 3  # seconds that open streams get when the server stops
QUEUE = 128  # connections that the kernel keeps until they are accepted
IDLE = 5  # seconds until a connection is closed on which no further request arrives


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, coordinator: Coordinator) -> None:
        super().__init__(config)
        self._coordinator = coordinator

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(QUEUE)  # again: asyncio made it as long as the number that it accepts at once

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._coordinator.stop()  # first: notifies waiting and watching clients, who then leave
        await super().shutdown(sockets)

    @property
    def signal(self) -> int:
        """The signal that ended it."""
        return self._captured_signals[0]


async def serve(
    coordinator: Coordinator,
    provider: Provider,
    listening: socket.socket,
    ready: Callable[[], None],
    *,
    hosts: Collection[str],
) -> int:
    """Return the signal that ended the server. `ready` is called once connections will be served."""
    room = Room.here()
    config = uvicorn.Config(
        application(coordinator, random_id, provider=provider.name, model=provider.model, hosts=hosts),
        http=Connection,
        log_level="error",  # a warning for each malformed request would let any client fill a disk
        access_log=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        limit_concurrency=room.served,
        backlog=room.accepted,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=PATIENCE,
    )
    server = Server(config, coordinator)
    for ending in (signal.SIGINT, signal.SIGTERM):
        # Installed before uvicorn installs its handlers, and kept after it: uvicorn re-raises captured
        # signals when it is done, but this process still has work to do.
        signal.signal(ending, server.handle_exit)
    with closing(Shedding(listening)) as shedding:
        asyncio.get_running_loop().set_exception_handler(shedding)
        listening.listen(QUEUE)
        ready()
        await server.serve(sockets=[listening])
    return server.signal
