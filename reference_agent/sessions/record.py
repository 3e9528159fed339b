"""SessionRecord: one session's log and the state derived from it, open in one process.

<session>.lock              held by the process that has the session open
<session>.messages.jsonl    the log: the source of truth
<session>.json              the snapshot     } caches, which also keep fields that only they hold
<session>.tokens.json       the token index  }
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from reference_agent.ids import BadSessionId, Clock, checked_session
from reference_agent.sessions.caches import Caches
from reference_agent.sessions.snapshot import ENDS, Event, fold
from reference_agent.sessions.token_index import fold_tokens
from reference_agent.store.event_log import EventLog
from reference_agent.store.kinds import open_log
from reference_agent.store.lock import SessionLock


class UnknownSession(Exception):
    """The session does not exist, and the caller did not ask to create it."""


class SessionRecord:
    """Use `open`. `append` makes a line durable, `save` writes the caches, `close` only closes."""

    def __init__(self, session: str, lock: SessionLock, events: EventLog, caches: Caches) -> None:
        self.session = session
        self.log = events
        self._lock = lock
        self._caches = caches
        self._closed = False
        self.snapshot, self.tokens = caches.load(events.events)
        self.open_runs: dict[str, str | None] = {}  # runs without an end, and their boots
        self.last_status: str | None = None  # of the last `status.derived` line
        for event in events.events:
            self._note(event)
        events.listeners.append(self._fold)

    @classmethod
    def open(
        cls, directory: Path, session: str, *, clock: Clock, create: dict[str, str] | None = None
    ) -> SessionRecord:
        """`create` (title, working_dir, provider_type, model) applies only if the session is new."""
        checked_session(session)
        if create is None and session not in session_ids(directory):
            raise UnknownSession(f"no session {session} in {directory}")  # before any file is created
        with ExitStack() as opened:  # closes what is already open if a later step fails
            lock = SessionLock(directory / f"{session}.lock")
            opened.callback(lock.release)
            events = open_log(directory, session, clock)
            opened.callback(events.close)
            caches = Caches(directory, session)
            has_snapshot = caches.exist()
            record = cls(session, lock, events, caches)
            if create is not None and not has_snapshot and not record.has("session.created"):
                record._create(create)
            elif not has_snapshot and not record.events:
                # Only files left by a crash before the session's first line.
                raise UnknownSession(f"no session {session} in {directory}")
            opened.pop_all()
        return record

    def close(self) -> None:
        if not self._closed:  # closing twice could close a descriptor that was reused since
            self._closed = True
            self.log.close()
            self._lock.release()

    def __enter__(self) -> SessionRecord:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.close()

    @property
    def events(self) -> list[Event]:
        return self.log.events

    def has(self, kind: str) -> bool:
        return any(event.get("kind") == kind for event in self.events)

    def append(self, kind: str, **fields: Any) -> int:
        """Append an event, durable on return. Return its seq."""
        return self.log.append(kind, **fields)

    def _fold(self, event: Event) -> None:
        """Also called for lines that others append to the same log: the agent and its store."""
        self.snapshot = fold(self.snapshot, event)
        self.tokens = fold_tokens(self.tokens, event)
        self._note(event)

    def save(self) -> None:
        """Write the snapshot and the token index, if they have changed."""
        self._caches.save(self.snapshot, self.tokens)

    def _note(self, event: Event) -> None:
        match event:
            case {"kind": "run.started", "run_id": str(run)}:
                self.open_runs[run] = event.get("boot_id")
            case {"kind": str(kind), "run_id": str(run)} if kind in ENDS:
                self.open_runs.pop(run, None)
            case {"kind": "status.derived", "status": str(status)}:
                self.last_status = status

    def _create(self, create: dict[str, str]) -> None:
        self.append(
            "session.created",
            title=create.get("title", ""),
            working_dir=create.get("working_dir", ""),
            provider={"type": create.get("provider_type", ""), "model": create.get("model", "")},
        )


def session_ids(directory: Path) -> list[str]:
    """All session ids in a directory, sorted, taken from its file names."""
    endings = (".messages.jsonl", ".json")
    names = {
        path.name.removesuffix(ending)
        for path in directory.iterdir()
        for ending in endings
        if path.name.endswith(ending)
    }
    return sorted(filter(_is_session_id, names))


def _is_session_id(name: str) -> bool:
    """Rejects `a.tokens`, which comes from the token index of `a`."""
    try:
        checked_session(name)
    except BadSessionId:
        return False
    return True
