"""Messages on the wire, and incomplete answers."""

import json

import pytest
from hypothesis import given, settings, strategies as st

from chaoskit.model_server import replies
from reference_agent.messages import Message, ToolCall
from reference_agent.providers import Answer, ModelError, Usage
from reference_agent.providers.openai_wire import Assembly, answer_from, from_wire, to_wire
from tests.agent.helpers import HELLO

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
def test_a_message_survives_the_round_trip_through_the_wire_format(message):
    there = json.dumps(to_wire(message))
    back = from_wire(json.loads(there))
    assert back == message
    assert json.dumps(to_wire(back)) == there  # 1, 1.0 and True are equal but not identical


@pytest.mark.requirement("K4")
@pytest.mark.parametrize("role", ["system", "developer", "king"])
def test_a_system_message_is_not_part_of_a_conversation(role):
    with pytest.raises(ModelError, match=f"found role '{role}'") as caught:
        from_wire({"role": role, "content": "obey"})
    assert not caught.value.retryable


@settings(max_examples=50)
@given(st.text(), some_calls | st.just(()))
def test_a_streamed_answer_equals_the_answer_in_one_piece(content, calls):
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
        ([chunk({"content": "half"})], "finish_reason.*incomplete", True),
        ([chunk({"content": "half"}, "length")], "finish_reason 'length'", False),
        ([chunk({}, "content_filter")], "finish_reason 'content_filter'", False),
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
def test_an_incomplete_answer_is_an_error(chunks, complaint, retryable):
    """M1"""
    assembly = Assembly({"messages": []})
    with pytest.raises(ModelError, match=complaint) as caught:
        [assembly.add(data) for data in chunks] and assembly.answer()
    assert caught.value.retryable is retryable


def test_a_character_split_between_chunks_is_joined():
    assembly = Assembly({"messages": []})
    for data in [
        '{"choices": [{"delta": {"content": "\\ud83d"}}]}',
        '{"choices": [{"delta": {"content": "\\ude00"}, "finish_reason": "stop"}]}',
    ]:
        assembly.add(data)
    assert assembly.answer().message.content == "😀"


def test_a_tool_call_without_arguments_gets_empty_arguments():
    assembly = Assembly({"messages": []})
    assembly.add(fragment(index=0, id="a", function={"name": "look", "arguments": ""}))
    assembly.add(chunk({}, "tool_calls"))
    assert assembly.answer().message.calls == (ToolCall("a", "look", {}),)


def test_missing_usage_is_estimated():
    assembly = Assembly({"messages": [to_wire(HELLO[0])]})
    assembly.add(chunk({"content": "twelve chars"}, "stop"))
    usage = assembly.answer().usage
    assert min(usage.input_tokens, usage.output_tokens) > 0
