"""The misbehaving model server: its guarantees (W1 to W3), and how an independent client reacts.

The openai SDK is the independent client: our own provider, tested in agent/test_openai_http.py, could
share a misunderstanding with our own server.
"""

import asyncio
import json
import socket
import subprocess
import sys
import threading

import httpx2
import pytest

from chaoskit.model_server import Misbehaviour, ModelServer, misbehaviours_from
from chaoskit.model_server.faults import KINDS

HELLO = [{"role": "user", "content": "hello"}]
SCRIPT = [
    {
        "steps": [[{"tool": "pay", "args": {"to": "Zoë", "cents": 5}}, {"tool": "look", "args": {}}]],
        "answer": "Paid.",
    }
]
CALLS = [
    {
        "id": "call_1_0_0",
        "type": "function",
        "function": {"name": "pay", "arguments": '{"to": "Zo\\u00eb", "cents": 5}'},
    },
    {"id": "call_1_0_1", "type": "function", "function": {"name": "look", "arguments": "{}"}},
]
KEY = "sk-never-written-down"


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def post(server, messages=HELLO, path="/chat/completions", **more):
    body = {"model": "m", "messages": messages, **more}
    return httpx2.post(server.url + path, json=body, headers={"Authorization": f"Bearer {KEY}"})


def test_a_sound_answer_has_the_fields_that_clients_expect():
    with ModelServer() as server:
        answer = post(server).json()
    assert {"id", "object", "created", "model", "choices", "usage"} <= answer.keys()
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "You said: hello"}
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_a_streamed_answer_has_the_fields_that_clients_expect():
    with ModelServer() as server:
        text = post(server, stream=True, stream_options={"include_usage": True}).text
    *events, last, nothing = text.split("\n\n")
    assert (last, nothing) == ("data: [DONE]", "")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert all({"id", "object", "created", "model"} <= chunk.keys() for chunk in chunks)
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[-1]["usage"]["completion_tokens"] > 0
    said = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks[:-1]]
    assert "".join(said) == "You said: hello"


def test_the_conversation_so_far_decides_the_next_line_of_a_script():
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": call["function"]["name"]} for call in CALLS
    ]
    decided = {"role": "assistant", "content": None, "tool_calls": CALLS}
    with ModelServer(script=SCRIPT) as server:
        first = post(server).json()["choices"][0]
        second = post(server, [*HELLO, decided, *results]).json()["choices"][0]
        again = post(server).json()["choices"][0]
    assert (first["message"], first["finish_reason"]) == (decided, "tool_calls")
    assert second["message"]["content"] == "Paid. [pay; look]"
    assert again == first  # a client that crashed and retries gets the same answer


def test_every_request_is_recorded_without_the_key():
    """W1"""
    with ModelServer([Misbehaviour("cut"), Misbehaviour("slow", seconds=0.01)]) as server:
        with pytest.raises(httpx2.RemoteProtocolError):
            post(server)
        assert len(server.requests) == 1
        post(server)
        httpx2.post(f"{server.url}/chat/completions", json={"messages": HELLO})
    assert [seen.authorized for seen in server.requests] == [True, True, False]
    assert [seen.answered for seen in server.requests] == [False, True, True]
    assert server.answered == 2
    assert KEY not in repr(server.requests)


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([], "at least one message"),
        ("hello", "at least one message"),
        ([{"role": "king", "content": "obey"}], "messages[0]: expected an object with a role"),
        ([{"role": "assistant", "tool_calls": "pay"}], "messages[0]: expected 'tool_calls'"),
        ([*HELLO, {"role": "assistant", "tool_calls": CALLS}], "without a result: call_1_0_0, call"),
        ([{"role": "assistant", "tool_calls": CALLS}, *HELLO], "without a result: call_1_0_0, call"),
        ([{"role": "tool", "tool_call_id": "x"}], "must answer a preceding tool call"),
    ],
)
def test_invalid_requests_are_refused_and_use_up_no_fault(messages, complaint):
    """W2"""
    with ModelServer([Misbehaviour("unavailable")]) as server:
        refused = post(server, messages)
        assert refused.status_code == 400
        assert complaint in refused.json()["error"]["message"]
        assert post(server).status_code == 503
        assert post(server).status_code == 200
    assert (server.requests[0].fault, server.answered) == (None, 1)


def test_other_paths_and_broken_bodies_are_refused():
    with ModelServer() as server:
        assert post(server, path="/models").status_code == 404
        assert httpx2.get(f"{server.url}/chat/completions").status_code == 404
        broken = httpx2.post(f"{server.url}/chat/completions", content=b"{")
        assert broken.status_code == 400
    assert server.answered == 0


def test_a_connection_serves_one_request_after_another():
    with ModelServer([None, Misbehaviour("rate_limit")]) as server, httpx2.Client() as client:
        url, body = f"{server.url}/chat/completions", {"messages": HELLO, "stream": True}
        statuses = [client.post(url, json=body).status_code for _ in range(3)]
    assert statuses == [200, 429, 200]


def test_a_client_that_does_not_speak_http_is_disconnected():
    with ModelServer() as server:
        port = httpx2.URL(server.url).port
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"\x00\x01\x02 nonsense\r\n\r\n")
            assert stranger.recv(100) == b""
        assert post(server).status_code == 200


def test_closing_ends_every_connection_and_the_thread():
    """W3"""
    arrived = threading.Semaphore(0)
    before = threading.active_count()
    waits = Misbehaviour("timeout")
    with ModelServer([waits], on_request=lambda _: arrived.release()) as server:
        port = httpx2.URL(server.url).port
        client = socket.create_connection(("127.0.0.1", port))
        body = json.dumps({"messages": HELLO}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        assert arrived.acquire(timeout=30)
    with client:
        assert client.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    assert threading.active_count() == before


def test_it_runs_in_an_existing_event_loop():
    async def story():
        async with ModelServer([Misbehaviour("unavailable")]) as server, httpx2.AsyncClient() as client:
            url = f"{server.url}/chat/completions"
            return [(await client.post(url, json={"messages": HELLO})).status_code for _ in "12"]

    assert asyncio.run(story()) == [503, 200]


def test_a_port_in_use_is_an_error_for_the_caller():
    with ModelServer() as server:
        taken = httpx2.URL(server.url).port
        with pytest.raises(OSError, match="in use"), ModelServer(port=taken):
            pass


def test_one_seed_gives_one_list_of_faults():
    assert misbehaviours_from(7) == misbehaviours_from(7) != misbehaviours_from(8)
    dealt = misbehaviours_from(7, requests=2000, in_a_row=2)
    assert not any(all(dealt[n : n + 3]) for n in range(len(dealt)))
    drawn = {fault.kind for fault in dealt if fault}
    assert drawn == set(KINDS) - {"bad_request", "unauthorized"}
    assert misbehaviours_from(7, requests=3, in_a_row=0) == [None] * 3


def test_it_can_be_started_from_a_shell():
    command = [sys.executable, "-m", "chaoskit.model_server", "--port", "0"]
    chosen = ["--misbehave", "rate_limit,sound"]
    with subprocess.Popen([*command, *chosen], stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip()
        statuses = [
            httpx2.post(f"{url}/chat/completions", json={"messages": HELLO}).status_code for _ in range(2)
        ]
        process.send_signal(2)
        said, _ = process.communicate(timeout=30)
    assert statuses == [429, 200]
    assert said.splitlines() == ["request 1: rate_limit", "request 2: sound"]
    assert process.returncode == 0


def test_a_wrong_kind_is_explained():
    command = [sys.executable, "-m", "chaoskit.model_server", "--misbehave", "earthquake"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "found 'earthquake'" in done.stderr


@pytest.fixture(scope="module")
def openai():
    return pytest.importorskip("openai", reason="the openai SDK, our independent client, is missing")


@pytest.fixture
def ask(openai):
    """A request by the SDK without its own retries: the text and the finish reason."""

    def ask(server, *, stream, read=30.0, **more):
        timeout = httpx2.Timeout(30.0, read=read)
        with openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0, timeout=timeout) as sdk:
            answer = sdk.chat.completions.create(model="m", messages=HELLO, stream=stream, **more)
            if not stream:
                return answer.choices[0].message.content, answer.choices[0].finish_reason
            choices = [chunk.choices[0] for chunk in answer]
            said = "".join(choice.delta.content or "" for choice in choices)
            return said, choices[-1].finish_reason

    return ask


STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@STREAMED
def test_the_sdk_understands_a_sound_answer(ask, stream):
    with ModelServer([Misbehaviour("slow", seconds=0.01)]) as server:
        assert ask(server, stream=stream) == ("You said: hello", "stop")
    assert [(seen.sdk_retry, seen.authorized) for seen in server.requests] == [("0", True)]


def test_the_sdk_understands_tool_calls_in_fragments(openai):
    with (
        ModelServer(script=SCRIPT) as server,
        openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0) as sdk,
        sdk.chat.completions.stream(model="m", messages=HELLO) as stream,
    ):
        calls = stream.get_final_completion().choices[0].message.tool_calls
    found = [(call.id, call.function.name, call.function.arguments) for call in calls]
    assert found == [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in CALLS]


@STREAMED
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Misbehaviour("rate_limit", retry_after="7"), "RateLimitError"),
        (Misbehaviour("rate_limit"), "RateLimitError"),
        (Misbehaviour("unavailable"), "InternalServerError"),
        (Misbehaviour("server_error"), "InternalServerError"),
        (Misbehaviour("bad_request"), "BadRequestError"),
        (Misbehaviour("unauthorized"), "AuthenticationError"),
        (Misbehaviour("timeout"), "APITimeoutError"),
        (Misbehaviour("slow", seconds=3600), "APITimeoutError"),
        (Misbehaviour("reset", after=0), "APIConnectionError"),
        (Misbehaviour("reset"), "APIConnectionError"),
        (Misbehaviour("cut", after=0), "APIConnectionError"),
        (Misbehaviour("cut"), "APIConnectionError"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.kind}-{value.after}",
)
def test_the_sdk_reacts_to_each_fault_as_expected(openai, ask, stream, fault, error):
    hangs = fault.kind in {"timeout", "slow"}
    with ModelServer([fault]) as server, pytest.raises(getattr(openai, error)) as caught:
        ask(server, stream=stream, read=0.05 if hangs else 30.0)
    if not hangs:
        assert [seen.answered for seen in server.requests] == [False]
    if fault.retry_after:
        assert caught.value.response.headers["Retry-After"] == fault.retry_after


@STREAMED
@pytest.mark.parametrize("after", [0, 2])
def test_the_sdk_raises_on_a_malformed_chunk(ask, stream, after):
    with ModelServer([Misbehaviour("malformed", after=after)]) as server:
        with pytest.raises(ValueError, match="Unterminated string"):
            ask(server, stream=stream)
        assert ask(server, stream=stream)[1] == "stop"


@STREAMED
def test_the_sdk_accepts_an_unfinished_answer_as_complete(ask, stream):
    """Our own provider refuses this (P2); the SDK does not."""
    with ModelServer([Misbehaviour("unfinished")]) as server:
        assert ask(server, stream=stream) == ("You said: hello", None)
