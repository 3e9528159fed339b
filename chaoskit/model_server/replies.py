"""The answers of a correct chat-completions service, as plain JSON.

An answer depends only on the request and its number, so every life of a target gets the same answers. The
service rejects what real services reject permanently, above all a conversation in which a tool call has
no result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

Json = dict[str, Any]
Script = Sequence[Mapping[str, Any]]

CREATED = 1_700_000_000  # constant: answers must be repeatable
ROLES = ("system", "developer", "user", "assistant", "tool")


class Reply(msgspec.Struct, frozen=True):
    """An assistant's message and the metadata around it."""

    id: str
    model: str
    content: str
    calls: tuple[Json, ...]  # {"id", "type": "function", "function": {"name", "arguments"}}
    usage: Json

    @property
    def finish_reason(self) -> str:
        return "tool_calls" if self.calls else "stop"


def reply_to(body: Json, script: Script | None, number: int) -> Reply:
    """The nth request's answer: from the script, or an echo without one."""
    content, calls = next_message(body["messages"], script)
    said = content + "".join(json.dumps(call["function"]) for call in calls)
    read, written = _tokens(json.dumps(body["messages"])), _tokens(said)
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return Reply(f"chatcmpl-{number}", str(body.get("model", "")), content, tuple(calls), usage)


def next_message(messages: Sequence[Json], script: Script | None) -> tuple[str, list[Json]]:
    """Content and calls, by the nth user message and the turns since: see `Script` in the docs.

    {"steps": [[{"tool": "pay", "args": {...}}, ...], ...], "answer": "Paid."}
    """
    asked = [n for n, message in enumerate(messages) if message["role"] == "user"]
    if script is None or not asked or len(asked) > len(script):
        return f"You said: {messages[asked[-1]].get('content') if asked else 'nothing'}", []
    entry = script[len(asked) - 1]
    since = messages[asked[-1] + 1 :]
    turn = sum(message["role"] == "assistant" for message in since)
    if turn < len(entry["steps"]):
        steps = enumerate(entry["steps"][turn])
        return "", [_call(f"call_{len(asked)}_{turn}_{n}", step) for n, step in steps]
    results = [str(message.get("content")) for message in since if message["role"] == "tool"]
    return f"{entry['answer']} [{'; '.join(results)}]", []


def _call(call_id: str, step: Mapping[str, Any]) -> Json:
    function = {"name": step["tool"], "arguments": json.dumps(step["args"])}
    return {"id": call_id, "type": "function", "function": function}


def whole(reply: Reply, *, finished: bool = True) -> bytes:
    """The answer in one piece."""
    message: Json = {"role": "assistant", "content": reply.content or None}
    if reply.calls:
        message["tool_calls"] = list(reply.calls)
    reason = reply.finish_reason if finished else None
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    return _encode(_envelope(reply, "chat.completion") | {"choices": [choice], "usage": reply.usage})


def events(reply: Reply, *, with_usage: bool, finished: bool = True) -> list[bytes]:
    """The answer as the events of a stream; a finished one ends with its finish reason and [DONE]."""
    deltas = [{"role": "assistant", "content": "" if reply.content else None}, *_deltas(reply)]
    chunks = [_chunk(reply, delta, None) for delta in deltas]
    if not finished:
        return [event(_encode(chunk)) for chunk in chunks]
    chunks.append(_chunk(reply, {}, reply.finish_reason))
    if with_usage:
        last = _envelope(reply, "chat.completion.chunk")
        chunks.append(last | {"choices": [], "usage": reply.usage})
    return [*(event(_encode(chunk)) for chunk in chunks), event(b"[DONE]")]


def event(content: bytes) -> bytes:
    return b"data: " + content + b"\n\n"


def _deltas(reply: Reply) -> Iterator[Json]:
    for piece in _pieces(reply.content, 6):
        yield {"content": piece}
    for index, call in enumerate(reply.calls):
        head = {"name": call["function"]["name"], "arguments": ""}
        yield _call_delta({"index": index, "id": call["id"], "type": "function", "function": head})
        for piece in _pieces(call["function"]["arguments"], 9):
            yield _call_delta({"index": index, "function": {"arguments": piece}})


def _call_delta(fragment: Json) -> Json:
    return {"tool_calls": [fragment]}


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _chunk(reply: Reply, delta: Json, finish_reason: str | None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
    return _envelope(reply, "chat.completion.chunk") | {"choices": [choice]}


def _envelope(reply: Reply, kind: str) -> Json:
    return {"id": reply.id, "object": kind, "created": CREATED, "model": reply.model}


def error(message: str, code: str) -> bytes:
    return _encode({"error": {"message": message, "type": code, "param": None, "code": code}})


def complaint(body: object) -> str | None:
    """Why a real service would reject this request, or None."""
    if not isinstance(body, dict):
        return "expected a JSON object"
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return "expected 'messages' to be a list with at least one message"
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            return f"messages[{number}]: expected an object with a role, one of {', '.join(ROLES)}"
        if not _has_sound_calls(message):
            return f"messages[{number}]: expected 'tool_calls' to be a list of objects with an id"
    return _unanswered(messages)


def _has_sound_calls(message: Json) -> bool:
    calls = message.get("tool_calls") or []
    return isinstance(calls, list) and all(isinstance(c, dict) and "id" in c for c in calls)


def _unanswered(messages: Sequence[Json]) -> str | None:
    """Every tool call must be followed by its result, and every result must answer a call."""
    owed: list[str] = []
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            if message.get("tool_call_id") not in owed:
                return f"messages[{number}]: a tool message must answer a preceding tool call"
            owed.remove(message["tool_call_id"])
        elif owed:
            break
        else:
            owed = [call["id"] for call in message.get("tool_calls") or ()]
    return f"tool calls without a result: {', '.join(owed)}" if owed else None


def _tokens(text: str) -> int:
    return -(-len(text) // 4)


def _encode(value: Json) -> bytes:
    # Not ASCII only, like most services: a chunk may end in the middle of a character.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
