"""The HTTP API: translates requests into coordinator calls, and outcomes into JSON.

    POST /sessions                      {"id"?, "title"?}                    201 it exists, new or not
    GET  /sessions                                                           200 all of them
    GET  /sessions/ID                                                        200 with its messages
    GET  /sessions/ID/status                                                 200 derived, never stored
    POST /sessions/ID/messages          {"content", "request_id"?, "wait"?}  202 accepted | 200 outcome
    GET  /sessions/ID/requests/REQUEST                                       200 its outcome
    POST /sessions/ID/resume            {"token", "result", "request_id"?}   202 resumed, once
    POST /sessions/ID/token                                                  200 a new token, once
    POST /sessions/ID/continue                                               202 interrupted run resumed
    POST /sessions/ID/cancel                                                 200 the outcome
    GET  /sessions/ID/events            Last-Event-ID                        200 text/event-stream

An error is returned as {"error": {"code", "message"}} and means that nothing was done; after a 503 the
client may retry under the same id. 202 means durable: a kill right after it loses nothing. `request_id`
makes a retry safe (other content under the same id is a 409); without one, a retry is a new request. An
event's id is its seq in the session's log, so a client that reconnects with `Last-Event-ID` misses nothing,
even across a restart.

There is no login. Requests from web pages open in a browser on this machine are rejected: by their `Origin`
or `Sec-Fetch-Site`, and if the page made its own name point to this machine (DNS rebinding), by their `Host`.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

import msgspec
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from reference_agent.ids import BadSessionId, NewId
from reference_agent.logs.structured import get_logger
from reference_agent.service.coordinator import Busy, Coordinator, NothingToDo, Stopping
from reference_agent.service.outcome import Outcome, View
from reference_agent.sessions.artifacts import Damaged
from reference_agent.sessions.record import UnknownSession
from reference_agent.sessions.tokens import TokenRefused
from reference_agent.store.backlog import FAILURES, NotDurable
from reference_agent.store.database import CorruptStore, NewerStore
from reference_agent.store.event_log import DamagedLog
from reference_agent.store.kinds import WrongStore
from reference_agent.store.lock import SessionBusy
from reference_agent.store.records import OtherContent

log = get_logger(__name__)
LARGEST_BODY = 1 << 20
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
# A name or an address, and a port. The port is not compared: a forwarded port is no attack.
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:/@\[\]]+)(:\d{1,5})?")
T = TypeVar("T")
RequestId = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
# An error in one session must not hide the others.
UNREADABLE = (SessionBusy, DamagedLog, Damaged, CorruptStore, NewerStore, WrongStore, *FAILURES)


class Create(msgspec.Struct, forbid_unknown_fields=True):
    id: str | None = None
    title: str = ""


class Post(msgspec.Struct, forbid_unknown_fields=True):
    content: Annotated[str, msgspec.Meta(min_length=1)]
    request_id: RequestId | None = None
    wait: bool = False


class Resume(msgspec.Struct, forbid_unknown_fields=True):
    token: str
    result: str
    request_id: RequestId | None = None


class HttpProblem(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def application(
    coordinator: Coordinator, new_id: NewId, *, provider: str, model: str, hosts: Collection[str] = LOOPBACK
) -> Starlette:
    """`hosts`: the names under which clients may address this server, as in a `Host` header without port."""
    api = Api(coordinator, new_id, provider, model)
    one = "/sessions/{name}"
    routes = [
        Route("/sessions", api.create, methods=["POST"]),
        Route("/sessions", api.listed, methods=["GET"]),
        Route(one, api.read, methods=["GET"]),
        Route(f"{one}/status", api.status, methods=["GET"]),
        Route(f"{one}/messages", api.post, methods=["POST"]),
        Route(f"{one}/requests/{{request_id:path}}", api.outcome, methods=["GET"]),
        Route(f"{one}/resume", api.resume, methods=["POST"]),
        Route(f"{one}/token", api.rotate, methods=["POST"]),
        Route(f"{one}/continue", api.go_on, methods=["POST"]),
        Route(f"{one}/cancel", api.cancel, methods=["POST"]),
        Route(f"{one}/events", api.events, methods=["GET"]),
    ]
    middleware = [Middleware(NoForeignPages, hosts=frozenset(host.lower() for host in hosts))]
    app = Starlette(routes=routes, exception_handlers=HANDLERS, middleware=middleware)
    app.router.redirect_slashes = False  # only responses and errors of this API
    return app


class NoForeignPages:
    """A browser sends whatever a page tells it to, but says where the page is from. None may use this API.

    `Origin` and `Sec-Fetch-Site` name the page. A page whose own name resolves to this machine counts as ours
    for the browser, which then sends neither; `Host` is the name that it used. (Starlette's
    TrustedHostMiddleware answers in plain text, and every error of this API is JSON.)
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(Headers(scope=scope)) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        found = HOST.fullmatch(host.lower())
        if found is None or found[1] not in self._hosts:
            known = ", ".join(sorted(self._hosts))
            return problem(403, "foreign_host", f"Host: expected one of {known}, found {host[:80]!r}")
        site = headers.get("sec-fetch-site", "none")
        if "origin" in headers or site not in ("none", "same-origin"):
            return problem(403, "foreign_origin", "expected no Origin: web pages may not use this API")
        return None


class Api:
    def __init__(self, coordinator: Coordinator, new_id: NewId, provider: str, model: str) -> None:
        self._coordinator = coordinator
        self._new_id = new_id
        self._provider = provider
        self._model = model

    async def create(self, request: Request) -> Response:
        body = await decoded(request, Create)
        name = self._new_id("sess") if body.id is None else body.id
        view = await self._coordinator.create(
            name, title=body.title, provider=self._provider, model=self._model
        )
        return answer(described(view), 201)

    async def listed(self, _request: Request) -> Response:
        sessions: list[dict[str, Any]] = []
        for name in self._coordinator.names():
            try:
                sessions.append(described(await self._coordinator.glance(name)))
            except UnknownSession:
                pass  # a crash came before its first line
            except UNREADABLE as error:
                sessions.append({"id": name, "error": str(error)})
        return answer({"sessions": sessions})

    async def read(self, request: Request) -> Response:
        view = await self._coordinator.read(name_in(request))
        return answer({**described(view), "messages": view.messages})

    async def status(self, request: Request) -> Response:
        session = await self._coordinator.session(name_in(request))
        view = self._coordinator.look(session)
        return answer({"id": view.snapshot.id, "status": view.status})

    async def post(self, request: Request) -> Response:
        body = await decoded(request, Post)
        name = name_in(request)
        request_id = body.request_id or self._new_id("req")
        accepted = await self._coordinator.post(name, body.content, request_id)
        if body.wait:
            return answer(await self._told(request, name, request_id) or accepted)
        return answer(accepted, 202 if accepted.state == "running" else 200)

    async def outcome(self, request: Request) -> Response:
        request_id = request.path_params["request_id"]
        found = await self._told(request, name_in(request), request_id)
        if found is None:
            raise HttpProblem(
                404,
                "unknown_request",
                f"request {request_id[:80]!r} is not running and has no outcome:"
                " continue it, or post it again with the same id",
            )
        return answer(found)

    async def _told(self, request: Request, name: str, request_id: str) -> Outcome | None:
        """Return the outcome only to a client that is still connected: a token is handed out once."""
        await while_there(request, self._coordinator.ended(name, request_id))
        return await self._coordinator.outcome(name, request_id)

    async def resume(self, request: Request) -> Response:
        body = await decoded(request, Resume)
        # Without an id, a client that sends the same result is treated as the same client retrying.
        request_id = body.request_id or digest(body.result)
        done = await self._coordinator.resume(name_in(request), body.token, request_id, body.result)
        return answer(done, 202)

    async def rotate(self, request: Request) -> Response:
        return answer(await self._coordinator.rotate(name_in(request)))

    async def go_on(self, request: Request) -> Response:
        return answer(await self._coordinator.go_on(name_in(request)), 202)

    async def cancel(self, request: Request) -> Response:
        name = name_in(request)
        done = await self._coordinator.cancel(name)
        if done.state != "running":
            return answer(done)
        return answer(await self._told(request, name, done.request_id) or done)

    async def events(self, request: Request) -> Response:
        name = name_in(request)
        session = await self._coordinator.session(name)  # an unknown session is an error, not an empty stream
        after = last_seen(request, len(session.record.events))
        return EventSourceResponse(self._sent(name, after))

    async def _sent(self, name: str, after: int) -> AsyncIterator[ServerSentEvent]:
        async for event in self._coordinator.watch(name, after):
            kind = "status" if event["kind"] == "status.derived" else "interruption"
            data = msgspec.json.encode(event).decode()
            yield ServerSentEvent(data=data, event=kind, id=str(event["seq"]))


# --- in and out


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def name_in(request: Request) -> str:
    return str(request.path_params["name"])


def last_seen(request: Request, newest: int) -> int:
    """The seq after which a client's stream begins. A client without `Last-Event-ID` gets all events."""
    given = request.headers.get("last-event-id", "0")
    if not given.isascii() or not given.isdigit() or len(given) > 18:
        raise HttpProblem(400, "bad_event_id", f"Last-Event-ID: expected a number, found {given[:40]!r}")
    return min(int(given), newest)


async def while_there(request: Request, work: Coroutine[Any, Any, None]) -> None:
    """Wait as long as the client is connected."""
    wait, leave = asyncio.create_task(work), asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({wait, leave}, return_when=asyncio.FIRST_COMPLETED)
        if not wait.done():
            raise ClientDisconnect
        wait.result()
    finally:
        wait.cancel()
        leave.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def decoded(request: Request, kind: type[T]) -> T:
    too_large = HttpProblem(413, "too_large", f"the body: expected at most {LARGEST_BODY} bytes")
    if int(request.headers.get("content-length", 0)) > LARGEST_BODY:
        raise too_large  # before the client sends any of it
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            raise too_large
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HttpProblem(400, "bad_body", f"the body: {error}") from None


def described(view: View) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(view.snapshot)
    return {**found, "status": view.status}


def answer(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content) + b"\n", status, media_type="application/json")


Handler = Callable[[Request, Exception], Awaitable[Response]]


def refused(status: int, code: str) -> Handler:
    async def handle(_request: Request, error: Exception) -> Response:
        return problem(status, code, str(error))

    return handle


def problem(status: int, code: str, message: str) -> Response:
    return answer({"error": {"code": code, "message": message}}, status)


async def _problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpProblem)
    return problem(error.status, error.code, str(error))


async def _token(_request: Request, error: Exception) -> Response:
    assert isinstance(error, TokenRefused)
    gone = error.code in ("expired", "consumed", "revoked")
    return problem(409 if gone else 403, f"token_{error.code}", str(error))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = HTTPStatus(error.status_code).name.lower()  # not_found, method_not_allowed
    response = problem(error.status_code, code, f"{error.detail}: {request.method} {request.url.path[:80]}")
    response.headers.update(error.headers or {})
    return response


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("http.failed", path=request.url.path, error=error)
    return problem(500, "internal", f"{type(error).__name__}: see the server's log")


HANDLERS: dict[Any, Handler] = {
    HttpProblem: _problem,
    TokenRefused: _token,
    HTTPException: _http,
    BadSessionId: refused(400, "bad_session_id"),
    UnknownSession: refused(404, "unknown_session"),
    SessionBusy: refused(409, "session_busy"),
    Busy: refused(409, "busy"),
    OtherContent: refused(409, "request_id_reused"),
    NothingToDo: refused(409, "nothing_to_do"),
    NotDurable: refused(503, "not_durable"),
    Stopping: refused(503, "stopping"),
    ClientDisconnect: refused(400, "disconnected"),  # the client is gone
    WrongStore: refused(409, "wrong_store"),
    **dict.fromkeys((DamagedLog, Damaged, CorruptStore, NewerStore), refused(500, "damaged")),
    **dict.fromkeys(FAILURES, refused(503, "not_durable")),
    Exception: _unexpected,
}
