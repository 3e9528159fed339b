"""Runtime: what the process around the agent provides. Ids and time are among it, so that one seed can
decide them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from reference_agent.ids import Clock, NewId, Sleep, system_clock
from reference_agent.turn.hooks import HookRegistry

Listener = Callable[[str, dict[str, Any]], None]  # (name, facts) of what has become durable
Results = Callable[[str], str | None]  # call id -> what somebody outside has brought for it


def nobody(_name: str, _facts: dict[str, Any]) -> None:
    """The listener when nobody listens."""


def nothing_yet(_call_id: str) -> str | None:
    """Results from outside, when there is nobody to bring any."""
    return None


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    new_id: NewId
    clock: Clock = system_clock
    sleep: Sleep = asyncio.sleep
    tell: Listener = nobody
    results: Results = nothing_yet
    hooks: HookRegistry = msgspec.field(default_factory=HookRegistry)
