"""Tools: what the model may call, and what each can do about a call whose outcome is unknown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

Args = dict[str, Any]
Run = Callable[[Args, str], Awaitable[str]]  # (args, idempotency key) -> result
Verify = Callable[[Args, str], Awaitable[str | None]]  # the result if it happened, else None


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """`repeatable`: the service behind it honours the key, so that running it again is harmless."""

    name: str
    run: Run
    mutating: bool = False
    repeatable: bool = False
    verify: Verify | None = None


class Toolbox:
    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def find(self, name: str) -> Tool | None:
        return self._tools.get(name)
