"""The store `files`: each session is stored in the lines of its log, and nowhere else."""

from __future__ import annotations

from reference_agent.store.files import FilesStore, read_fold, read_folds, unfinished
from reference_agent.store.kinds import Location, Opening, Stored, StoreKind
from reference_agent.store.lines import SUFFIX


async def open_session(opening: Opening) -> FilesStore:
    return FilesStore(opening.log, opening.agent)


async def read_sessions(location: Location) -> list[tuple[str, int]]:
    return [(session, len(fold.messages)) for session, fold in read_folds(location.directory).items()]


async def read_session(location: Location, session: str) -> Stored | None:
    fold = read_fold(location.directory / f"{session}{SUFFIX}")
    return Stored(fold.messages, unfinished(fold)) if fold else None


KIND = StoreKind(
    name="files",
    summary="one log per session",
    open=open_session,
    read_sessions=read_sessions,
    read_session=read_session,
    daemon="reference_agent.daemon.files:open_store",
    in_log=True,
)
