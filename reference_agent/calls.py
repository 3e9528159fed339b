"""ToolRunner: runs what the model decided, each mutating call at most once and remembered (G4, G5).

(unknown) --issue--> issued --finish--> completed | failed
                       |
                       +-- crash: repeat under the same key, or verify, or say "unknown"
"""

from __future__ import annotations

from reference_agent.messages import Message, ToolCall, idempotency_key
from reference_agent.store import SessionStore
from reference_agent.store.sqlite import CallStatus
from reference_agent.tools import Tool, Toolbox

UNKNOWN_OUTCOME = (
    "outcome unknown: the call was interrupted and cannot be verified; it was not repeated"
)


class ToolRunner:
    def __init__(self, store: SessionStore, toolbox: Toolbox, session: str) -> None:
        self._store = store
        self._toolbox = toolbox
        self._session = session

    async def run(self, call: ToolCall) -> Message:
        """The call's result as a message for the model; errors are results too."""
        tool = self._toolbox.find(call.name)
        if tool is None:
            return self._result(call, f"error: there is no tool {call.name!r}")
        key = idempotency_key(self._session, call)
        content = await (self._mutate if tool.mutating else self._attempt)(tool, call, key)
        return self._result(call, content)

    async def _mutate(self, tool: Tool, call: ToolCall, key: str) -> str:
        known = await self._store.call(key)
        if known and known.status == "issued":
            return await self._settle(tool, call, key)
        if known and known.result is not None and known.answers(call):
            return known.result
        await self._store.issue_call(key, call)
        return await self._execute(tool, call, key)

    async def _settle(self, tool: Tool, call: ToolCall, key: str) -> str:
        """An earlier life issued this call and died: it may or may not have happened."""
        if tool.repeatable:
            return await self._execute(tool, call, key)
        if tool.verify is None:
            await self._store.finish_call(key, "failed", UNKNOWN_OUTCOME)
            return UNKNOWN_OUTCOME
        happened = await tool.verify(call.args, key)
        if happened is None:
            return await self._execute(tool, call, key)
        await self._store.finish_call(key, "completed", happened)
        return happened

    async def _execute(self, tool: Tool, call: ToolCall, key: str) -> str:
        content = await self._attempt(tool, call, key)
        status: CallStatus = "failed" if content.startswith("error: ") else "completed"
        await self._store.finish_call(key, status, content)
        return content

    async def _attempt(self, tool: Tool, call: ToolCall, key: str) -> str:
        try:
            return await tool.run(call.args, key)
        except Exception as error:  # noqa: BLE001 - the model reasons about a tool's errors
            return f"error: {type(error).__name__}: {error}"

    @staticmethod
    def _result(call: ToolCall, content: str) -> Message:
        return Message("tool", content, call_id=call.id, tool=call.name)
