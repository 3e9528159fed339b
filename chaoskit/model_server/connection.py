"""One client's socket: incoming requests follow HTTP, outgoing answers may violate it.

h11 does no I/O of its own, so an exchange can simply be abandoned halfway: the bytes sent so far are
valid, and the rest never arrives.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence

import h11

Headers = Sequence[tuple[str, str]]
RST_ON_CLOSE = struct.pack("ii", 1, 0)  # linger for 0 seconds: closing sends RST instead of FIN


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER)

    async def request(self) -> tuple[h11.Request, bytes] | None:
        """The next request with its body, or None when the client has no more."""
        head = await self._next_event()
        if not isinstance(head, h11.Request):
            return None
        body = bytearray()
        while isinstance(part := await self._next_event(), h11.Data):
            body += part.data
        return (head, bytes(body)) if isinstance(part, h11.EndOfMessage) else None

    async def _next_event(self) -> h11.Event | type[h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._reader.read(65536))
        assert not isinstance(event, type) or event is h11.PAUSED
        return event

    async def head(self, status: int, headers: Headers) -> None:
        await self._send(h11.Response(status_code=status, headers=list(headers)))

    async def data(self, content: bytes) -> None:
        await self._send(h11.Data(data=content))

    async def end(self) -> None:
        await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()

    def go_on(self) -> bool:
        """Whether the exchange is complete and the connection can take another."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def client_leaves(self) -> None:
        """Wait until the client closes the connection, sending nothing."""
        while await self._reader.read(65536):
            pass

    def reset(self) -> None:
        sock: socket.socket = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST_ON_CLOSE)
        self._writer.transport.abort()

    def close(self) -> None:
        """Sends buffered data, then FIN; an incomplete body stays incomplete."""
        self._writer.close()

    def abort(self) -> None:
        self._writer.transport.abort()
