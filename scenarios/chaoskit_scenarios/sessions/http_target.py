"""The agent behind its HTTP API as a target: a real server and a real client, on a loopback socket.

The client runs in the target's process, so that one kill ends both, and each response is acknowledged the
moment it arrives. What the client remembers (the last event that it saw) is stored in the World.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import uvicorn

from chaoskit.inside import Life
from chaoskit_scenarios import inloop
from chaoskit_scenarios.agent.target import SESSION, report_meant
from chaoskit_scenarios.sessions.event_stream import read_events
from chaoskit_scenarios.sessions.target import Services, log_of
from reference_agent.service.http_api import application

# With a virtual clock every timeout would expire at once.
FOR_EVER = httpx2.Timeout(None)
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # loading certificates takes 60 ms, in every life
OBSERVED = ("status.derived", "run.interrupted")


def main(life: Life) -> None:
    inloop.run(_main(life))


async def _main(life: Life) -> None:
    services = Services(life)
    report_meant(life)
    await services.start()
    app = application(services.coordinator, services.new_id, provider="scripted", model="scripted-1")
    async with (
        serving(app) as address,
        httpx2.AsyncClient(base_url=address, timeout=FOR_EVER, verify=NO_TLS) as http,
    ):
        client = Client(life, http)
        await client.create()
        for number, request in enumerate(life.workload["requests"]):
            with life.operation("say", request=number) as operation:
                operation.result = await client.ask(f"request-{number}", request)
            await client.catch_up()
    await services.finish()


@asynccontextmanager
async def serving(app: Any, *, at: str | None = None) -> AsyncIterator[str]:
    """uvicorn in this loop, without its signal handlers and its clock. `at`: a Unix socket's address."""
    listening = _listening(at)
    config = uvicorn.Config(
        app, lifespan="off", ws="none", log_config=None, access_log=False, timeout_keep_alive=10**6
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listening])
    try:
        yield "http://localhost" if at else f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.force_exit = True
        await server.shutdown(sockets=[listening])


def _listening(at: str | None) -> socket.socket:
    if at is not None:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(at)
        listening.listen()
        return listening
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as in `reference-agent serve`
    return listening


class Client:
    def __init__(self, life: Life, http: httpx2.AsyncClient) -> None:
        self._life = life
        self._http = http

    async def create(self) -> None:
        await self._call("POST", "/sessions", {"id": SESSION, "title": "payments"})

    async def ask(self, name: str, request: dict[str, Any]) -> str | None:
        """Repeat the request until there is an answer; a crash in between is not the client's concern."""
        place = f"/sessions/{SESSION}"
        said = {"content": request["content"], "request_id": name}
        accepted = await self._call("POST", f"{place}/messages", said)
        self._life.ack("told", request=name, state=accepted["state"], answer=accepted.get("answer"))
        outcome = await self._call("POST", f"{place}/messages", {**said, "wait": True})
        if outcome["state"] == "running":
            outcome = await self._call("GET", f"{place}/requests/{name}", None)
        if outcome["state"] == "waiting" and "token" in outcome:
            brought = {"token": outcome["token"], "result": "yes", "request_id": name}
            await self._call("POST", f"{place}/resume", brought)
            token = outcome["token"].partition(".")[0]
            self._life.ack("resumed", token=token, request=name, result="yes", again=False)
            outcome = await self._call("GET", f"{place}/requests/{name}", None)
        self._life.ack("told", request=name, state=outcome["state"], answer=outcome.get("answer"))
        answer: str | None = outcome.get("answer")
        return answer

    async def catch_up(self) -> None:
        """Read the stream from the last event seen to its end."""
        lines = [json.loads(line) for line in log_of(self._life.directory)]
        newest = max(line["seq"] for line in lines if line["kind"] in OBSERVED)
        await read_events(self._life, self._http, SESSION, newest)

    async def _call(self, method: str, path: str, body: Any) -> dict[str, Any]:
        response = await self._http.request(method, path, json=body)
        found: dict[str, Any] = response.json()
        if response.status_code >= 400:
            raise RuntimeError(f"{method} {path}: {response.status_code} {found}")
        return found
