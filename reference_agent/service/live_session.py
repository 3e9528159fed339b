"""Session: a session that is open in this process, and the request in progress."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from reference_agent.service.outcome import Outcome
from reference_agent.sessions.record import SessionRecord
from reference_agent.sessions.tokens import TokenService
from reference_agent.store.records import Run
from reference_agent.turn.agent import Agent


class Going:
    """A request in progress: its task, and its run once that is durable."""

    def __init__(self, request_id: str, work: Coroutine[Any, Any, Outcome]) -> None:
        self.request_id = request_id
        self.content: str | None = None  # None: a request that the store knows
        self.accepted: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(work)
        # Marks the exception as retrieved: possibly nothing awaits the task, and the log records the
        # failure.
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())

    def hear(self, request_id: str, run_id: str) -> None:
        if request_id == self.request_id and not self.accepted.done():
            self.accepted.set_result(run_id)


class Session:
    """One session of this process. While nobody uses it, its files may be closed: it is `dormant` then."""

    def __init__(self, record: SessionRecord, tokens: TokenService) -> None:
        self.record = record
        self.tokens = tokens
        self.agent: Agent | None = None
        self.turn = asyncio.Lock()  # held while a run is started or ended
        self.going: Going | None = None
        self.torn = False  # whether a run was aborted halfway, as by a kill
        self.outcomes: dict[str, Outcome] = {}
        self.changed = asyncio.Event()
        self.dormant = False
        self.users = 0  # operations and watchers that rely on it being open
        self.last_used = 0

    def wakes_up(self, record: SessionRecord, tokens: TokenService) -> None:
        self.record, self.tokens, self.dormant = record, tokens, False

    @property
    def can_sleep(self) -> bool:
        """Whether everything about it is on the disk. A wait is: its token resumes it."""
        awake = self.agent is None or not self.agent.degraded
        return not (self.dormant or self.users or self.is_running or self.turn.locked()) and awake

    @property
    def waits(self) -> bool:
        """Whether its run waits for a result, which only the token of this wait can bring."""
        run = self.record.snapshot.run
        return run is not None and run.wait is not None and run.end is None

    @property
    def is_running(self) -> bool:
        return self.going is not None and not self.going.task.done()

    @property
    def parked(self) -> Run | None:
        """The waiting run, if only its token can resume it."""
        run = self.record.snapshot.run
        return self.agent.parked if self.agent and run and run.wait else None

    def hear(self, name: str, facts: dict[str, Any]) -> None:
        if name == "accepted" and self.going:
            self.going.hear(facts["request"], facts["run"])

    def wake(self) -> None:
        """Make watchers check for new events."""
        self.changed.set()
        self.changed = asyncio.Event()

    def brought(self, call_id: str) -> str | None:
        """The result from outside for a call, taken from the token that was consumed for it."""
        for token in self.record.tokens.values():
            if token.call_id == call_id and token.state == "consumed":
                return str(token.result)
        return None
