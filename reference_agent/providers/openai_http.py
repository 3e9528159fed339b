"""A model behind HTTP: any service that speaks the OpenAI-compatible chat-completions protocol.

Guarantees, in addition to M1 to M4 of `base`:

P1  One call is one request. Neither this code nor the client below it retries or follows redirects.
P2  A stream is complete when it sent a finish reason and [DONE]; any other end is a truncation.
P3  The key is sent to the service and appears nowhere else: not in errors (even when the service echoes
    it), not in logs, not in a repr.
P4  Every wait is bounded: for the connection, between two received bytes, and for the whole answer.

Which failures are `retryable`:

    408, 425, 429, 5xx           yes, after Retry-After if given; not 501, 505 or an exhausted quota
    other statuses               no
    time-out, refused, reset     yes
    truncated, unreadable        yes
    ended by length or filter    no
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import msgspec

from reference_agent.ids import Clock, system_clock
from reference_agent.messages import Message
from reference_agent.providers import openai_wire as wire
from reference_agent.providers.base import Answer, ModelError, TextDelta, ToolSpec, can_pass

if TYPE_CHECKING:
    import httpx2

DONE = "[DONE]"
SECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?")  # stricter than float(): "inf" would be a long wait
POLITE_END = 0.5  # seconds a stream has to end its body after [DONE], see _read_to_the_end


class Timeouts(msgspec.Struct, frozen=True):
    """In seconds. `silence` is the longest time without a byte, including before the first. A service
    that sends keep-alive comments never falls silent: `total` bounds the whole answer."""

    connect: float = 10.0
    silence: float = 120.0
    total: float = 900.0


class OpenAIProvider:
    """`base_url` is what comes before /chat/completions: http://127.0.0.1:8080/v1, for example."""

    name = "openai"

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        api_key: str | None = None,
        timeouts: Timeouts | None = None,
        options: Mapping[str, Any] | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.model = model
        self._url = _checked_url(base_url) + "/chat/completions"
        self._key = Secret(api_key)
        self._timeouts = timeouts or Timeouts()
        self._options = dict(options or {})  # passed through to the request: temperature, max_tokens
        self._clock = clock
        self._client: httpx2.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"OpenAIProvider(url={self._url!r}, model={self.model!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. A later call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def complete(
        self, conversation: Sequence[Message], *, system: str, tools: Sequence[ToolSpec]
    ) -> Answer:
        body = self._body(conversation, system, tools, stream=False)
        deadline = self._deadline()
        async with self._post(body, deadline) as response:
            with self._translating():
                async with asyncio.timeout_at(deadline):
                    await response.aread()
                return wire.answer_from(body, response.text)

    async def stream(
        self, conversation: Sequence[Message], *, system: str, tools: Sequence[ToolSpec]
    ) -> AsyncIterator[TextDelta | Answer]:
        body = self._body(conversation, system, tools, stream=True)
        deadline = self._deadline()
        assembly = wire.Assembly(body)
        async with self._post(body, deadline) as response, aclosing(_events(response)) as events:
            while (data := await self._next(events, deadline)) != DONE:
                with self._translating():
                    text = assembly.add(data)
                if text:
                    yield TextDelta(text)
            with self._translating():
                answer = assembly.answer()
            await _read_to_the_end(events)
        yield answer

    def _body(
        self, conversation: Sequence[Message], system: str, tools: Sequence[ToolSpec], *, stream: bool
    ) -> wire.Json:
        return wire.request_body(
            self.model, conversation, system=system, tools=tools, stream=stream, options=self._options
        )

    def _deadline(self) -> float:
        self._opened_client()  # the first call is slow, and must not count against the service
        return asyncio.get_running_loop().time() + self._timeouts.total

    @asynccontextmanager
    async def _post(self, body: wire.Json, deadline: float) -> AsyncIterator[httpx2.Response]:
        """The response, once its headers have arrived and promise an answer."""
        client = self._opened_client()
        headers = {"Content-Type": "application/json", **self._key.headers()}
        with self._translating():
            content = json.dumps(body).encode()
            request = client.build_request("POST", self._url, content=content, headers=headers)
            async with asyncio.timeout_at(deadline):
                response = await client.send(request, stream=True)
        try:
            if response.status_code != HTTPStatus.OK:
                raise await self._refusal(response, deadline)
            yield response
        finally:
            await response.aclose()

    def _opened_client(self) -> httpx2.AsyncClient:
        if self._client is None:
            timeout = _httpx2().Timeout(self._timeouts.silence, connect=self._timeouts.connect)
            self._client = _httpx2().AsyncClient(timeout=timeout, follow_redirects=False)
        return self._client

    async def _next(self, events: AsyncIterator[str], deadline: float) -> str:
        with self._translating():
            try:
                async with asyncio.timeout_at(deadline):
                    return await anext(events)
            except StopAsyncIteration:
                raise wire.malformed(f"a stream that ends with {DONE}", "an earlier end") from None

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Turn network failures and invalid responses into ModelErrors without the key (P3)."""
        try:
            yield
        except ModelError as error:
            raise self._scrubbed(error) from None
        except (_httpx2().TimeoutException, TimeoutError) as error:
            raise self._no_answer(f"a timeout ({type(error).__name__})") from None
        except (_httpx2().UnsupportedProtocol, _httpx2().LocalProtocolError) as error:
            raise self._no_answer(_described(error), retryable=False) from None
        except (_httpx2().HTTPError, OSError) as error:
            raise self._no_answer(_described(error)) from None

    def _scrubbed(self, error: ModelError) -> ModelError:
        text = self._key.scrub(str(error))
        return ModelError(text, retryable=error.retryable, retry_after=error.retry_after, status=error.status)

    def _no_answer(self, found: str, *, retryable: bool = True) -> ModelError:
        text = f"expected an answer from {self._url}, found {self._key.scrub(found)}"
        return ModelError(text, retryable=retryable)

    async def _refusal(self, response: httpx2.Response, deadline: float) -> ModelError:
        """The error for a status other than 200, with the service's reason if it can be read."""
        content = ""
        with suppress(ModelError), self._translating():
            async with asyncio.timeout_at(deadline):
                await response.aread()
            content = response.text
        status = response.status_code
        # An exhausted quota has the status of a rate limit, but waiting does not restore it.
        retryable = can_pass(status) and "insufficient_quota" not in content
        return ModelError(
            f"expected status 200 from {self._url}, found {status}: {self._reason(status, content)}",
            retryable=retryable,
            retry_after=self._retry_after(response.headers.get("Retry-After")) if retryable else None,
            status=status,
        )

    def _reason(self, status: int, content: str) -> str:
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            # Services tend to echo the key here, masked in ways that scrubbing cannot recognise.
            return f"not authorised ({'an API key' if self._key else 'no API key'} was given)"
        return wire.shortened(self._key.scrub(_message_in(content)))

    def _retry_after(self, header: str | None) -> float | None:
        """Seconds from now; the header holds seconds or an HTTP date."""
        if header is None:
            return None
        if SECONDS.fullmatch(header.strip()):
            return float(header)
        try:
            date = parsedate_to_datetime(header)
        except ValueError:
            return None
        return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - self._clock())


class Secret:
    """An API key that never appears in output."""

    def __init__(self, key: str | None) -> None:
        key = (key or "").strip()  # a key read from a file ends with a line break
        if not key.isascii() or not key.isprintable() or " " in key:
            raise ValueError(
                "expected an API key of printable ASCII without spaces, found other characters (not shown)"
            )
        self._key = key

    def __bool__(self) -> bool:
        return bool(self._key)

    def __repr__(self) -> str:
        return "Secret(***)"

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def scrub(self, text: str) -> str:
        """Remove the key, and any prefix of it left where the text was truncated."""
        for length in range(len(self._key), min(8, len(self._key)) - 1, -1):
            text = text.replace(self._key[:length], "***") if length else text
        return text


def _httpx2() -> Any:
    """Imported by the first request: 50 ms that a process with another provider never pays."""
    return import_module("httpx2")


def _checked_url(url: str) -> str:
    """Reject credentials, queries and fragments in the URL: logs would show them."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"expected a base URL like https://host/v1, found scheme {parts.scheme!r}")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError(
            "expected a base URL with scheme, host, port and path only, found more (not shown):"
            " pass a key as api_key"
        )
    return url.rstrip("/")


async def _events(response: httpx2.Response) -> AsyncGenerator[str, None]:
    async for event in _httpx2().EventSource(response):
        if event.data:
            yield event.data


async def _read_to_the_end(events: AsyncIterator[str]) -> None:
    """The answer is complete, but a connection can be reused only after its body was read to the end."""
    with suppress(_httpx2().HTTPError, OSError):
        async with asyncio.timeout(POLITE_END):
            async for _ in events:
                pass


def _message_in(content: str) -> str:
    """The service's error message, if the response has the usual format."""
    with suppress(ValueError, TypeError, KeyError):
        return str(json.loads(content)["error"]["message"])
    return content


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
