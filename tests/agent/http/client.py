"""A server on a real socket, and a client with one method per API call."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx2
from chaoskit_scenarios.sessions.http_target import NO_TLS, serving

from reference_agent.service.http_api import application

LIMIT = 20.0  # seconds, for what would otherwise hang


class Client:
    """A client with one method per API call."""

    def __init__(self, http):
        self.http = http

    async def __call__(self, method, path, body=None, *, expect=200, **how):
        if body is not None:
            how["json"] = body
        response = await self.http.request(method, path, **how)
        assert response.status_code == expect, response.text
        assert response.headers["content-type"] == "application/json"
        return response.json()

    async def error(self, status, code, method, path, body=None, **how):
        found = await self(method, path, body, expect=status, **how)
        assert set(found) == {"error"}
        assert set(found["error"]) == {"code", "message"}
        assert found["error"]["code"] == code, found
        return found["error"]["message"]

    async def say(self, content, request, session="s"):
        said = {"content": content, "request_id": request, "wait": True}
        return await self("POST", f"/sessions/{session}/messages", said)

    async def events(self, last=None, most=None, session="s", until=None):
        """(id, event, data) of a stream, up to `most` or until an id; then disconnects."""
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        found, event = [], {}
        async with self.http.stream("GET", f"/sessions/{session}/events", headers=headers) as response:
            assert response.status_code == 200
            assert response.headers["content-type"].startswith("text/event-stream")
            async for line in response.aiter_lines():
                name, _, value = line.partition(": ")
                if name:
                    event[name] = value
                elif "id" in event:
                    found.append((int(event["id"]), event["event"], json.loads(event["data"])))
                    event = {}
                    if len(found) == most or found[-1][0] == until:
                        break
        return found


@asynccontextmanager
async def served(service):
    """A server for the coordinator of this boot, and its client."""
    app = application(service.coordinator, service.new_id, provider="local", model="m")
    async with (
        serving(app) as address,
        httpx2.AsyncClient(base_url=address, timeout=LIMIT, verify=NO_TLS) as http,
    ):
        yield Client(http)


def run(service, main):
    async def whole():
        await service.boot()
        try:
            async with asyncio.timeout(3 * LIMIT), served(service) as client:
                await main(client)
        finally:
            await service.coordinator.close()

    asyncio.run(whole())


def quoted(text):
    return "".join(f"%{byte:02x}" for byte in text.encode()).encode()


def connected(client):
    place = urlsplit(str(client.http.base_url))
    return socket.create_connection((place.hostname, place.port), timeout=LIMIT)


async def until(holds):
    """Poll: server and client share this loop, and neither signals what is awaited."""
    async with asyncio.timeout(LIMIT):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0)


def raw(method, path, body=b""):
    head = f"{method} /sessions/s{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
