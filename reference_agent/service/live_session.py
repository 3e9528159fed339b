"""Session: one session that is open in this process, and the request that is seen to in it."""

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
    """A request that is seen to, the task that does it, and its run once that is durable."""

    def __init__(self, request_id: str, work: Coroutine[Any, Any, Outcome]) -> None:
        self.request_id = request_id
        self.accepted: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(work)
        # Retrieved: there may be nobody who waits for it, and it is on record in the log.
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())

    def hear(self, request_id: str, run_id: str) -> None:
        if request_id == self.request_id and not self.accepted.done():
            self.accepted.set_result(run_id)


class Session:
    """One session that is open in this process."""

    def __init__(self, record: SessionRecord, tokens: TokenService) -> None:
        self.record = record
        self.tokens = tokens
        self.agent: Agent | None = None
        self.turn = asyncio.Lock()  # whoever starts or ends a run has it
        self.going: Going | None = None
        self.torn = False  # whether a run was left in the middle, as a kill would
        self.outcomes: dict[str, Outcome] = {}
        self.changed = asyncio.Event()

    @property
    def is_running(self) -> bool:
        return self.going is not None and not self.going.task.done()

    @property
    def parked(self) -> Run | None:
        """The run that waits, if its token is the only way on."""
        run = self.record.snapshot.run
        return self.agent.parked if self.agent and run and run.wait else None

    def hear(self, name: str, facts: dict[str, Any]) -> None:
        if name == "accepted" and self.going:
            self.going.hear(facts["request"], facts["run"])

    def wake(self) -> None:
        """Whoever watches looks again."""
        self.changed.set()
        self.changed = asyncio.Event()

    def brought(self, call_id: str) -> str | None:
        """What came from outside for a call: with the token that was used up for it."""
        for token in self.record.tokens.values():
            if token.call_id == call_id and token.state == "consumed":
                return str(token.result)
        return None
