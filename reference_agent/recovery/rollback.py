"""Recovery: the steps between opening a session's state and resuming it.

The store is written first and the log follows. After a crash the log may therefore lack the last events,
and recovery only has to append them:

    1. Opening the event log cuts off a torn last line (G6).
    2. Missing events are appended to the log: the start of the last run, and the last completed turn.
    3. The last run gets its end: the one recorded in the store, or, if the run belongs to an older boot,
       its one `run.interrupted` (G7), written to the log first and then to its row. A crash in between
       repeats the step, which checks the log before appending to it again.
    4. Messages beyond the last checkpoint are removed (G2). The decisions and calls of an incomplete turn
       are in the journal, from which the agent completes them (G3, G4). Without a checkpoint there is
       nothing to roll back to: all messages stay, and calls that an older release left without a result
       get an error result that says so.
"""

from __future__ import annotations

from typing import Any

from reference_agent.messages import Message, unanswered
from reference_agent.store.event_log import EventLog
from reference_agent.store.protocol import SessionStore
from reference_agent.store.records import Run, RunStatus, StoredCheckpoint

OWN_ENDS = ("run.completed", "run.failed", "run.cancelled")
ENDS = (*OWN_ENDS, "run.interrupted")
NO_RESULT = "error: no result was recorded"


class Recovery:
    def __init__(self, store: SessionStore, log: EventLog, boot: str) -> None:
        self._store = store
        self._log = log
        self._boot = boot

    async def recover(self) -> StoredCheckpoint | None:
        """Recover the session. Return the checkpoint it was rolled back to, if any."""
        last = await self._store.last_run()
        checkpoint = await self._store.latest_checkpoint()
        if last:
            run, status = last
            self._log_once(
                "run.started", "run_id", run_id=run.run_id, request_id=run.request_id, boot_id=run.boot_id
            )
            if checkpoint:
                await self._log_turn_of(checkpoint)
            await self._end(run, status)
        if checkpoint:
            await self._store.roll_back_to(checkpoint.last_msg_id)
        if not await self._store.unfinished_requests():  # nobody else will
            await self._answer_the_unanswered()
        return checkpoint

    async def _log_turn_of(self, checkpoint: StoredCheckpoint) -> None:
        said = await self._store.messages(up_to=checkpoint.last_msg_id)
        # A checkpoint written between two calls does not end its turn.
        if not unanswered([each.message for each in said]):
            self._log_once("turn.completed", "turn", turn=checkpoint.turn)

    async def _end(self, run: Run, status: RunStatus) -> None:
        if status in ("completed", "failed"):
            # Also if a sweep has recorded an interruption, which it inferred from the missing end.
            if not self._has_ended(run, OWN_ENDS):
                self._log.append(f"run.{status}", run_id=run.run_id)
        elif status == "running" and run.boot_id != self._boot:
            await self._interrupt(run)

    async def _interrupt(self, run: Run) -> None:
        if not self._has_ended(run, ENDS):
            self._log.append("run.interrupted", run_id=run.run_id, reason="process_restart")
        await self._store.end_run(run, "interrupted", "process_restart")

    async def _answer_the_unanswered(self) -> None:
        stored = await self._store.messages()
        for call in unanswered([each.message for each in stored]):
            result = Message("tool", NO_RESULT, call_id=call.id, tool=call.name, is_error=True)
            await self._store.add_message(result, stored[-1].turn)

    def _has_ended(self, run: Run, ends: tuple[str, ...]) -> bool:
        return any(e["kind"] in ends and e.get("run_id") == run.run_id for e in self._log.events)

    def _log_once(self, kind: str, key: str, **fields: Any) -> None:
        """Append the event unless the log has one of that kind with the same `key`."""
        wanted = (kind, fields[key])
        if not any((event["kind"], event.get(key)) == wanted for event in self._log.events):
            self._log.append(kind, **fields)
