"""ModelServer: assigns faults to requests, and keeps the record. See the package docstring (W1 to W3)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Self

import h11
import msgspec

from chaoskit.model_server import replies
from chaoskit.model_server.connection import Connection
from chaoskit.model_server.faults import STATUS, Misbehaviour
from chaoskit.model_server.replies import Json, Reply, Script

PATH = b"/v1/chat/completions"
JSON_TYPE = ("Content-Type", "application/json")
STREAM_HEAD = [("Content-Type", "text/event-stream; charset=utf-8"), ("Cache-Control", "no-cache")]
BROKEN = b'{"id": "chatcmpl-0", "object": "chat.com'


class Seen(msgspec.Struct, frozen=True):
    """One request; `fault` and `refused` record how it was answered."""

    number: int
    body: Any
    authorized: bool
    sdk_retry: str | None  # x-stainless-retry-count, by which the openai SDK tells attempts apart
    fault: Misbehaviour | None
    refused: str | None

    @property
    def answered(self) -> bool:
        """Whether it got a complete, correct answer."""
        return self.refused is None and (self.fault is None or self.fault.kind == "slow")


OnRequest = Callable[[Seen], None]


class ModelServer:
    """`with` runs it in a thread, `async with` in the running loop. `url` is a client's base URL."""

    def __init__(
        self,
        misbehaviours: Sequence[Misbehaviour | None] = (),
        *,
        script: Script | None = None,
        port: int = 0,
        on_request: OnRequest | None = None,
    ) -> None:
        self._faults = iter(list(misbehaviours))
        self._script = script
        self._port = port
        self._on_request = on_request
        self._seen: list[Seen] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._thread: _OwnThread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def requests(self) -> tuple[Seen, ...]:
        """The requests so far, in order of arrival (W1)."""
        return tuple(self._seen)

    @property
    def answered(self) -> int:
        """How many requests got a complete, correct answer."""
        return sum(request.answered for request in self.requests)

    def __enter__(self) -> Self:
        self._thread = _OwnThread(self)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._thread is not None
        self._thread.stop()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection = Connection(reader, writer)
        try:
            await self._converse(connection)
            connection.close()
        # Cancellation means that the server is closed (W3), and a client may disconnect at any time.
        # Neither may fail the task: Python 3.11 would report it as an error of the event loop.
        except (asyncio.CancelledError, ConnectionError, h11.RemoteProtocolError):
            connection.abort()
        finally:
            self._tasks.discard(task)

    async def _converse(self, connection: Connection) -> None:
        while (asked := await connection.request()) is not None:
            await self._answer(connection, *asked)
            if not connection.go_on():
                return

    async def _answer(self, connection: Connection, head: h11.Request, content: bytes) -> None:
        if head.target.partition(b"?")[0] != PATH or head.method != b"POST":
            await respond(connection, 404, replies.error("only POST " + PATH.decode(), "not_found"))
            return
        seen = self._record(head, content)
        if seen.refused is not None:
            await respond(connection, 400, replies.error(seen.refused, "invalid_request_error"))
            return
        exchange = Exchange(connection, seen.body, replies.reply_to(seen.body, self._script, seen.number))
        await exchange.carry_out(seen.fault)

    def _record(self, head: h11.Request, content: bytes) -> Seen:
        body = decoded(content)
        refused = replies.complaint(body)
        fault = next(self._faults, None) if refused is None else None
        headers = dict(head.headers)
        sdk_retry = headers.get(b"x-stainless-retry-count")
        seen = Seen(
            number=len(self._seen) + 1,
            body=body,
            authorized=b"authorization" in headers,
            sdk_retry=None if sdk_retry is None else sdk_retry.decode(),
            fault=fault,
            refused=refused,
        )
        self._seen.append(seen)
        if self._on_request is not None:
            self._on_request(seen)
        return seen


class Exchange:
    """One reply, and the ways in which it may fail to arrive."""

    def __init__(self, connection: Connection, body: Json, reply: Reply) -> None:
        self._connection = connection
        self._reply = reply
        self._streamed = bool(body.get("stream"))
        options = body.get("stream_options") or {}
        self._with_usage = bool(options.get("include_usage"))

    async def carry_out(self, fault: Misbehaviour | None) -> None:
        if fault is None:
            await self._send(self._parts())
        elif fault.kind in STATUS:
            await self._refuse(fault)
        else:
            await getattr(self, f"_{fault.kind}")(fault)

    def _parts(self, *, finished: bool = True) -> list[bytes]:
        """The reply as sent: events, or two halves."""
        if self._streamed:
            return replies.events(self._reply, with_usage=self._with_usage, finished=finished)
        content = replies.whole(self._reply, finished=finished)
        return [content[: len(content) // 2], content[len(content) // 2 :]]

    async def _send(self, parts: Sequence[bytes], *, seconds: float = 0.0) -> None:
        await self._start(parts)
        if seconds:
            await asyncio.sleep(seconds)
        await self._pass(parts)
        await self._connection.end()

    async def _start(self, parts: Sequence[bytes]) -> None:
        length = ("Content-Length", str(sum(map(len, parts))))
        await self._connection.head(200, STREAM_HEAD if self._streamed else [JSON_TYPE, length])

    async def _pass(self, parts: Sequence[bytes]) -> None:
        for part in parts:
            await self._connection.data(part)

    async def _refuse(self, fault: Misbehaviour) -> None:
        status = STATUS[fault.kind]
        content = replies.error(f"scripted misbehaviour: {fault.kind}", fault.kind)
        await respond(self._connection, status, content, retry_after=fault.retry_after)

    async def _timeout(self, _fault: Misbehaviour) -> None:
        await self._connection.client_leaves()

    async def _reset(self, fault: Misbehaviour) -> None:
        if fault.after:
            await self._begin(fault)
        self._connection.reset()

    async def _cut(self, fault: Misbehaviour) -> None:
        await self._begin(fault)
        self._connection.close()

    async def _begin(self, fault: Misbehaviour) -> None:
        """Sends as many parts as the fault allows, but never the last."""
        parts = self._parts()
        await self._start(parts)
        await self._pass(parts[: min(fault.after, len(parts) - 1)])

    async def _unfinished(self, _fault: Misbehaviour) -> None:
        await self._send(self._parts(finished=False))

    async def _malformed(self, fault: Misbehaviour) -> None:
        parts = self._parts()
        if not self._streamed:
            await self._send([BROKEN])
            return
        place = min(fault.after, len(parts) - 1)
        await self._send([*parts[:place], replies.event(BROKEN), *parts[place:]])

    async def _slow(self, fault: Misbehaviour) -> None:
        await self._send(self._parts(), seconds=fault.seconds)


async def respond(
    connection: Connection, status: int, content: bytes, *, retry_after: str | None = None
) -> None:
    headers = [JSON_TYPE, ("Content-Length", str(len(content)))]
    if retry_after is not None:
        headers.append(("Retry-After", retry_after))
    await connection.head(status, headers)
    await connection.data(content)
    await connection.end()


def decoded(content: bytes) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(content)
    return None


class _OwnThread:
    """A thread with its own event loop, for a server that is used from synchronous code."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._run, name="model-server", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ready.result()

    def stop(self) -> None:
        loop, stopping = self._ready.result()
        loop.call_soon_threadsafe(stopping.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        stopping = asyncio.Event()
        try:
            async with self._server:
                self._ready.set_result((asyncio.get_running_loop(), stopping))
                await stopping.wait()
        except OSError as error:  # for example, the port is in use: start() raises it
            self._ready.set_exception(error)
