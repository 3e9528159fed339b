"""Connection: what uvicorn does not limit about a connection is limited here.

    uvicorn     idle between two requests (`timeout_keep_alive`); requests in progress (`limit_concurrency`)
    Connection  a request that does not arrive, a response that is not read, connections that send nothing
    Shedding    accept() without a free descriptor: the client is answered 503 instead of being left to wait

Without these limits a client that opens connections and says nothing, or says it one byte at a time, takes
every descriptor of the process, and runs in progress can no longer open their files.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import resource
import socket
from contextlib import suppress
from typing import Any

import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST = 20.0  # seconds for a request to arrive, headers and body
STALLED = 30.0  # seconds that a client may leave a full buffer unread
MOST = 1000  # connections, however many descriptors there are
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)  # those for which asyncio retries
REPORT_EVERY = 60.0  # seconds between two lines about missing descriptors
PROBLEM = json.dumps({"error": {"code": "overloaded", "message": "too many connections: try again later"}})
OVERLOADED = (
    "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n"
    f"retry-after: 1\r\ncontent-length: {len(PROBLEM)}\r\n\r\n{PROBLEM}"
).encode()

log = logging.getLogger("uvicorn.error")  # to stderr, where an operator without --log sees it


class Room(msgspec.Struct, frozen=True):
    """How many connections the process can afford. The other descriptors are for the files of sessions."""

    served: int  # beyond that, a request is answered 503
    accepted: int  # at once: asyncio takes a few more steps to close one, and accepts others in each

    @classmethod
    def here(cls) -> Room:
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        unlimited = descriptors == resource.RLIM_INFINITY
        served = MOST if unlimited else max(4, min(MOST, descriptors // 2))
        return cls(served, max(1, served // 16))


class Connection(H11Protocol):
    _timer: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        served = self.limit_concurrency or MOST
        if len(self.connections) > served + served // 4:  # those in between are answered 503
            transport.abort()
        else:
            self._timer = self.loop.call_later(REQUEST, transport.abort)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._has_request():
            self._timer = self._timer or self.loop.call_later(REQUEST, self.transport.abort)
        elif self._timer:  # counted from the first byte on: later ones do not extend it
            self._timer.cancel()
            self._timer = None

    def _has_request(self) -> bool:
        """Whether a request has arrived completely and is not answered yet."""
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall = self.loop.call_later(STALLED, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall:
            self._stall.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._timer, self._stall):
            if timer:
                timer.cancel()
        super().connection_lost(exc)


class Shedding:
    """The loop's exception handler. asyncio reports every failed accept() to it, and would print a traceback
    for each: thousands per second. A spare descriptor lets it accept and refuse the client instead."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._spare: int | None = None
        self._reserve()
        self._reported = -REPORT_EVERY

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in EXHAUSTED:
            loop.default_exception_handler(context)
            return
        self._refuse_one()
        if loop.time() - self._reported >= REPORT_EVERY:
            self._reported = loop.time()
            log.error("out of file descriptors: refusing connections (ulimit -n sets the limit)")

    def _refuse_one(self) -> None:
        self.close()
        with suppress(OSError):  # nobody is waiting any more, or another thread took the descriptor
            connection, _ = self._listening.accept()
            with connection:
                connection.send(OVERLOADED)
        self._reserve()

    def _reserve(self) -> None:
        with suppress(OSError):  # then the next client waits until there is one
            self._spare = os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        spare, self._spare = self._spare, None  # closed once: the number may belong to another file by then
        if spare is not None:
            os.close(spare)
