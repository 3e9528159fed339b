"""The services around the agent, in this loop: successive boots, a clock that the test sets, the built-in
model, and a model that blocks until it is released."""

import asyncio
import errno
from collections import Counter

import pytest
from chaoskit_scenarios import inloop

from reference_agent.ids import ids_from
from reference_agent.recovery.manager import RecoveryManager
from reference_agent.service.coordinator import Coordinator
from reference_agent.sessions.tokens import TokenRefused
from reference_agent.store.event_log import read_log
from reference_agent.store.kinds import Location
from reference_agent.store.registry import DEFAULT
from reference_agent.terminal.notes import ASK, Notes, NoteTaker
from reference_agent.turn.agent import Agent
from reference_agent.turn.opening import HeldLog
from reference_agent.turn.runtime import Runtime
from tests.agent.helpers import play
from tests.agent.sessions.helpers import START

ENDS = ("run.completed", "run.failed", "run.cancelled", "run.interrupted")


class Model(NoteTaker):
    """Notes each message; blocks first if the message starts with "think"."""

    def __init__(self):
        self.go_on = asyncio.Event()
        self.thinking = asyncio.Event()
        self.asked = 0

    async def complete(self, conversation, *, system, tools):
        self.asked += 1
        if conversation[-1].role == "user" and conversation[-1].content.startswith("think"):
            self.thinking.set()
            await self.go_on.wait()
        return await super().complete(conversation, system=system, tools=tools)


class Service:
    """Use within a running loop. `boot` acts like a new process."""

    def __init__(self, path, store=DEFAULT, session="s", most_open=None):
        self.path = path
        self.store = store
        self.name = session
        self.most_open = most_open
        self.now = START
        self.boots = 0
        self.coordinator = None

    async def boot(self, *, create=True) -> Coordinator:
        if self.coordinator:
            await self.coordinator.close()
        self.boots += 1
        self.model = Model()
        self.new_id = ids_from(f"boot {self.boots}")
        boot_id = self.new_id("boot")
        self.coordinator = Coordinator(
            self.path,
            open_agent=self._open_agent,
            clock=self.clock,
            recovery=RecoveryManager(boot_id, self.clock),
            most_open=self.most_open,
        )
        self.boot_id = boot_id
        self.report = self.coordinator.boot()
        if create:
            await self.coordinator.create(self.name, title="", provider="local", model="m")
        return self.coordinator

    async def _open_agent(self, record, results, tell):
        notes = Notes()
        agent = await Agent.open(
            Location(self.path, self.store, inloop.connect),
            session=record.session,
            provider=self.model,
            toolbox=notes.tools(ASK),
            runtime=Runtime(
                new_id=self.new_id, clock=self.clock, sleep=self._sleep, tell=tell, results=results
            ),
            held=HeldLog(record.log, self.boot_id),
        )
        notes.directory = await agent.scratchpad()
        return agent

    def clock(self):
        return self.now

    async def _sleep(self, _seconds):
        pass

    # --- shorthands for one session

    async def say(self, content, request):
        await self.coordinator.post(self.name, content, request)
        return await self.coordinator.outcome(self.name, request)

    async def status(self):
        return self.coordinator.look(await self.coordinator.session(self.name)).status

    def log(self, session=None):
        """The content of the file, even while it is open."""
        return read_log(self.path / f"{session or self.name}.messages.jsonl")

    def kinds(self, *wanted):
        return [e["kind"] for e in self.log() if not wanted or e["kind"] in wanted]

    def runs(self):
        """The runs in order, each with how it ended."""
        log = self.log()
        started = [event["run_id"] for event in log if event["kind"] == "run.started"]
        assert len(started) == len(set(started))
        ends = [(event["run_id"], event["kind"]) for event in log if event["kind"] in ENDS]
        assert max(Counter(ends).values(), default=1) == 1
        return [[kind for run_id, kind in ends if run_id == run] for run in started]

    def notes(self, session=None):
        path = self.path / f"{session or self.name}.scratch" / "notes.txt"
        return path.read_text().count("\n") if path.exists() else 0


class Disk:
    """`helpers.Points` with a disk whose writes fail; `refuse(name)`: only at points of that name."""

    def __init__(self, points):
        self._points = points

    def refuse(self, *names, path=None):
        def at(name, when):
            if when == "before" and (not names or name in names):
                raise OSError(errno.ENOSPC, "No space left on device")

        self._points.at = at

    def take(self):
        self._points.at = lambda _name, _when: None


NOTED = "I have written that down (note {})."


def played(service, main):
    """Run a coroutine with the coordinator of the first boot; everything is closed afterwards."""

    async def whole():
        await service.boot()
        try:
            await main(service.coordinator)
        finally:
            await service.coordinator.close()

    play(whole())


async def refused(code, awaitable):
    with pytest.raises(TokenRefused) as caught:
        await awaitable
    assert caught.value.code == code


async def waits(service, request="q", question="may I?"):
    """Start a request that waits; its token."""
    outcome = await service.say(f"ask {question}", request)
    assert (outcome.request_id, outcome.state) == (request, "waiting")
    assert outcome.token
    return outcome.token


async def thinks(service, request="t", content="think"):
    """A request that is in progress until `service.model.go_on` is set."""
    outcome = await service.coordinator.post("s", content, request)
    assert outcome.state == "running"
    await service.model.thinking.wait()
    return outcome
