"""A directory with a daemon in it, on a virtual clock, and a crash at the kth persist point."""

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager

from chaoskit_scenarios import inloop

from reference_agent.daemon.daemon import Daemon
from reference_agent.daemon.files import FilesDaemonStore
from reference_agent.daemon.mailbox import Limits
from reference_agent.daemon.provider import ScriptedProvider
from reference_agent.daemon.stores import opened_store
from reference_agent.ids import ids_from
from reference_agent.store.kinds import Location

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - no waiting for a disk
SCRIPTED = {"provider": "scripted", "model": "m1"}


class Death(BaseException):
    """Simulates the death of the process."""


_listener: list[Callable[[str, str], None]] = []


def _hook(event, args):
    if event == "persist.point" and _listener:
        _listener[-1](*args)


sys.addaudithook(_hook)  # an audit hook cannot be removed: installed once, then switched on and off


class Points:
    def __init__(self, deadly, when_called):
        self.deadly = deadly
        self.when_called = when_called
        self.passed = []

    def __call__(self, name, when):
        self.passed.append((name, when))
        self.when_called(name, when)
        if self.deadly is not None and len(self.passed) >= self.deadly:
            raise Death  # also for tasks that are still running: nothing persists after death


@contextmanager
def watched(deadly=None, when_called=lambda _name, _when: None):
    points = Points(deadly, when_called)
    _listener.append(points)
    try:
        yield points
    finally:
        _listener.pop()


class Home:
    def __init__(self, path, kind, limits=None, segment=None):
        path.mkdir(exist_ok=True)
        self.path = path
        self.kind = kind
        self.limits = limits or Limits()
        self.segment = segment
        self.boots = 0
        self.providers = {"scripted": ScriptedProvider(7)}

    @asynccontextmanager
    async def store(self):
        if self.segment:  # else the default
            store = FilesDaemonStore(self.path, lambda: 0.0, self.segment)
            try:
                yield store
            finally:
                await store.close()
            return
        async with opened_store(Location(self.path, self.kind, inloop.connect), clock=lambda: 0.0) as store:
            yield store

    @asynccontextmanager
    async def daemon(self, *, start=True):
        """A daemon, recovered and started. It is left as a kill leaves it, unless the test closes it."""
        self.boots += 1
        async with self.store() as store:
            daemon = Daemon(store, self.providers, new_id=ids_from(str(self.boots)), limits=self.limits)
            await daemon.recover()
            if start:
                await daemon.start()
            yield daemon

    def run(self, act, *, start=True, order=None):
        """Run `act(daemon)` in a life of its own and return its result."""
        answer = []

        async def main():
            # A dead process prints no warnings about pending tasks.
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
            async with self.daemon(start=start) as daemon:
                answer.append(await act(daemon))

        inloop.run(main(), order)
        return answer[0]


def history(daemon, agent):
    """The ids of the messages that an agent has handled, from its blob."""
    return [turn["message_id"] for turn in json.loads(daemon.state.agents[agent].blob)["turns"]]


async def family(daemon):
    """A root, its child and its grandchild."""
    for agent, parent in (("a", None), ("b", "a"), ("c", "b")):
        await daemon.spawn(agent, parent=parent, **SCRIPTED)


def assert_sound(state, spawned=()):
    """Check what always holds of the tree, the records and the histories."""
    assert set(state.parents) == set(state.agents)  # no orphan, no record without a link
    assert {p for p in state.parents.values() if p is not None} <= set(state.agents)
    assert set(spawned) <= set(state.agents)
    for agent, above in state.parents.items():
        line = [agent]
        while (parent := state.parents[line[-1]]) is not None:
            assert parent not in line, "a cycle"
            line.append(parent)
        if above is not None and state.agents[agent].state == "ACTIVE":
            assert state.agents[above].state == "ACTIVE"
        if above is not None and state.agents[above].state == "STOPPED":
            assert state.agents[agent].state == "STOPPED"
    for record in state.agents.values():
        ids = [turn["message_id"] for turn in json.loads(record.blob)["turns"]]
        assert not [m for m, n in Counter(ids).items() if n > 1], "handled twice"
