"""Bugs that the fuzzer found in the agent, put back: each must be found again. See `agent.mutations`."""

from __future__ import annotations

import asyncio
from typing import Any

from chaoskit_scenarios.agent.mutations import STORES, replace
from reference_agent.recovery import rollback
from reference_agent.service.coordinator import Coordinator
from reference_agent.service.live_session import Session
from reference_agent.store import backlog, files
from reference_agent.store.backlog import Backlog
from reference_agent.store.database import Database
from reference_agent.store.sqlite import SqliteStore
from reference_agent.terminal.notes import Notes
from reference_agent.turn import asking, calls
from reference_agent.turn.agent import Agent
from reference_agent.turn.calls import CallOutcome, ToolRunner


def forgets_failed() -> None:
    """A request that failed once is finished for ever, also if it is posted again."""
    sound = files.unfinished

    async def unfinished(self: SqliteStore) -> Any:
        rows = await self._db.execute(
            "SELECT request_id FROM runs WHERE session_id = ? AND status = 'failed'", self._session
        )
        failed = {row[0] for row in rows}
        return [each for each in await sound_sqlite(self) if each.request_id not in failed]

    def unfinished_lines(fold: Any) -> Any:
        failed = {run.request_id for run, status in fold.runs.values() if status == "failed"}
        return [each for each in sound(fold) if each.request_id not in failed]

    sound_sqlite = SqliteStore.unfinished_requests
    replace(SqliteStore, "unfinished_requests", unfinished)
    replace(files, "unfinished", unfinished_lines)


def reuses_turns() -> None:
    replace(Agent, "_new_turn", lambda self: (self._turns[-1] if self._turns else 0) + 1)


def stays_interrupted() -> None:
    replace(rollback, "OWN_ENDS", rollback.ENDS)


def confirms_unsynced() -> None:
    async def verify(self: Notes, _args: Any, key: str) -> Any:
        return self._number(key)

    replace(Notes, "verify", verify)


def forgets_equal_calls() -> None:
    async def nothing(_self: Any, _key: str) -> None:
        return None

    for store in STORES:
        replace(store, "issued_call", nothing)


def forgets_refusals() -> None:
    """Results of calls that were never made are shown to the model, and not recorded."""
    sound = ToolRunner._remember

    async def remember(self: ToolRunner, call: Any, key: str, outcome: CallOutcome) -> CallOutcome:
        if outcome.text.startswith(("error: not run", "error: there is no tool")):
            return outcome
        return await sound(self, call, key, outcome)

    replace(ToolRunner, "_remember", remember)


def repeats_cancelled_writes() -> None:
    async def finished(self: Backlog, name: str, operation: Any) -> bool:
        if not await self._try(name, operation):
            return False
        self._waiting.popleft()
        return True

    async def directly(operation: Any) -> None:
        await operation()

    replace(Backlog, "_finished", finished)
    replace(backlog, "to_its_end", directly)


def stores_anything() -> None:
    replace(calls, "_text", lambda result: result)


def leaves_calls_open() -> None:
    async def nothing(_self: Agent, _reason: str) -> None:
        pass

    replace(Agent, "_answer_open_calls", nothing)


def believes_cancellations() -> None:
    """A tool that raises CancelledError ends the run, as if the server were stopping."""

    def always(error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            raise error

    replace(calls, "_raise_if_cancelled", always)


def lets_providers_crash() -> None:
    replace(asking, "_as_model_error", lambda error: error)


def migrates_twice() -> None:
    """The version is read before the lock is taken."""
    sound = Database._version

    async def version(self: Database, path: Any) -> int:
        if not hasattr(self, "_read"):
            self._read = await sound(self, path)  # type: ignore[attr-defined]
        return int(self._read)  # type: ignore[attr-defined]

    replace(Database, "_version", version)


def keeps_sessions_open() -> None:
    async def nothing(_self: Coordinator) -> None:
        pass

    replace(Coordinator, "_make_room", nothing)


def resumes_the_next_wait() -> None:
    """A token that was used before resumes whatever the run waits for now."""
    replace(Session, "waits", property(lambda _self: False))


def parks_after_cancel() -> None:
    replace(Agent, "_take_turns_unless_it_waits", Agent._take_turns)

    def is_cancelled(self: Agent, request: str) -> bool:
        return self.parked is None and request in self._cancelled

    replace(Agent, "is_cancelled", is_cancelled)


def takes_over_turns() -> None:
    """A request that was rolled back continues among the messages of another one."""

    def can_go_on(self: Agent, request: Any) -> bool:
        asked = [m.content for m in self._said_in(request.first_turn) if m.role == "user"]
        return asked in ([], [request.content])

    replace(Agent, "_can_go_on", can_go_on)


def asks_for_cancelled() -> None:
    replace(asking.ModelCaller, "_stop_if_cancelled", lambda _self: None)


def fulfils_twice() -> None:
    replace(Agent, "has_given_up", lambda _self, _request: False)
