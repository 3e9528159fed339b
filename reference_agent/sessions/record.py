"""SessionRecord: one session's log, with what it adds up to, open in one process.

<session>.lock              who has it open
<session>.messages.jsonl    the log: the truth
<session>.json              the snapshot     } caches, and a home for fields that only they know
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
    """No such session, and nobody asked for a new one."""


class SessionRecord:
    """Use `open`. `append` makes a line durable, `save` writes the caches, `close` only closes."""

    def __init__(self, session: str, lock: SessionLock, events: EventLog, caches: Caches) -> None:
        self.session = session
        self.log = events
        self._lock = lock
        self._caches = caches
        self._closed = False
        self.snapshot, self.tokens = caches.load(events.events)
        self.open_runs: dict[str, str | None] = {}  # the runs without an end, and their boots
        self.last_status: str | None = None  # that a line was written about
        for event in events.events:
            self._note(event)
        events.listeners.append(self._fold)

    @classmethod
    def open(
        cls, directory: Path, session: str, *, clock: Clock, create: dict[str, str] | None = None
    ) -> SessionRecord:
        """`create` (title, working_dir, provider_type, model) is for a session that is not there yet."""
        checked_session(session)
        if create is None and session not in session_ids(directory):
            raise UnknownSession(f"no session {session} in {directory}")  # before anything is made
        with ExitStack() as opened:  # what was opened is closed if the rest cannot be
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
                # All that was left by a crash before the session's first line.
                raise UnknownSession(f"no session {session} in {directory}")
            opened.pop_all()
        return record

    def close(self) -> None:
        if not self._closed:  # twice would close what somebody else has opened since
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
        """Durable when it returns; the answer is the event's seq."""
        return self.log.append(kind, **fields)

    def _fold(self, event: Event) -> None:
        """Also of what others append to the same log: the agent, and its store."""
        self.snapshot = fold(self.snapshot, event)
        self.tokens = fold_tokens(self.tokens, event)
        self._note(event)

    def save(self) -> None:
        """The snapshot and the token index, where they have changed."""
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
    """All sessions, by their files; sorted."""
    endings = (".messages.jsonl", ".json")
    names = {
        path.name.removesuffix(ending)
        for path in directory.iterdir()
        for ending in endings
        if path.name.endswith(ending)
    }
    return sorted(filter(_is_session_id, names))


def _is_session_id(name: str) -> bool:
    """`a.tokens`, from the token index of `a`, is none."""
    try:
        checked_session(name)
    except BadSessionId:
        return False
    return True
