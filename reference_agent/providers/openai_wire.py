"""Converts messages to and from the chat-completions protocol: pure functions, no network.

`from_wire(to_wire(message)) == message` for everything an agent persists: user, assistant, assistant with
tool calls, tool result. No conversation contains a system message; one is an error. Everything a service
sends is validated here before it is used: see M1 in `base`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from reference_agent.messages import Message, Role, ToolCall
from reference_agent.providers.base import Answer, ModelError, ToolSpec, Usage, can_pass, estimated_tokens

Json = dict[str, Any]
T = TypeVar("T")


class WireFunction(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class WireCall(msgspec.Struct):
    function: WireFunction
    id: str | None = None
    index: int | None = None


class WireMessage(msgspec.Struct):
    role: str = "assistant"
    content: str | None = None
    tool_calls: list[WireCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class WireUsage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class WireChoice(msgspec.Struct):
    finish_reason: str | None = None
    message: WireMessage | None = None
    delta: WireMessage | None = None


class WireAnswer(msgspec.Struct):
    """A complete answer, or one chunk of a streamed one."""

    choices: list[WireChoice]
    usage: WireUsage | None = None


def to_wire(message: Message) -> Json:
    if message.role == "tool":
        assert message.call_id is not None, "a tool's result names the call that it answers"
        # `name` makes the inverse exact; services ignore it.
        named = {} if message.tool is None else {"name": message.tool}
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.content} | named
    if not message.calls:
        return {"role": message.role, "content": message.content}
    calls = [_call_to_wire(call) for call in message.calls]
    return {"role": message.role, "content": message.content or None, "tool_calls": calls}


def _call_to_wire(call: ToolCall) -> Json:
    function = {"name": call.name, "arguments": json.dumps(call.args)}
    return {"id": call.id, "type": "function", "function": function}


def from_wire(plain: Json) -> Message:
    message = checked(plain, WireMessage, "a message")
    role: Role
    match message.role:
        case "user" | "assistant" | "tool" as role:
            calls = tuple(map(_call_from_wire, message.tool_calls or ()))
            return Message(
                role, message.content or "", calls, call_id=message.tool_call_id, tool=message.name
            )
        case other:
            raise ModelError(
                f"expected a message with role user, assistant or tool, found role {other!r}:"
                " system prompts are never part of a conversation",
                retryable=False,
            )


def _call_from_wire(call: WireCall) -> ToolCall:
    if not call.id or not call.function.name:
        raise malformed("a tool call with an id and a name", f"id {call.id!r}, name {call.function.name!r}")
    # Some services send no arguments at all for a tool without parameters.
    return ToolCall(call.id, call.function.name, _arguments(call.function.arguments or "{}"))


def _arguments(text: str) -> dict[str, Any]:
    args = decoded(text, "the arguments of a tool call as a JSON object")
    if not isinstance(args, dict):
        raise malformed("the arguments of a tool call as a JSON object", text)
    return args


def tool_to_wire(tool: ToolSpec) -> Json:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def request_body(
    model: str,
    conversation: Sequence[Message],
    *,
    system: str,
    tools: Sequence[ToolSpec],
    stream: bool,
    options: Mapping[str, Any],
) -> Json:
    body: Json = {**options, "model": model}
    prompt = [{"role": "system", "content": system}] if system else []
    body["messages"] = prompt + [to_wire(message) for message in conversation]
    if tools:  # services reject an empty list
        body["tools"] = [tool_to_wire(tool) for tool in tools]
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def answer_from(body: Json, content: str) -> Answer:
    """Build the answer from a response that was not streamed; `body` is the request."""
    plain = decoded(content, "an answer as a JSON object")
    answer = checked(plain, WireAnswer, "an answer with choices")
    if not answer.choices or answer.choices[0].message is None:
        raise malformed("a choice with a message", content)
    choice = answer.choices[0]
    assert choice.message is not None
    return finished_answer(body, choice.message, choice.finish_reason, answer.usage)


class Assembly:
    """Assembles the chunks of a stream; a tool call arrives in fragments, identified by index."""

    def __init__(self, body: Json) -> None:
        self._body = body
        self._text: list[str] = []
        self._calls: dict[int, WireCall] = {}
        self._finish_reason: str | None = None
        self._usage: WireUsage | None = None

    def add(self, data: str) -> str:
        """Add one chunk. Return the text that it adds."""
        plain = decoded(data, "a chunk as a JSON object")
        if isinstance(plain, dict) and plain.get("error"):
            raise error_in_stream(plain["error"])
        chunk = checked(plain, WireAnswer, "a chunk with choices")
        self._usage = chunk.usage or self._usage
        added = [self._add_choice(choice) for choice in chunk.choices[:1]]
        return "".join(added)

    def _add_choice(self, choice: WireChoice) -> str:
        self._finish_reason = choice.finish_reason or self._finish_reason
        if choice.delta is None:
            return ""
        for fragment in choice.delta.tool_calls or ():
            self._add_fragment(fragment)
        text = choice.delta.content or ""
        self._text.append(text)
        return text

    def _add_fragment(self, fragment: WireCall) -> None:
        if fragment.index is None:
            raise malformed("a fragment of a tool call with its index", f"id {fragment.id!r}")
        call = self._calls.setdefault(fragment.index, WireCall(WireFunction(arguments="")))
        if call.id and fragment.id and call.id != fragment.id:
            raise malformed(f"one id for the tool call at {fragment.index}", f"also {fragment.id!r}")
        call.id = call.id or fragment.id
        call.function.name = call.function.name or fragment.function.name
        call.function.arguments = f"{call.function.arguments}{fragment.function.arguments or ''}"

    def answer(self) -> Answer:
        """The complete answer, if the stream reported that it is complete."""
        calls = [self._calls[index] for index in sorted(self._calls)]
        message = WireMessage(content="".join(self._text), tool_calls=calls)
        return finished_answer(self._body, message, self._finish_reason, self._usage)


def finished_answer(
    body: Json, message: WireMessage, finish_reason: str | None, usage: WireUsage | None
) -> Answer:
    """An Answer, if the model ended it by itself (M1)."""
    check_finish(finish_reason)
    calls = tuple(map(_call_from_wire, message.tool_calls or ()))
    if len({call.id for call in calls}) < len(calls):
        raise malformed("tool calls with different ids", ", ".join(call.id for call in calls))
    answer = Message("assistant", joined_surrogates(message.content or ""), calls)
    return Answer(answer, usage_from(body, answer, usage))


def check_finish(reason: str | None) -> None:
    if reason is None:
        raise malformed("an answer with a finish_reason", "none: it is incomplete")
    if reason in {"length", "content_filter"}:
        # A retry costs the same and ends the same, and half a decision is not a decision.
        raise ModelError(
            f"expected a complete answer, found finish_reason {reason!r}: allow more tokens, or ask for less",
            retryable=False,
        )


def usage_from(body: Json, answer: Message, usage: WireUsage | None) -> Usage:
    """The usage that the service reported, or an estimate: an uncounted call must not count as free."""
    if usage is not None:
        return Usage(usage.prompt_tokens, usage.completion_tokens)
    said = json.dumps(to_wire(answer))
    return Usage(estimated_tokens(json.dumps(body["messages"])), estimated_tokens(said))


def joined_surrogates(text: str) -> str:
    r"""Text that can be stored: services that split "\ud83d\ude00" in two send the halves separately."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def error_in_stream(error: object) -> ModelError:
    """The service had begun to answer with status 200 and then failed."""
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) else None
    return ModelError(
        f"expected the next chunk, found a service error: {shortened(str(error))}",
        retryable=status is None or can_pass(status),
        status=status,
    )


def decoded(text: str, expected: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise malformed(expected, text) from None


def checked(plain: Any, kind: type[T], expected: str) -> T:
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise malformed(expected, str(error)) from None


def malformed(expected: str, found: str) -> ModelError:
    """Unreadable data may have been damaged in transit: a retry may succeed."""
    return ModelError(f"expected {expected}, found {shortened(found)}", retryable=True)


def shortened(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:200]}...")
