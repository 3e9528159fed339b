"""SessionStore: the durable state of one session, as the agent sees it.

Each method that writes makes one atomic change, durable on return. A write that fails (FAILURES of the
backlog) has changed nothing that a later read would show, and can be retried. A store whose driver has its
own exceptions raises OSError for errors of the machine or the network.
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
        """Create the session once; an existing session keeps its original values."""

    async def scratchpad(self) -> str | None: ...

    # --- requests and runs (G1, G7)

    async def request(self, request_id: str) -> Request | None: ...

    async def start_run(self, run: Run, request: Request) -> None:
        """Record the request and a run for it. An existing request may start over."""

    async def complete_run(self, run: Run, answer: str) -> None: ...

    async def end_run(self, run: Run, status: RunStatus, reason: str) -> None: ...

    async def last_run(self) -> tuple[Run, RunStatus] | None: ...

    async def unfinished_requests(self) -> list[Request]:
        """Requests that were accepted and not answered, unless their latest run was given up."""

    # --- the conversation and its checkpoints (G2)

    async def messages(self, up_to: int | None = None) -> list[StoredMessage]:
        """All messages, or those up to an id. Ids always increase, and none is used twice."""

    async def add_message(self, message: Message, turn: int) -> None: ...

    async def roll_back_to(self, last_msg_id: int) -> None:
        """Remove the messages written after a checkpoint from the conversation."""

    async def write_checkpoint(self, turn: int, plan: Plan | None, budget: Budget) -> int:
        """Write the next version. The cost does not depend on the length of the transcript."""

    async def latest_checkpoint(self) -> StoredCheckpoint | None: ...

    async def versions(self) -> list[int]: ...

    async def load_version(self, version: int) -> Snapshot | None:
        """Load any version exactly as it was; None if that version does not exist."""

    async def plan(self, checkpoint: StoredCheckpoint) -> Plan | None: ...

    # --- the journal (G3, G4)

    async def last_turn(self) -> int:
        """The highest turn of any request, decision or error, also of those rolled back; at first 0."""

    async def turns_of(self, request_id: str) -> list[int]:
        """The turns in which a request got a decision or an error, in ascending order."""

    async def decision(self, turn: int) -> Message | None: ...

    async def record_decision(self, turn: int, request_id: str, message: Message, usage: Usage) -> None:
        """Record the model's decision and its cost atomically, so that no tokens are counted twice."""

    async def spent_tokens(self) -> int: ...

    async def add_error(
        self, turn: int, request_id: str, context: str, message: str, attempt: int
    ) -> None: ...

    async def errors(self, turn: int | None = None) -> list[StoredError]: ...

    async def call(self, call_id: str) -> RecordedCall | None: ...

    async def decided_call(self, key: str) -> RecordedCall | None:
        """The call under this key that completed or is an open question; neither may run again."""

    async def issued_call(self, key: str) -> RecordedCall | None:
        """The call under this key that was issued and has no known outcome."""

    async def open_questions(self) -> list[RecordedCall]:
        """Calls whose outcome is unknown."""

    async def issue_call(self, call: ToolCall, key: str) -> None: ...

    async def finish_call(self, call_id: str, status: CallStatus, result: str) -> None: ...

    async def record_reading(self, call: ToolCall, key: str, status: CallStatus, result: str) -> None:
        """Record the result of a call that only read, so that later turns rest on the same facts."""
