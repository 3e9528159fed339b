"""The model: given the conversation so far, it decides what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from reference_agent.messages import Message, ToolCall


class Model(Protocol):
    async def decide(self, conversation: Sequence[Message]) -> Message:
        """An assistant message: with tool calls, or the final answer."""
        ...


class ScriptedModel:
    """Plays a script: for the nth user message, the steps of its nth entry, one per turn.

    A step is a list of {"tool", "args"}. After the last step it answers with the entry's "answer",
    followed by what the tools said: an answer that changes when a result is lost or repeated.
    """

    def __init__(self, script: Sequence[dict[str, Any]]) -> None:
        self._script = script

    async def decide(self, conversation: Sequence[Message]) -> Message:
        asked = [n for n, message in enumerate(conversation) if message.role == "user"]
        entry = self._script[len(asked) - 1]
        since = conversation[asked[-1] + 1 :]
        turn = sum(message.role == "assistant" for message in since)
        if turn < len(entry["steps"]):
            calls = [
                ToolCall(f"call_{len(asked)}_{turn}_{n}", step["tool"], step["args"])
                for n, step in enumerate(entry["steps"][turn])
            ]
            return Message("assistant", "", tuple(calls))
        results = [message.content for message in since if message.role == "tool"]
        return Message("assistant", f"{entry['answer']} [{'; '.join(results)}]")
