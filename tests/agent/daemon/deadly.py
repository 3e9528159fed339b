"""A daemon in which some messages kill the whole process every time.

Usage: `python -m tests.agent.daemon.deadly DIRECTORY STORE BOOT AGENT`; restoring AGENT kills the process.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from chaoskit_scenarios import inloop

from reference_agent.daemon.daemon import Daemon
from reference_agent.daemon.provider import ScriptedProvider, ScriptedSession
from reference_agent.daemon.stores import opened_store
from reference_agent.ids import ids_from
from reference_agent.store.kinds import Location

DEAD = 9
AGENTS = "abcde"


class DeadlySession(ScriptedSession):
    async def send(self, message_id, content):
        """The others take longer, so that their turns are in progress when it happens."""
        if content == "deadly":
            await asyncio.sleep(1)
            os._exit(DEAD)
        await asyncio.sleep(2)
        return await super().send(message_id, content)


class DeadlyProvider(ScriptedProvider):
    def __init__(self, broken):
        super().__init__()
        self._broken = broken

    async def create(self, agent_id, model):
        return await self._deadly(super().create(agent_id, model))

    async def restore(self, agent_id, model, blob):
        if agent_id == self._broken:
            os._exit(DEAD)
        return await self._deadly(super().restore(agent_id, model, blob))

    @staticmethod
    async def _deadly(started):
        return DeadlySession((await started).history, 0, 2.5)


async def main(store, boot, broken):
    async with opened_store(Location(Path(), store, inloop.connect), clock=lambda: 0.0) as opened:
        providers = {"scripted": DeadlyProvider(broken)}
        daemon = Daemon(opened, providers, new_id=ids_from(boot))
        await daemon.recover()
        await daemon.start()
        if not daemon.state.agents:
            for agent in AGENTS:
                await daemon.spawn(agent, parent=None, provider="scripted", model="m")
            await asyncio.gather(
                *(
                    daemon.send(agent, "deadly" if agent == "b" else "hello", message_id=f"m{agent}")
                    for agent in AGENTS
                )
            )
        await daemon.settled()
        print(json.dumps([daemon.set_aside(), {a: r.blob for a, r in daemon.state.agents.items()}]))


if __name__ == "__main__":
    directory, *options = sys.argv[1:]
    os.chdir(directory)
    inloop.run(main(*options))
