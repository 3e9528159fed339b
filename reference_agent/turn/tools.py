"""Tools: what the model may call, and how each tool settles a call whose outcome is unknown.

| a pending call of a tool that      | is settled by                                                |
|------------------------------------|--------------------------------------------------------------|
| only reads                         | running it: it has no effects                                |
| is `repeatable`                    | running it again under the same key; the service deduplicates|
| has `verify`                       | asking whether it happened; if it did not, running it        |
| has neither, `when_unknown="fail"` | a failed result: the model decides what to do                |
| has neither, `when_unknown="ask"`  | a failed result, and an open question to the user            |
| has `waits_for`                    | waiting longer: the result comes from outside                |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal

import msgspec

from reference_agent.providers.base import ToolSpec

Args = dict[str, Any]
Run = Callable[[Args, str], Awaitable[str]]  # (args, idempotency key) -> result
Verify = Callable[[Args, str], Awaitable[str | None]]  # the result if it happened, else None
Key = Callable[[Args, str], str]  # (args, call id) -> the key that identifies equal calls


async def nobody_runs(_args: Args, _key: str) -> str:
    """Placeholder for `run` in a tool whose result comes from outside."""
    raise RuntimeError("this tool is never run: its result comes from outside")


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """`key` replaces the default, which treats two calls with the same arguments as one call. A tool for
    which every call is distinct may use the call's id as its key. `waits_for` names what a call waits for
    (a person's approval, another system's result): the run stops there until the result arrives."""

    name: str
    run: Run = nobody_runs
    description: str = ""
    parameters: dict[str, Any] = {}
    mutating: bool = False
    repeatable: bool = False
    verify: Verify | None = None
    key: Key | None = None
    when_unknown: Literal["fail", "ask"] = "ask"
    deadline: float | None = None  # seconds; None: the agent's default, or no limit for a result from outside
    waits_for: str | None = None


class Toolbox:
    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def find(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def specs(self) -> list[ToolSpec]:
        """The tools as the model sees them."""
        return [ToolSpec(t.name, t.description, t.parameters) for t in self._tools.values()]
