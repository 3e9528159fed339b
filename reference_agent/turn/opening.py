"""The open parts of a session while an agent works on it: its lock, its log and its store, in this order."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from reference_agent.ids import checked_session
from reference_agent.store.event_log import EventLog
from reference_agent.store.kinds import Location, Opening, open_log, open_store
from reference_agent.store.lock import SessionLock
from reference_agent.store.protocol import SessionStore
from reference_agent.turn.options import Options
from reference_agent.turn.runtime import Runtime


class HeldLog(msgspec.Struct, frozen=True):
    """The log of a session whose lock the caller holds and keeps, and the caller's boot."""

    events: EventLog
    boot: str


class OpenSession(msgspec.Struct, frozen=True, kw_only=True):
    """An open session. If `lock` is None, the lock and the log belong to the caller."""

    directory: Path
    name: str
    store: SessionStore
    events: EventLog
    boot: str
    lock: SessionLock | None


async def open_session(
    opened: AsyncExitStack,
    location: Location,
    session: str,
    runtime: Runtime,
    options: Options,
    held: HeldLog | None,
) -> OpenSession:
    """`opened` closes everything again. A caller that already holds the lock and log passes `held`."""
    checked_session(session)
    lock = None
    if held is None:
        lock = SessionLock(location.directory / f"{session}.lock")
        opened.callback(lock.release)
        events = open_log(location.directory, session, runtime.clock)
        opened.callback(events.close)
        held = HeldLog(events, runtime.new_id("boot"))
    wanted = Opening(
        location=location, session=session, log=held.events, clock=runtime.clock, agent=options.agent_id
    )
    store = await open_store(wanted)
    opened.push_async_callback(store.close)
    return OpenSession(
        directory=location.directory, name=session, store=store, events=held.events, boot=held.boot, lock=lock
    )
