"""Outcome: what a client gets as the answer to a request. View: what it gets about a session."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from reference_agent.messages import Message
from reference_agent.sessions.projector import Status
from reference_agent.sessions.snapshot import SessionSnapshot


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a request. `token` is returned once, to the first caller."""

    request_id: str
    run_id: str = ""  # unknown for a request that an earlier boot answered
    state: Literal["running", "answered", "waiting", "failed", "cancelled"]
    answer: str | None = None
    reason: str | None = None
    wait: dict[str, Any] | None = None
    token: str | None = None


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A session as clients see it."""

    snapshot: SessionSnapshot
    status: Status
    messages: tuple[Message, ...] = ()


def waiting(request_id: str, snapshot: SessionSnapshot, token: str) -> Outcome:
    assert snapshot.run
    assert snapshot.run.wait
    wait = snapshot.run.wait
    return Outcome(
        request_id=request_id,
        run_id=snapshot.run.run_id,
        state="waiting",
        token=token,
        wait={"kind": wait.kind, "call_id": wait.call_id, "deadline_at": wait.deadline_at},
    )


def without_secret(outcome: Outcome) -> Outcome:
    return msgspec.structs.replace(outcome, token=None)
