"""The status of a session: the one place that knows the rules (R2).

From the latest run, the token of its wait, the boot we are in and the time. Of the rules that apply, the
first in this table decides:

| status                | the latest run                                                               |
|-----------------------|------------------------------------------------------------------------------|
| `interrupted_startup` | is of another boot than this one, and has no end but an interruption by a    |
|                       | restart (`process_restart`)                                                  |
| `interrupted_waiting` | waits, has no end but an interruption, and cannot be resumed any more        |
| `waiting`             | waits, has no end, and can be resumed                                        |
| `running`             | has no end                                                                   |
| `idle`                | has another end, or there is none                                            |

It can be resumed when it has not been interrupted and its token would be accepted now (`refusals`): it is
there, for this run and wait, active, not expired, and the deadline of the wait has not passed. A token that
was consumed without the run being resumed is not active: the sweep makes up for it.

An interruption is an end, and yet it shows until the next run starts: somebody has to be told. A run whose
boot nobody recorded (older logs) is of another boot.
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
    """Whether the wait can still end as it should."""
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
