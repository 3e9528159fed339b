"""SessionStore: the durable state of one session, as the agent sees it.

Each method that writes makes one change, whole or not at all, durable when it returns. One that fails
(FAILURES of the backlog) has changed nothing that a later reading would show, and may be tried again. A
store whose driver has exceptions of its own raises an OSError for what the machine or the network refused.
"""

from __future__ import annotations

from typing import Protocol

from reference_agent.messages import Budget, Message, Plan, StoredMessage, ToolCall
from reference_agent.providers.base import Usage
from reference_agent.store.records import (
    CallStatus,
    RecordedCall,
    Request,
    Run,
    RunStatus,
    Snapshot,
    StoredCheckpoint,
    StoredError,
)


class SessionStore(Protocol):
    async def close(self) -> None: ...

    # --- the session

    async def create_session(self, model: str, provider: str, scratchpad: str) -> None:
        """Once; a session that is known keeps what it was created with."""

    async def scratchpad(self) -> str | None: ...

    # --- requests and runs (G1, G7)

    async def request(self, request_id: str) -> Request | None: ...

    async def start_run(self, run: Run, request: Request) -> None:
        """The request and a run for it. A request that is known may begin anew."""

    async def complete_run(self, run: Run, answer: str) -> None: ...

    async def end_run(self, run: Run, status: RunStatus, reason: str) -> None: ...

    async def last_run(self) -> tuple[Run, RunStatus] | None: ...

    async def unfinished_requests(self) -> list[Request]:
        """Accepted, not answered, and not given up."""

    # --- the conversation and its checkpoints (G2)

    async def messages(self, up_to: int | None = None) -> list[StoredMessage]:
        """All of them, or those up to an id. Ids only ever grow, and none is given twice."""

    async def add_message(self, message: Message, turn: int) -> None: ...

    async def roll_back_to(self, last_msg_id: int) -> None:
        """What was written after a checkpoint is no part of the conversation any more."""

    async def write_checkpoint(self, turn: int, plan: Plan | None, budget: Budget) -> int:
        """The next version; cheap however long the transcript is."""

    async def latest_checkpoint(self) -> StoredCheckpoint | None: ...

    async def versions(self) -> list[int]: ...

    async def load_version(self, version: int) -> Snapshot | None:
        """Any version, exactly as it was; None if there is none of that number."""

    async def plan(self, checkpoint: StoredCheckpoint) -> Plan | None: ...

    # --- the journal (G3, G4)

    async def decision(self, turn: int) -> Message | None: ...

    async def record_decision(self, turn: int, message: Message, usage: Usage) -> None:
        """What the model said and what it cost: both or neither, so nothing is counted twice."""

    async def spent_tokens(self) -> int: ...

    async def add_error(self, turn: int, context: str, message: str, attempt: int) -> None: ...

    async def errors(self, turn: int | None = None) -> list[StoredError]: ...

    async def call(self, call_id: str) -> RecordedCall | None: ...

    async def decided_call(self, key: str) -> RecordedCall | None:
        """Done, or an open question to the user: neither is to be done again."""

    async def open_questions(self) -> list[RecordedCall]:
        """Calls of which nobody knows whether they were done."""

    async def issue_call(self, call: ToolCall, key: str) -> None: ...

    async def finish_call(self, call_id: str, status: CallStatus, result: str) -> None: ...

    async def record_reading(self, call: ToolCall, key: str, status: CallStatus, result: str) -> None:
        """A call that only read: its result, so that what follows rests on the same facts."""
