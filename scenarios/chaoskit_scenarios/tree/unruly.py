"""A provider that does what the message or the agent's model says, however bad it is for the daemon."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from chaoskit_scenarios import inloop
from chaoskit_scenarios.tree.spelling import text_of
from reference_agent.daemon.provider import History, ScriptedProvider, ScriptedSession

HELD = "hold"  # a message that takes until the provider is released
FAILS = 2  # turns, before a `flaky` message succeeds
SLOW = 30.0  # seconds


class UnrulyProvider(ScriptedProvider):
    def __init__(self, seed: int, died: Callable[[], None], takes_turn: Callable[[str], None]) -> None:
        super().__init__(seed)
        self.seed = seed
        self.died = died  # called before the process does
        self.takes_turn = takes_turn  # called with the agent
        self.released = asyncio.Event()
        self.released.set()
        self.failed: Counter[str] = Counter()

    async def create(self, agent_id: str, model: str) -> UnrulySession:
        if model == "stillborn":
            raise RuntimeError(f"{agent_id} cannot be created")
        if model == "coma":
            await asyncio.get_running_loop().create_future()
        return await self._unruly(super().create(agent_id, model), model)

    async def restore(self, agent_id: str, model: str, blob: str) -> UnrulySession:
        if model == "amnesiac":
            raise RuntimeError(f"{agent_id} cannot be restored")
        return await self._unruly(super().restore(agent_id, model, blob), model)

    async def _unruly(self, started: Awaitable[ScriptedSession], model: str) -> UnrulySession:
        return UnrulySession((await started).history, self, model)


class UnrulySession(ScriptedSession):
    def __init__(self, history: History, provider: UnrulyProvider, model: str) -> None:
        super().__init__(history, provider.seed, 2.5)
        self._provider = provider
        self._is_blank = model == "blank"

    async def send(self, message_id: str, content: str) -> Any:
        self._provider.takes_turn(self.history.agent_id)
        match content:
            case "deadly":
                await self.think(message_id)
                self._provider.died()
                await inloop.die()
            case "hang":
                await asyncio.get_running_loop().create_future()
            case "cancels":
                raise asyncio.CancelledError
            case "slow":
                await asyncio.sleep(SLOW)
            case "hold":
                await self._provider.released.wait()
            case "flaky":
                self._provider.failed[message_id] += 1
                if self._provider.failed[message_id] <= FAILS:
                    raise RuntimeError("not yet")
        reply = await super().send(message_id, content)
        self._is_blank = self._is_blank or content == "blobless"
        wrong = {"mute": None, "number": 7, "garbled": text_of("~surrogate~")}
        if content not in wrong:
            return reply
        last = self.history.turns[-1]
        self.history.turns[-1] = msgspec.structs.replace(last, reply="")
        return wrong[content]

    def suspend(self) -> Any:
        return None if self._is_blank else super().suspend()
