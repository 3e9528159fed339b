"""SessionSnapshot: the state derived from a session's log, stored in `<session>.json`.

| event                                | what it changes                                                 |
|--------------------------------------|-----------------------------------------------------------------|
| `session.created`                    | title, working_dir, provider; created_at if it is not set       |
| `run.started`                        | a new `run`; clears the interruption of the previous one        |
| `run.waiting`                        | `run.wait` begins, or continues with another token              |
| `run.resumed`                        | `run.wait` ends                                                 |
| `run.completed, .failed, .cancelled` | `run.end`; also for a run recorded as interrupted               |
| `run.interrupted`                    | `run.end`, if it has none; `run.wait` stays, to show what it was|
| `boot.seen`                          | `recovery.last_boot_seen`                                       |

Every event advances `last_seq` and `updated_at`; other events do nothing else. An event about a run that is
not the latest changes nothing else: the snapshot holds one run.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from reference_agent.sessions.artifacts import Damaged, JsonFile, overlay

Event = dict[str, Any]
ENDS = {
    "run.completed": "completed",
    "run.failed": "failed",
    "run.cancelled": "cancelled",
    "run.interrupted": "interrupted",
}


class ProviderBlock(msgspec.Struct, frozen=True):
    type: str = ""
    model: str = ""


class WaitBlock(msgspec.Struct, frozen=True):
    kind: str = ""
    since_seq: int = 0
    resume_token_id: str | None = None
    deadline_at: str | None = None
    call_id: str | None = None


class RunBlock(msgspec.Struct, frozen=True):
    run_id: str
    boot_id: str | None = None  # older logs do not record it
    started_at: str | None = None
    ended_at: str | None = None
    wait: WaitBlock | None = None
    end: str | None = None  # completed | failed | cancelled | interrupted
    request_id: str | None = None


class Interruption(msgspec.Struct, frozen=True):
    run_id: str
    reason: str
    seq: int
    at: str


class RecoveryBlock(msgspec.Struct, frozen=True):
    last_boot_seen: str | None = None
    interruption: Interruption | None = None


class SessionSnapshot(msgspec.Struct, frozen=True):
    id: str
    title: str = ""
    working_dir: str = ""
    provider: ProviderBlock = ProviderBlock()
    created_at: str = ""
    updated_at: str = ""
    last_seq: Annotated[int, msgspec.Meta(ge=0)] = 0
    run: RunBlock | None = None
    recovery: RecoveryBlock | None = None


def fold(snapshot: SessionSnapshot, event: Event) -> SessionSnapshot:
    """The snapshot after this event."""
    ts = _text(event, "ts") or snapshot.updated_at
    snapshot = replace(snapshot, last_seq=event["seq"], updated_at=ts, created_at=snapshot.created_at or ts)
    match event.get("kind"):
        case "session.created":
            return _created(snapshot, event)
        case "run.started" if run_id := _text(event, "run_id"):
            run = RunBlock(run_id, _text(event, "boot_id"), ts, request_id=_text(event, "request_id"))
            recovery = replace(_recovery(snapshot), interruption=None)
            return replace(snapshot, run=run, recovery=recovery)
        case "boot.seen":
            recovery = replace(_recovery(snapshot), last_boot_seen=_text(event, "boot_id"))
            return replace(snapshot, recovery=recovery)
    if snapshot.run and snapshot.run.run_id == event.get("run_id"):
        return _of_run(snapshot, snapshot.run, event, ts)
    return snapshot


def fold_all(snapshot: SessionSnapshot, events: Iterable[Event]) -> SessionSnapshot:
    for event in events:
        snapshot = fold(snapshot, event)
    return snapshot


def _created(snapshot: SessionSnapshot, event: Event) -> SessionSnapshot:
    provider = event.get("provider")
    provider = provider if isinstance(provider, dict) else {}
    return replace(
        snapshot,
        title=_text(event, "title") or "",
        working_dir=_text(event, "working_dir") or "",
        provider=ProviderBlock(_text(provider, "type") or "", _text(provider, "model") or ""),
    )


def _of_run(snapshot: SessionSnapshot, run: RunBlock, event: Event, ts: str) -> SessionSnapshot:
    kind = event.get("kind")
    if kind in ENDS and kind != "run.interrupted" and run.end in (None, "interrupted"):
        # The run's own end overrides an interruption, which was only inferred from its absence.
        return replace(snapshot, run=replace(run, wait=None, end=ENDS[kind], ended_at=ts))
    if run.end is not None:
        return snapshot
    match kind:
        case "run.interrupted":
            reason = _text(event, "reason") or ""
            interruption = Interruption(run.run_id, reason, event["seq"], ts)
            recovery = replace(_recovery(snapshot), interruption=interruption)
            run = replace(run, end="interrupted", ended_at=ts)
            return replace(snapshot, run=run, recovery=recovery)
        case "run.waiting":
            since = run.wait.since_seq if run.wait else event["seq"]
            return replace(snapshot, run=replace(run, wait=_wait(event, since)))
        case "run.resumed":
            return replace(snapshot, run=replace(run, wait=None))
    return snapshot


def _wait(event: Event, since: int) -> WaitBlock:
    return WaitBlock(
        kind=_text(event, "wait_kind") or "",
        since_seq=since,
        resume_token_id=_text(event, "resume_token_id"),
        deadline_at=_text(event, "deadline_at"),
        call_id=_text(event, "call_id"),
    )


def _recovery(snapshot: SessionSnapshot) -> RecoveryBlock:
    return snapshot.recovery or RecoveryBlock()


def _text(event: Event, name: str) -> str | None:
    """Any value but a string counts as missing: other programs write to the log too."""
    value = event.get(name)
    return value if isinstance(value, str) else None


class SnapshotFile:
    def __init__(self, path: Path) -> None:
        self._file = JsonFile(path, "snapshot.save")

    def load(self) -> SessionSnapshot | None:
        fields = self._file.read()
        try:
            return None if fields is None else msgspec.convert(fields, SessionSnapshot)
        except msgspec.ValidationError as error:
            raise Damaged(f"{self._file.path}: not a snapshot of a session ({error})") from None

    def save(self, snapshot: SessionSnapshot) -> None:
        kept = self._file.read_what_is_readable()
        self._file.write(overlay(kept, msgspec.to_builtins(snapshot)))

    def set_aside(self) -> None:
        self._file.set_aside()
