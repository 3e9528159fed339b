"""RecoveryManager: writes the lines that a session needs after a crash or after a deadline has passed (R3).

The lines that can be due, in the order in which they are written:

| due                                                                  | line                            |
|----------------------------------------------------------------------|---------------------------------|
| a token was consumed and its run not resumed                         | `run.resumed`                   |
| a run is to be interrupted (below), and has an active token          | `token.revoked`                 |
| a run of an older boot has no end                                    | `run.interrupted` process_restart |
| the deadline of a wait has passed                                    | `run.interrupted` wait_timeout  |
| a run waits for a token that is missing, expired or revoked          | `run.interrupted` token_invalid |
| a token has expired                                                  | `token.expired`                 |
| a token is active and its run is over, or not the latest             | `token.revoked` run_over        |
| this boot has not seen the session                                   | `boot.seen`                     |
| the status differs from the last such line                           | `status.derived`                |

`due` is a pure function of the state derived from the log. The sweep writes the line that `due` returns and
calls it again until nothing is due. If a crash interrupts the sweep, the next one continues with the same
line. A token is revoked before its run is interrupted, so that the audit trail always has the same order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from reference_agent.ids import Clock
from reference_agent.logs.structured import get_logger
from reference_agent.sessions.artifacts import Damaged
from reference_agent.sessions.projector import RESTART, Status, derive, resumable
from reference_agent.sessions.record import SessionRecord, UnknownSession, session_ids
from reference_agent.sessions.snapshot import SessionSnapshot
from reference_agent.sessions.times import has_passed
from reference_agent.sessions.token_index import Tokens
from reference_agent.store.event_log import DamagedLog
from reference_agent.store.lock import SessionBusy

log = get_logger(__name__)
Line = tuple[str, dict[str, Any]]


class BootReport(msgspec.Struct, frozen=True):
    boot_id: str
    appended: dict[str, list[str]]  # by session: the kinds of lines
    status: dict[str, Status]  # by session
    failed: dict[str, str]  # by session: the error that prevented the sweep


class RecoveryManager:
    def __init__(self, boot_id: str, clock: Clock) -> None:
        self.boot_id = boot_id
        self._clock = clock

    def boot(self, directory: Path) -> BootReport:
        """Sweep every session; a session that fails does not prevent the others from being swept."""
        report = BootReport(self.boot_id, {}, {}, {})
        for session in session_ids(directory):
            try:
                with SessionRecord.open(directory, session, clock=self._clock) as record:
                    report.appended[session] = self.sweep(record)
                    report.status[session] = self.status(record)
            except UnknownSession:
                pass  # a crash came before its first line
            except (SessionBusy, DamagedLog, Damaged, OSError) as error:
                report.failed[session] = str(error)
                log.warning("session.not_swept", session_id=session, reason=str(error))
        return report

    def sweep(self, record: SessionRecord) -> list[str]:
        """Write all lines that are due and return their kinds. Idempotent: call it at boot and any time."""
        now = self._clock()  # read once, so that what is due cannot change during the sweep
        appended = []
        while line := due(record, self.boot_id, now):
            kind, fields = line
            record.append(kind, **fields)
            appended.append(kind)
        record.save()
        return appended

    periodic = sweep

    def is_due(self, record: SessionRecord) -> bool:
        """Whether a sweep would write anything; the files may be closed."""
        return due(record, self.boot_id, self._clock()) is not None

    def status(self, record: SessionRecord) -> Status:
        return derive(record.snapshot, record.tokens, self.boot_id, self._clock())


def due(record: SessionRecord, boot_id: str, now: float) -> Line | None:
    """The first line that is missing, if any."""
    snapshot, tokens = record.snapshot, record.tokens
    line = (
        _resumption(snapshot, tokens)
        or _interruption(snapshot, tokens, boot_id, now)
        or _forgotten(record, boot_id)
        or _token_line(snapshot, tokens, now)
    )
    if line:
        return line
    if snapshot.recovery is None or snapshot.recovery.last_boot_seen != boot_id:
        return "boot.seen", {"boot_id": boot_id}
    status = derive(snapshot, tokens, boot_id, now)
    return ("status.derived", {"status": status}) if status != record.last_status else None


def _resumption(snapshot: SessionSnapshot, tokens: Tokens) -> Line | None:
    run = snapshot.run
    if run is None or run.end is not None or run.wait is None:
        return None
    token = tokens.get(run.wait.resume_token_id or "")
    if token is None or token.state != "consumed":
        return None
    return "run.resumed", {"run_id": run.run_id}


def _interruption(snapshot: SessionSnapshot, tokens: Tokens, boot_id: str, now: float) -> Line | None:
    run = snapshot.run
    if run is None or run.end is not None:
        return None
    if run.boot_id != boot_id:
        return _interrupt(run.run_id, tokens, RESTART)
    if run.wait is None or resumable(snapshot, tokens, now):
        return None
    if has_passed(run.wait.deadline_at, now):
        return _interrupt(run.run_id, tokens, "wait_timeout")
    return _expired(tokens, now) or _interrupt(run.run_id, tokens, "token_invalid")


def _interrupt(run_id: str, tokens: Tokens, reason: str) -> Line:
    for token in tokens.values():
        if token.state == "active" and token.run_id == run_id:
            return "token.revoked", {"token_id": token.token_id, "reason": reason}
    return "run.interrupted", {"run_id": run_id, "reason": reason}


def _forgotten(record: SessionRecord, boot_id: str) -> Line | None:
    """A run that never ended although a later one has started."""
    latest = record.snapshot.run and record.snapshot.run.run_id
    for run_id, boot in record.open_runs.items():
        if boot != boot_id and run_id != latest:
            return _interrupt(run_id, record.tokens, RESTART)
    return None


def _token_line(snapshot: SessionSnapshot, tokens: Tokens, now: float) -> Line | None:
    if line := _expired(tokens, now):
        return line
    live = snapshot.run.run_id if snapshot.run and snapshot.run.end is None else None
    for token in tokens.values():
        # A live run may have a token that it does not wait for yet.
        if token.state == "active" and token.run_id != live:
            return "token.revoked", {"token_id": token.token_id, "reason": "run_over"}
    return None


def _expired(tokens: Tokens, now: float) -> Line | None:
    for token in tokens.values():
        if token.state == "active" and has_passed(token.expires_at, now):
            return "token.expired", {"token_id": token.token_id}
    return None
