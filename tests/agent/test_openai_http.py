"""The HTTP provider, against a server that misbehaves."""

import asyncio
import json
import logging
import threading

import pytest

from chaoskit.model_server import Misbehaviour, ModelServer, misbehaviours_from, replies
from reference_agent.messages import Message
from reference_agent.providers import ModelError
from reference_agent.providers.openai_http import OpenAIProvider, Secret, Timeouts
from reference_agent.providers.openai_wire import from_wire
from reference_agent.providers.scripted import ScriptedProvider
from reference_agent.turn.retry import Restarted, call_with_retry, stream_with_retry
from tests.agent.helpers import HELLO, MODES, PAY, SCRIPT, after, ask, asked

KEY = "sk-abcdefghijklmnopqrstuvwxyz"
PATIENT = Timeouts(connect=30.0, silence=30.0, total=60.0)
ONE_SECOND_BEFORE = 1_445_412_479.0  # Wed, 21 Oct 2015 07:27:59 GMT


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def provider_for(server, **options):
    options = {"timeouts": PATIENT, "api_key": KEY, **options}
    return OpenAIProvider(base_url=server.url, model="m", **options)


async def asked_once(server, mode, *args, system="", tools=(), **options):
    async with provider_for(server, **options) as provider:
        return await asked(provider, mode, *args, system=system, tools=tools)


@pytest.mark.parametrize("mode", MODES)
def test_a_whole_conversation_works_over_http(mode):
    async def story(server):
        async with provider_for(server) as provider:
            decision = (await asked(provider, mode, system="Be brief.", tools=[PAY])).message
            return decision, await asked(provider, mode, after(decision), system="Be brief.")

    with ModelServer(script=SCRIPT) as server:
        decision, answer = asyncio.run(story(server))
    assert decision == ask(ScriptedProvider(SCRIPT)).message
    assert answer.message == Message("assistant", "Paid. [did pay; did look]")
    assert min(answer.usage.input_tokens, answer.usage.output_tokens) > 0
    first, second = (seen.body for seen in server.requests)
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert [tool["function"]["name"] for tool in first["tools"]] == ["pay"]
    assert "tools" not in second
    assert [from_wire(message) for message in second["messages"][1:]] == after(decision)


HTTP_DATE = "Wed, 21 Oct 2015 07:28:00 GMT"
FAULTS = [
    (Misbehaviour("rate_limit", retry_after="7"), (429, True, 7.0)),
    (Misbehaviour("rate_limit", retry_after="1.5"), (429, True, 1.5)),
    (Misbehaviour("rate_limit", retry_after="inf"), (429, True, None)),
    (Misbehaviour("rate_limit", retry_after="soon"), (429, True, None)),
    (Misbehaviour("rate_limit"), (429, True, None)),
    (Misbehaviour("unavailable", retry_after=HTTP_DATE), (503, True, 1.0)),
    (Misbehaviour("unavailable"), (503, True, None)),
    (Misbehaviour("server_error"), (500, True, None)),
    (Misbehaviour("bad_request"), (400, False, None)),
    (Misbehaviour("unauthorized"), (401, False, None)),
    (Misbehaviour("timeout"), (None, True, None)),
    (Misbehaviour("slow", seconds=3600), (None, True, None)),
    *(
        (Misbehaviour(kind, after=n), (None, True, None))
        for kind in ("reset", "cut", "malformed")
        for n in (0, 2, 99)
    ),
    (Misbehaviour("unfinished"), (None, True, None)),
]


@pytest.mark.requirement("K5")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("fault", "facts"), FAULTS, ids=[f"{f.kind}-{f.retry_after or f.after}" for f, _ in FAULTS]
)
def test_each_fault_is_reported_as_what_it_is(mode, fault, facts):
    """M3, P1, P4"""
    hangs = fault.kind in {"timeout", "slow"}
    timeouts = Timeouts(connect=30.0, silence=0.05) if hangs else PATIENT
    arrived = threading.Semaphore(0)
    with ModelServer([fault], on_request=lambda _: arrived.release()) as server:
        with pytest.raises(ModelError, match="expected") as caught:
            asyncio.run(asked_once(server, mode, timeouts=timeouts, clock=lambda: ONE_SECOND_BEFORE))
        assert arrived.acquire(timeout=30)
        error = caught.value
        assert (error.status, error.retryable, error.retry_after) == facts
        answer = asyncio.run(asked_once(server, mode))
    assert answer.message.content == "You said: hello"
    assert len(server.requests) == 2  # one per request


@pytest.mark.parametrize("mode", MODES)
def test_a_slow_first_token_is_waited_for(mode):
    with ModelServer([Misbehaviour("slow", seconds=0.02)]) as server:
        assert asyncio.run(asked_once(server, mode)).message.content == "You said: hello"


@pytest.mark.parametrize("mode", MODES)
def test_an_unreachable_server_is_a_retryable_error(mode):
    with ModelServer() as server:
        pass
    with pytest.raises(ModelError, match=r"expected an answer from http://127\.0\.0\.1") as caught:
        asyncio.run(asked_once(server, mode))
    assert caught.value.retryable


@pytest.mark.parametrize("mode", MODES)
def test_the_complete_answer_has_a_time_limit_too(mode):
    """P4: a service that keeps sending must not block the agent forever."""

    async def story(server):
        async with provider_for(server) as provider:
            await asked(provider, mode)  # connects first, so that only the answer takes time
            provider._timeouts = Timeouts(silence=3600, total=0.05)
            await asked(provider, mode)

    slow = Misbehaviour("slow", seconds=3600)
    with ModelServer([None, slow]) as server, pytest.raises(ModelError, match="timeout"):
        asyncio.run(story(server))


@pytest.mark.requirement("K5")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_retries_succeed_whatever_faults_the_seed_draws(mode, seed):
    """End to end: server, provider, retry, a row for each failure. Only the waits are virtual."""
    kinds = ("rate_limit", "unavailable", "server_error", "reset", "cut", "unfinished", "malformed")
    faults = misbehaviours_from(seed, requests=12, in_a_row=3, kinds=kinds)
    rows, waits = [], []

    async def on_failure(turn, context, error, attempt):
        rows.append((turn, attempt, error.retryable))

    async def sleep(seconds):
        waits.append(seconds)

    async def ask_with_retries(provider, turn):
        retry = {"turn": turn, "context": "llm", "on_failure": on_failure, "sleep": sleep}
        if mode == "complete":
            return await call_with_retry(lambda: provider.complete(HELLO, system="", tools=()), **retry)
        stream = stream_with_retry(lambda: provider.stream(HELLO, system="", tools=()), **retry)
        said = [item async for item in stream]
        last = max((n for n, item in enumerate(said) if item == Restarted()), default=-1)
        assert "".join(d.text for d in said[last + 1 : -1]) == said[-1].message.content
        return said[-1]

    async def story(server):
        async with provider_for(server) as provider:
            for turn in range(8):
                answer = await ask_with_retries(provider, turn)
                assert answer.message.content == "You said: hello"

    with ModelServer(faults) as server:
        asyncio.run(story(server))
    failed = [seen for seen in server.requests if not seen.answered]
    assert server.answered == 8
    assert len(rows) == len(waits) == len(failed) > 0
    assert all(retryable for _, _, retryable in rows)


def test_connections_are_reused(monkeypatch):
    opened = []
    connected = ModelServer._connected

    async def counted(self, reader, writer):
        opened.append(writer)
        await connected(self, reader, writer)

    monkeypatch.setattr(ModelServer, "_connected", counted)

    async def story(server):
        async with provider_for(server) as provider:
            for mode in MODES * 3:
                await asked(provider, mode)

    with ModelServer() as server:
        asyncio.run(story(server))
    assert len(opened) == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["bad_request", "unauthorized", "malformed", "cut", "timeout"])
def test_the_key_never_appears(mode, kind, monkeypatch, caplog):
    """P3: even if the service echoes it."""
    caplog.set_level(logging.DEBUG)
    told = json.dumps({"error": {"message": f"your key {KEY} is bad"}}).encode()
    monkeypatch.setattr(replies, "error", lambda *_: told)
    monkeypatch.setattr("chaoskit.model_server.server.BROKEN", KEY.encode())
    with ModelServer([Misbehaviour(kind)]) as server:
        provider = provider_for(server, timeouts=Timeouts(connect=30.0, silence=0.3))

        async def story():
            async with provider:
                await asked(provider, mode)

        with pytest.raises(ModelError) as caught:
            asyncio.run(story())
    shown = f"{caught.value!s} {caught.value!r} {provider!r} {vars(provider)} {caplog.text}"
    assert "http://127.0.0.1" in shown
    assert KEY[:10] not in shown


def test_a_truncated_key_is_scrubbed_too():
    secret = Secret(KEY + "\n")
    assert secret.scrub(f"..{KEY}.. {KEY[:12]}") == "..***.. ***"
    assert (repr(secret), Secret(None).scrub("text"), bool(Secret(""))) == ("Secret(***)", "text", False)


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schlüssel"])
def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(key):
    with pytest.raises(ValueError, match="not shown") as caught:
        OpenAIProvider(base_url="http://x/v1", model="m", api_key=key)
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["ftp://x/v1", "x/v1", "http://me:pw@x/v1", "http://x/v1?key=pw", "http://x/v1#pw"]
)
def test_a_url_with_credentials_or_a_query_is_refused(url):
    with pytest.raises(ValueError, match="expected a base URL") as caught:
        OpenAIProvider(base_url=url, model="m")
    assert "pw" not in str(caught.value)


def test_an_exhausted_quota_is_not_a_rate_limit(monkeypatch):
    told = json.dumps({"error": {"message": "pay first", "code": "insufficient_quota"}}).encode()
    monkeypatch.setattr(replies, "error", lambda *_: told)
    fault = Misbehaviour("rate_limit", retry_after="5")
    with ModelServer([fault]) as server, pytest.raises(ModelError, match="pay first") as caught:
        asyncio.run(asked_once(server, "complete"))
    assert (caught.value.status, caught.value.retryable, caught.value.retry_after) == (429, False, None)


def test_without_a_key_there_is_no_header():
    with ModelServer() as server:
        asyncio.run(asked_once(server, "complete", api_key=None))
    assert not server.requests[0].authorized


def test_options_are_sent_in_the_request():
    with ModelServer() as server:
        asyncio.run(asked_once(server, "complete", options={"temperature": 0}))
    assert server.requests[0].body["temperature"] == 0
