"""Runtime: what the surrounding process provides to the agent, including ids and time, so that one seed
can determine them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from reference_agent.ids import Clock, NewId, Sleep, system_clock
from reference_agent.turn.hooks import HookRegistry

Listener = Callable[[str, dict[str, Any]], None]  # (name, facts) of a change that is now durable
Results = Callable[[str], str | None]  # call id -> its result from outside, if it has arrived


def nobody(_name: str, _facts: dict[str, Any]) -> None:
    """A listener that ignores every event."""


def nothing_yet(_call_id: str) -> str | None:
    """The default when no results come from outside."""
    return None


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    new_id: NewId
    clock: Clock = system_clock
    sleep: Sleep = asyncio.sleep
    tell: Listener = nobody
    results: Results = nothing_yet
    hooks: HookRegistry = msgspec.field(default_factory=HookRegistry)
