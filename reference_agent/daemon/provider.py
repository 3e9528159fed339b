"""The daemon's interface to a provider, and a scripted provider whose output is determined by a seed."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Protocol

import msgspec

POISON = "poison"  # a message with this prefix makes the scripted session fail


class ProviderSession(Protocol):
    """One conversation; one turn at a time."""

    async def send(self, message_id: str, content: str) -> str:
        """Take one turn. An error means that the session is lost and must be restored."""

    def suspend(self) -> str:
        """Return all that `restore` needs, as of the last complete turn. The session stays usable."""

    async def close(self) -> None: ...


class Provider(Protocol):
    async def create(self, agent_id: str, model: str, /) -> ProviderSession: ...

    async def restore(self, agent_id: str, model: str, blob: str, /) -> ProviderSession: ...


class Turn(msgspec.Struct, frozen=True):
    message_id: str
    content: str
    reply: str


class History(msgspec.Struct):
    """The content of the scripted provider's blob, as JSON."""

    agent_id: str
    turns: list[Turn] = []


class ScriptedSession:
    def __init__(self, history: History, seed: int, slowest: float) -> None:
        self.history = history
        self._seed = seed
        self._slowest = slowest

    async def think(self, *about: str) -> bytes:
        """Sleep for a time determined by the seed, so that agents overtake each other."""
        told = "/".join([str(self._seed), self.history.agent_id, *about])
        digest = hashlib.blake2b(told.encode(), digest_size=4).digest()
        await asyncio.sleep(self._slowest * digest[0] / 255)
        return digest

    async def send(self, message_id: str, content: str) -> str:
        digest = await self.think(message_id, content)
        if content.startswith(POISON):
            raise RuntimeError(f"{self.history.agent_id} choked on {message_id}")
        reply = f"{self.history.agent_id} read {message_id}: {digest.hex()}"
        self.history.turns.append(Turn(message_id, content, reply))
        return reply

    def suspend(self) -> str:
        return msgspec.json.encode(self.history).decode()

    async def close(self) -> None:
        """There is no process to end."""


class ScriptedProvider:
    def __init__(self, seed: int = 0, slowest: float = 2.5) -> None:
        """`slowest`: the maximum duration of a turn in seconds; starting takes up to a fifth of that."""
        self._seed = seed
        self._slowest = slowest

    async def create(self, agent_id: str, _model: str) -> ScriptedSession:
        return await self._started(History(agent_id))

    async def restore(self, _agent_id: str, _model: str, blob: str) -> ScriptedSession:
        history = msgspec.json.decode(blob, type=History)
        return await self._started(history)

    async def _started(self, history: History) -> ScriptedSession:
        await ScriptedSession(history, self._seed, self._slowest / 5).think(str(len(history.turns)))
        return ScriptedSession(history, self._seed, self._slowest)
