"""The same clients over HTTP: a real server and real connections on the loopback interface.

Client and server are in one process, so that one kill ends both, and every response is reported the moment it
arrives. What a client remembers is in the World.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from chaoskit.inside import Life
from chaoskit_scenarios.sessions.event_stream import read_events
from chaoskit_scenarios.sessions.http_target import FOR_EVER, NO_TLS, serving
from chaoskit_scenarios.whole.client import NAMELESS, Refused
from reference_agent.service.coordinator import Coordinator
from reference_agent.service.http_api import application

Json = dict[str, Any]


class OverHttp:
    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    async def create(self, session: str) -> Json:
        return await self._call("POST", "/sessions", {"id": session, "title": session})

    async def post(self, session: str, words: str, request: str) -> Json:
        body = {"content": words, "request_id": request}
        return await self._call("POST", f"/sessions/{session}/messages", body)

    async def outcome(self, session: str, request: str) -> Json | None:
        try:
            return await self._call("GET", f"/sessions/{session}/requests/{request}")
        except Refused as refusal:
            if refusal.code == "unknown_request":
                return None
            raise

    async def resume(self, session: str, token: str, request: str, result: str) -> Json:
        body = {"token": token, "result": result}
        if request != NAMELESS:
            body["request_id"] = request
        return await self._call("POST", f"/sessions/{session}/resume", body)

    async def rotate(self, session: str) -> Json:
        return await self._call("POST", f"/sessions/{session}/token")

    async def go_on(self, session: str) -> Json:
        return await self._call("POST", f"/sessions/{session}/continue")

    async def cancel(self, session: str) -> Json:
        return await self._call("POST", f"/sessions/{session}/cancel")

    async def read(self, session: str) -> Json:
        found = await self._call("GET", f"/sessions/{session}")
        run = found.get("run") or {}
        answered = {message.get("call_id") for message in found["messages"]}
        calls = [call["id"] for message in found["messages"] for call in message.get("calls", ())]
        open_calls = [call for call in calls if call not in answered]
        return {"state": found["status"], "run": run.get("run_id"), "end": run.get("end"), "open": open_calls}

    async def _call(self, method: str, path: str, body: Json | None = None) -> Json:
        response = await self._http.request(method, path, json=body)
        found: Json = response.json()
        if response.status_code >= 400:
            error = found["error"]
            if error["code"] == "internal":
                raise RuntimeError(f"{method} {path}: {error['message']}")
            raise Refused(error["code"])
        return found

    async def events(self, life: Life, session: str, newest: int) -> None:
        await read_events(life, self._http, session, newest, key=f"last-event/{session}", of=session)


@asynccontextmanager
async def over_http(coordinator: Coordinator, new_id: Callable[[str], str]) -> AsyncIterator[OverHttp]:
    app = application(coordinator, new_id, provider="scripted", model="scripted-1")
    async with (
        serving(app) as address,
        httpx2.AsyncClient(base_url=address, timeout=FOR_EVER, verify=NO_TLS) as http,
    ):
        yield OverHttp(http)
