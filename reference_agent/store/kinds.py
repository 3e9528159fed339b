"""StoreKind: everything that distinguishes one kind of store from another, declared in one place.

    sqlite   `sessions.db` for all sessions of a directory; `<session>.messages.jsonl` follows it
    files    `<session>.messages.jsonl` is all there is

Every session has a log; the kind determines where else its state is stored. `sqlite_kind` and `files_kind`
declare the two built-in kinds. Another package can declare its own by an entry point (`registry`), and
every command and scenario that takes a store accepts it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from reference_agent.ids import Clock
from reference_agent.messages import StoredMessage
from reference_agent.store.event_log import EventLog
from reference_agent.store.fold import folded
from reference_agent.store.lines import SUFFIX, SessionCreated
from reference_agent.store.protocol import SessionStore
from reference_agent.store.records import Request
from reference_agent.store.registry import DEFAULT, STORES, name_in

if TYPE_CHECKING:
    from reference_agent.store.database import Connect


class WrongStore(Exception):
    """The session is in a different kind of store; opened in this one, it would start from scratch."""


class Stored(msgspec.Struct, frozen=True):
    """A session as read from disk."""

    messages: list[StoredMessage]
    unfinished: list[Request]


class Location(msgspec.Struct, frozen=True):
    """Where sessions are stored. `store` is the name of a kind, or a URL that begins with it."""

    directory: Path
    store: str = DEFAULT
    connect: Connect | None = None  # opens the database of a SQLite-based store; default: aiosqlite


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """What a store gets in order to open a session. The log is open and belongs to the caller."""

    location: Location
    session: str
    log: EventLog
    clock: Clock
    agent: str = "agent"


class OpenStore(Protocol):
    async def __call__(self, opening: Opening, /) -> SessionStore: ...


class ReadSessions(Protocol):
    async def __call__(self, location: Location, /) -> list[tuple[str, int]]:
        """List every session of this kind with its number of messages. Creates and changes nothing."""


class ReadSession(Protocol):
    async def __call__(self, location: Location, session: str, /) -> Stored | None:
        """Read one session, even while an agent has it open. None if it does not exist."""


class StoreKind(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    summary: str  # shown by --help
    open: OpenStore
    read_sessions: ReadSessions
    read_session: ReadSession
    # Reference to an OpenDaemonStore, imported only when a daemon runs. None: the kind cannot store one.
    daemon: str | None = None
    in_log: bool = False  # whether the state is in the lines of the session's log
    database: str | None = None  # its file in the state directory, for errors that do not name it


def find(store: str) -> StoreKind:
    """The kind that a name or a URL selects."""
    kind = STORES.load(name_in(store))
    if not isinstance(kind, StoreKind):
        raise TypeError(f"{STORES.reference(name_in(store))} is a {type(kind).__name__}, not a StoreKind")
    return kind


def open_log(directory: Path, session: str, clock: Clock) -> EventLog:
    path = directory / f"{session}{SUFFIX}"
    return EventLog(path, clock, judge=lambda events: folded(events, path))


async def open_store(opening: Opening) -> SessionStore:
    """Open the store of a session. Raise WrongStore if its log shows that it is stored in another kind."""
    kind, session = find(opening.location.store), opening.session
    lines = {event.get("kind") for event in opening.log.events}
    in_log = SessionCreated.__struct_config__.tag in lines
    has_begun = in_log or "run.started" in lines  # other lines do not indicate a store
    if has_begun and in_log != kind.in_log:
        # The log does not name its store; it only shows whether the state is in its own lines.
        lives = "files" if in_log else "sqlite"
        raise WrongStore(f"session {session} is in the store {lives}: it cannot be opened in {kind.name}")
    return await kind.open(opening)
