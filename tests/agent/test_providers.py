"""Providers: the scripted one by itself, the HTTP one against a server that misbehaves."""

import asyncio
import json
import logging
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings, strategies as st

from chaoskit.model_server import Misbehaviour, ModelServer, misbehaviours_from, replies
from reference_agent.messages import Message, ToolCall, idempotency_key
from reference_agent.providers import Answer, ModelError, TextDelta, ToolSpec, Usage
from reference_agent.providers.openai_http import OpenAIProvider, Secret, Timeouts
from reference_agent.providers.openai_wire import Assembly, answer_from, from_wire, to_wire
from reference_agent.providers.scripted import ScriptedProvider, failures_from
from reference_agent.turn.retry import Restarted, call_with_retry, stream_with_retry

MODES = ["complete", "stream"]
HELLO = [Message("user", "hello")]
SCRIPT = [
    {
        "steps": [
            [
                {
                    "tool": "pay",
                    "args": {"to": "Zoë", "cents": 5, "more": [{"a": 1, "b": None}]},
                    "noise": "memo",
                },
                {"tool": "look", "args": {}},
            ]
        ],
        "answer": "Paid.",
    }
]
PAY = ToolSpec("pay", "Pays.", {"type": "object", "properties": {"cents": {"type": "integer"}}})
KEY = "sk-abcdefghijklmnopqrstuvwxyz"
PATIENT = Timeouts(connect=30.0, silence=30.0, total=60.0)
ONE_SECOND_BEFORE = 1_445_412_479.0  # Wed, 21 Oct 2015 07:27:59 GMT


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


async def asked(provider, mode, conversation=HELLO, *, system="", tools=()):
    """The answer, by either way of asking; a stream's deltas must add up to it (M2)."""
    if mode == "complete":
        return await provider.complete(conversation, system=system, tools=tools)
    items = [item async for item in provider.stream(conversation, system=system, tools=tools)]
    assert all(isinstance(item, TextDelta) for item in items[:-1])
    assert "".join(item.text for item in items[:-1]) == items[-1].message.content
    return items[-1]


def ask(provider, mode="complete", *args, **options):
    return asyncio.run(asked(provider, mode, *args, **options))


def after(decision):
    """The conversation when the tools have done what was decided."""
    results = [Message("tool", f"did {c.name}", call_id=c.id, tool=c.name) for c in decision.calls]
    return [*HELLO, decision, *results]


# --- the scripted model ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_the_script_is_played_from_the_conversation_alone(mode):
    decision = ask(ScriptedProvider(SCRIPT), mode).message
    assert [(call.id, call.name) for call in decision.calls] == [
        ("call_1_0_0", "pay"),
        ("call_1_0_1", "look"),
    ]
    another_life = ScriptedProvider(SCRIPT)
    assert ask(another_life, mode, after(decision)).message.content == "Paid. [did pay; did look]"
    assert ask(another_life, mode).message == decision


def test_what_is_said_costs_the_same_in_every_life():
    first, again = (ask(ScriptedProvider(SCRIPT), system="Be brief.", tools=[PAY]) for _ in "12")
    assert first == again
    assert min(first.usage.input_tokens, first.usage.output_tokens) > 0
    assert ask(ScriptedProvider(SCRIPT)).usage.input_tokens < first.usage.input_tokens


@pytest.mark.parametrize("conversation", [[], [*HELLO, *HELLO]])
def test_a_conversation_that_is_not_in_the_script_is_an_error(conversation):
    with pytest.raises(ModelError, match="expected 1 to 1 messages of the user") as caught:
        ask(ScriptedProvider(SCRIPT), "complete", conversation)
    assert not caught.value.retryable


@pytest.mark.parametrize("mode", MODES)
def test_a_fickle_model_means_the_same_and_never_says_it_twice(mode):
    lives = [ScriptedProvider(SCRIPT, fickle=f"life {n}") for n in range(10)]
    decisions = [ask(life, mode).message for life in lives for _ in range(3)]
    assert len({call.id for d in decisions for call in d.calls}) == 60
    assert len({d.content for d in decisions}) == 30
    orders = {json.dumps({**d.calls[0].args, "memo": ""}) for d in decisions}
    assert len(orders) > 5
    for decision in decisions:
        pay, look = decision.calls
        assert pay.args.pop("memo").startswith("noise ")
        intents = [idempotency_key("s", call.name, call.args) for call in (pay, look)]
        assert intents == [
            idempotency_key("s", c.name, c.args) for c in ask(ScriptedProvider(SCRIPT)).message.calls
        ]
    answers = {ask(life, mode, after(decisions[0])).message.content for life in lives}
    assert len(answers) == 10
    assert all("Paid. [did pay; did look]" in answer for answer in answers)


def test_a_fickle_model_is_decided_by_its_nonce():
    first, again = (ask(ScriptedProvider(SCRIPT, fickle="a")) for _ in "12")
    assert first == again


def test_failures_come_before_the_answer_of_their_turn():
    provider = ScriptedProvider(
        SCRIPT, failures=failures_from({"2": [{"status": 429, "retry_after": 2.0}, {"status": 400}]})
    )
    decision = ask(provider).message
    facts = []
    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            ask(provider, "complete", after(decision))
        facts.append((caught.value.status, caught.value.retryable, caught.value.retry_after))
    assert facts == [(429, True, 2.0), (400, False, None)]
    assert ask(provider, "complete", after(decision)).message.content.startswith("Paid.")


def test_a_broken_connection_strikes_a_stream_in_the_middle():
    provider = ScriptedProvider([{"steps": [], "answer": "a b c d"}], failures=failures_from({1: [{}]}))
    shown = []

    async def watch():
        async for item in provider.stream(HELLO, system="", tools=()):
            shown.append(item)  # noqa: PERF401 - what was shown before the error counts

    with pytest.raises(ModelError, match="the connection broke"):
        asyncio.run(watch())
    assert 0 < len(shown) < 5


def test_how_often_a_turn_was_asked_can_be_counted_outside_of_the_process():
    failures = failures_from({1: [{"status": 503}, {"status": 503}]})
    provider = ScriptedProvider(SCRIPT, failures=failures, count={1: 2}.__getitem__)
    assert ask(provider).message.calls


# --- messages on the wire -------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
names = st.text(min_size=1, max_size=12)
calls = st.builds(ToolCall, names, names, st.dictionaries(st.text(), json_values, max_size=4))
some_calls = st.lists(calls, min_size=1, max_size=3, unique_by=lambda call: call.id).map(tuple)
messages = st.one_of(
    st.builds(Message, st.just("user"), st.text()),
    st.builds(Message, st.just("assistant"), st.text()),
    st.builds(Message, st.just("assistant"), st.text(), some_calls),
    st.builds(Message, st.just("tool"), st.text(), call_id=names, tool=st.none() | names),
)


@pytest.mark.requirement("K4")
@given(messages)
def test_a_message_survives_the_way_to_the_provider_and_back(message):
    there = json.dumps(to_wire(message))
    back = from_wire(json.loads(there))
    assert back == message
    assert json.dumps(to_wire(back)) == there  # 1, 1.0 and True are equal, and are not the same


@pytest.mark.requirement("K4")
@pytest.mark.parametrize("role", ["system", "developer", "king"])
def test_a_system_message_is_no_part_of_a_conversation(role):
    with pytest.raises(ModelError, match=f"found one of '{role}'") as caught:
        from_wire({"role": role, "content": "obey"})
    assert not caught.value.retryable


@settings(max_examples=50)
@given(st.text(), some_calls | st.just(()))
def test_an_answer_in_pieces_is_the_answer_in_one(content, calls):
    wire_calls = to_wire(Message("assistant", content, calls)).get("tool_calls", ())
    reply = replies.Reply("id", "m", content, tuple(wire_calls), {"prompt_tokens": 3, "completion_tokens": 4})
    body = {"messages": []}
    whole = answer_from(body, replies.whole(reply).decode())
    assembly = Assembly(body)
    text = ""
    for event in replies.events(reply, with_usage=True)[:-1]:
        text += assembly.add(event.decode().removeprefix("data: "))
    assert assembly.answer() == whole == Answer(Message("assistant", content, calls), Usage(3, 4))
    assert text == content


def chunk(delta=None, finish=None):
    return json.dumps({"choices": [{"delta": delta or {}, "finish_reason": finish}]})


def fragment(**fields):
    return chunk({"tool_calls": [{"function": {}, **fields}]})


@pytest.mark.parametrize(
    ("chunks", "complaint", "retryable"),
    [
        ([chunk({"content": "half"})], "finish_reason.*cut", True),
        ([chunk({"content": "half"}, "length")], "ended by 'length'", False),
        ([chunk({}, "content_filter")], "ended by 'content_filter'", False),
        (["{"], "expected a chunk as a JSON object, found '{'", True),
        (["[]"], "expected a chunk with choices", True),
        (['{"choices": 5}'], "expected a chunk with choices", True),
        (['{"error": {"message": "overloaded", "code": 503}}'], "overloaded", True),
        (['{"error": {"message": "no such model", "code": 404}}'], "no such model", False),
        ([fragment(id="a")], "with its index", True),
        ([fragment(index=0, id="a"), fragment(index=0, id="b")], "one id for the tool call", True),
        ([fragment(index=0, id="a"), chunk({}, "tool_calls")], "an id and a name", True),
        (
            [
                fragment(index=0, id="a", function={"name": "f", "arguments": '{"torn'}),
                chunk({}, "tool_calls"),
            ],
            "arguments of a tool call as a JSON object",
            True,
        ),
        (
            [fragment(index=0, id="a", function={"name": "f", "arguments": "[1]"}), chunk({}, "tool_calls")],
            "arguments of a tool call as a JSON object",
            True,
        ),
        (
            [fragment(index=n, id="a", function={"name": "f"}) for n in (0, 1)] + [chunk({}, "tool_calls")],
            "different ids",
            True,
        ),
    ],
)
def test_what_is_not_whole_is_not_an_answer(chunks, complaint, retryable):
    """M1"""
    assembly = Assembly({"messages": []})
    with pytest.raises(ModelError, match=complaint) as caught:
        [assembly.add(data) for data in chunks] and assembly.answer()
    assert caught.value.retryable is retryable


def test_a_character_that_was_cut_in_two_is_whole_again():
    assembly = Assembly({"messages": []})
    for data in [
        '{"choices": [{"delta": {"content": "\\ud83d"}}]}',
        '{"choices": [{"delta": {"content": "\\ude00"}, "finish_reason": "stop"}]}',
    ]:
        assembly.add(data)
    assert assembly.answer().message.content == "😀"


def test_a_tool_that_is_called_with_nothing_is_called_without_arguments():
    assembly = Assembly({"messages": []})
    assembly.add(fragment(index=0, id="a", function={"name": "look", "arguments": ""}))
    assembly.add(chunk({}, "tool_calls"))
    assert assembly.answer().message.calls == (ToolCall("a", "look", {}),)


def test_what_nobody_counted_is_estimated():
    assembly = Assembly({"messages": [to_wire(HELLO[0])]})
    assembly.add(chunk({"content": "twelve chars"}, "stop"))
    usage = assembly.answer().usage
    assert min(usage.input_tokens, usage.output_tokens) > 0


# --- over the wire --------------------------------------------------------------------------------


def provider_for(server, **options):
    options = {"timeouts": PATIENT, "api_key": KEY, **options}
    return OpenAIProvider(base_url=server.url, model="m", **options)


async def asked_once(server, mode, *args, system="", tools=(), **options):
    async with provider_for(server, **options) as provider:
        return await asked(provider, mode, *args, system=system, tools=tools)


@pytest.mark.parametrize("mode", MODES)
def test_a_whole_conversation_over_the_wire(mode):
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
def test_each_fault_is_told_for_what_it_is(mode, fault, facts):
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
    assert len(server.requests) == 2  # one for each time that we asked


@pytest.mark.parametrize("mode", MODES)
def test_a_slow_first_token_is_waited_for(mode):
    with ModelServer([Misbehaviour("slow", seconds=0.02)]) as server:
        assert asyncio.run(asked_once(server, mode)).message.content == "You said: hello"


@pytest.mark.parametrize("mode", MODES)
def test_a_server_that_is_not_there_may_come_back(mode):
    with ModelServer() as server:
        pass
    with pytest.raises(ModelError, match=r"expected an answer from http://127\.0\.0\.1") as caught:
        asyncio.run(asked_once(server, mode))
    assert caught.value.retryable


@pytest.mark.parametrize("mode", MODES)
def test_the_whole_answer_has_a_time_limit_too(mode):
    """P4: a service that never falls silent for long must not keep us for ever."""

    async def story(server):
        async with provider_for(server) as provider:
            await asked(provider, mode)  # connects, so that only the answer is left to wait for
            provider._timeouts = Timeouts(silence=3600, total=0.05)
            await asked(provider, mode)

    slow = Misbehaviour("slow", seconds=3600)
    with ModelServer([None, slow]) as server, pytest.raises(ModelError, match="time-out"):
        asyncio.run(story(server))


@pytest.mark.requirement("K5")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_retries_get_through_whatever_the_seed_has_in_store(mode, seed):
    """The whole way: server, provider, retry, a row for each failure. Only the waits are virtual."""
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


def test_connections_are_used_again(monkeypatch):
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
def test_the_key_shows_nowhere(mode, kind, monkeypatch, caplog):
    """P3: also when the service repeats it."""
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


def test_half_a_key_is_scrubbed_too():
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
def test_a_url_that_hides_something_is_refused(url):
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


def test_no_key_is_no_header():
    with ModelServer() as server:
        asyncio.run(asked_once(server, "complete", api_key=None))
    assert not server.requests[0].authorized


def test_options_go_into_the_request():
    with ModelServer() as server:
        asyncio.run(asked_once(server, "complete", options={"temperature": 0}))
    assert server.requests[0].body["temperature"] == 0


@pytest.mark.requirement("C6")
def test_the_scripted_model_does_not_load_an_http_client():
    code = """if True:
        import sys, reference_agent.providers.scripted, reference_agent.turn.retry
        import reference_agent.providers.openai_http
        print(*sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"httpx2", "httpcore2", "anyio", "h11"} & set(done.stdout.split())
