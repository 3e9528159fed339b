"""The model behind a real HTTP service: the agent's own provider asks it there.

Over a Unix socket, because the kernel delivers at once what is sent. Over TCP, even on the loopback
interface, it may come later on a busy machine, and a life would not be repeatable.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from chaoskit_scenarios.sessions.http_target import NO_TLS, serving
from chaoskit_scenarios.whole.plugins import CutOff, Model
from reference_agent.messages import Message
from reference_agent.providers import openai_wire
from reference_agent.providers.base import Answer, ModelError, Usage
from reference_agent.providers.openai_http import OpenAIProvider

LIMITS = httpx2.Limits(max_connections=8, max_keepalive_connections=2)
NUMBERS = itertools.count()
PATIENCE = 1000.0  # seconds of virtual time, which passes while nothing is on its way


class ModelService:
    """One service for all sessions, each with a model of its own."""

    def __init__(self, socket: str) -> None:
        self.address = ""
        self._models: dict[str, Model] = {}
        transport = httpx2.AsyncHTTPTransport(uds=socket, verify=NO_TLS, limits=LIMITS)
        # One for all: a connection takes two of the descriptors that the process may have.
        self._client = httpx2.AsyncClient(timeout=PATIENCE, transport=transport)
        where = "/{session}/v1/chat/completions"
        self.application = Starlette(routes=[Route(where, self._complete, methods=["POST"])])

    def provider(self, session: str, model: Model) -> OpenAIProvider:
        self._models[session] = model
        provider = OpenAIProvider(base_url=f"{self.address}/{session}/v1", model=model.model)
        provider._client = self._client  # noqa: SLF001 - its own would load certificates, in every life
        return provider

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _complete(self, request: Request) -> Response:
        asked = json.loads(await request.body())["messages"]
        conversation = [openai_wire.from_wire(each) for each in asked if each["role"] != "system"]
        model = self._models[request.path_params["session"]]
        try:
            return _answered(await model.complete(conversation, system="", tools=()), "stop")
        except CutOff:
            return _answered(Answer(Message("assistant", "half of "), Usage(10, 10)), "length")
        except ModelError as error:
            if error.status is None:
                return StreamingResponse(_breaks())
            later = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
            content = json.dumps({"error": {"message": str(error)}})
            return Response(content, status_code=error.status, headers=later)
        except KeyError:
            return Response("{}")


def _answered(answer: Answer, reason: str) -> Response:
    message = openai_wire.to_wire(answer.message)
    usage = {"prompt_tokens": answer.usage.input_tokens, "completion_tokens": answer.usage.output_tokens}
    choice = {"message": message, "finish_reason": "tool_calls" if answer.message.calls else reason}
    return Response(json.dumps({"choices": [choice], "usage": usage}))


async def _breaks() -> AsyncIterator[Any]:
    """The connection is closed in the middle of the answer."""
    yield b'{"choices": ['
    raise ConnectionResetError


@asynccontextmanager
async def models_over_http() -> AsyncIterator[ModelService]:
    socket = f"\0chaoskit-model-{os.getpid()}-{next(NUMBERS)}"  # abstract: nothing is left of it
    service = ModelService(socket)
    async with serving(service.application, at=socket) as service.address:
        try:
            yield service
        finally:
            await service.aclose()
