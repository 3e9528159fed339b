"""The status of a session: the only place that defines the rules (R2).

The status is derived from the latest run, the token of its wait, the current boot and the time. The first
row that applies decides:

| status                | the latest run                                                               |
|-----------------------|------------------------------------------------------------------------------|
| `interrupted_startup` | belongs to another boot, and has no end but an interruption by a restart     |
|                       | (`process_restart`)                                                          |
| `interrupted_waiting` | waits, has no end but an interruption, and can no longer be resumed          |
| `waiting`             | waits, has no end, and can be resumed                                        |
| `running`             | has no end                                                                   |
| `idle`                | has another end, or does not exist                                           |

A run can be resumed if it has not been interrupted and its token would be accepted now (`refusals`): the
token exists, belongs to this run and wait, is active and has not expired, and the deadline of the wait has
not passed. A token that was consumed without its run being resumed is not active; the sweep repairs that.

An interruption is an end, yet the status shows it until the next run starts, so that a client gets to see
it. A run without a recorded boot (older logs) counts as a run of another boot.
"""

from __future__ import annotations

from typing import Literal

from reference_agent.sessions.refusals import TokenRefused, check_usable
from reference_agent.sessions.snapshot import RunBlock, SessionSnapshot
from reference_agent.sessions.token_index import Tokens

Status = Literal["running", "waiting", "idle", "interrupted_startup", "interrupted_waiting"]
RESTART = "process_restart"


def derive(snapshot: SessionSnapshot, tokens: Tokens, boot_id: str, now: float) -> Status:
    run = snapshot.run
    if run is None or run.end not in (None, "interrupted"):
        return "idle"
    if run.boot_id != boot_id and (run.end is None or _reason(snapshot, run) == RESTART):
        return "interrupted_startup"
    if run.wait:
        return "waiting" if resumable(snapshot, tokens, now) else "interrupted_waiting"
    return "running" if run.end is None else "idle"


def resumable(snapshot: SessionSnapshot, tokens: Tokens, now: float) -> bool:
    """Whether the wait can still end with a result."""
    wait = snapshot.run and snapshot.run.wait
    token = tokens.get(wait.resume_token_id or "") if wait else None
    if token is None:
        return False
    try:
        check_usable(token, snapshot, now)
    except TokenRefused:
        return False
    return True


def _reason(snapshot: SessionSnapshot, run: RunBlock) -> str | None:
    interruption = snapshot.recovery and snapshot.recovery.interruption
    return interruption.reason if interruption and interruption.run_id == run.run_id else None
