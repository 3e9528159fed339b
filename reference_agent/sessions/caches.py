"""Caches: the two files beside the log, and how conflicts with the log are resolved (R1).

| the snapshot is | the log               | state is taken from                                          |
|-----------------|-----------------------|--------------------------------------------------------------|
| damaged         | has `session.created` | the log alone                                                |
| damaged         | has not               | nothing: `Damaged`                                           |
| ahead           | is not empty          | the snapshot for the session's metadata, the log for its runs|
| ahead           | is empty              | nothing: `Damaged`                                           |

An untrusted snapshot is copied to `<session>.json.set-aside` and rewritten immediately: one that is ahead
would look valid again as soon as the log has grown. The same applies to a token index, except that the log
contains everything in it.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from reference_agent.logs.structured import get_logger
from reference_agent.sessions.artifacts import Damaged
from reference_agent.sessions.snapshot import ENDS, Event, SessionSnapshot, SnapshotFile, fold_all
from reference_agent.sessions.token_index import TokenIndex, Tokens, fold_all_tokens

log = get_logger(__name__)


class Caches:
    """Call `load` once, then `save` at any time: only changed files are written."""

    def __init__(self, directory: Path, session: str) -> None:
        self._session = session
        self._path = directory / f"{session}.json"
        self._snapshot_file = SnapshotFile(self._path)
        self._token_index = TokenIndex(directory / f"{session}.tokens.json")
        # The trusted content of the files.
        self._snapshot: SessionSnapshot | None = None
        self._tokens: Tokens = {}

    def exist(self) -> bool:
        return self._path.exists()

    def load(self, events: list[Event]) -> tuple[SessionSnapshot, Tokens]:
        return self._load_snapshot(events), self._load_tokens(events)

    def save(self, snapshot: SessionSnapshot, tokens: Tokens) -> None:
        if tokens != self._tokens:
            self._save_tokens(snapshot.last_seq, tokens)
        if snapshot != self._snapshot:
            self._save_snapshot(snapshot)

    def _save_snapshot(self, snapshot: SessionSnapshot) -> None:
        self._snapshot_file.save(snapshot)
        self._snapshot = snapshot

    def _save_tokens(self, last_seq: int, tokens: Tokens) -> None:
        self._token_index.save(last_seq, tokens)
        self._tokens = tokens

    def _load_snapshot(self, events: list[Event]) -> SessionSnapshot:
        try:
            stored = self._snapshot_file.load()
        except Damaged as error:
            if not any(event.get("kind") == "session.created" for event in events):
                raise
            return self._anew(SessionSnapshot(self._session), events, str(error))
        if stored is None:
            return fold_all(SessionSnapshot(self._session), events)
        if stored.id != self._session:
            raise Damaged(f"{self._path}: belongs to session {stored.id!r}")
        if stored.last_seq > len(events):
            return self._behind(stored, events)
        self._snapshot = stored
        stored = _with_its_end(stored, events[: stored.last_seq])
        return fold_all(stored, events[stored.last_seq :])

    def _behind(self, stored: SessionSnapshot, events: list[Event]) -> SessionSnapshot:
        """The log is behind the snapshot: it lacks lines that were once durable."""
        why = f"{self._path}: at seq {stored.last_seq}, but the log ends at {len(events)}"
        if not events:
            raise Damaged(f"{why}: {self._session}.messages.jsonl is missing or empty")
        return self._anew(replace(stored, last_seq=0, run=None, recovery=None), events, why)

    def _anew(self, begin: SessionSnapshot, events: list[Event], why: str) -> SessionSnapshot:
        log.warning("snapshot.rebuilt", session_id=self._session, reason=why)
        self._snapshot_file.set_aside()
        snapshot = fold_all(begin, events)
        self._save_snapshot(snapshot)
        return snapshot

    def _load_tokens(self, events: list[Event]) -> Tokens:
        index = self._token_index.load()
        if index and index.last_seq <= len(events):
            self._tokens = index.tokens
            return fold_all_tokens(index.tokens, events[index.last_seq :])
        tokens = fold_all_tokens({}, events)
        if index:
            self._save_tokens(len(events), tokens)
        return tokens


def _with_its_end(stored: SessionSnapshot, events: list[Event]) -> SessionSnapshot:
    """Older releases recorded how a run ended only in the log, or recorded only that it had ended."""
    if stored.run is None or stored.run.end is not None:
        return stored
    ended = fold_all(stored, (event for event in events if event.get("kind") in ENDS))
    run = ended.run or stored.run
    if run.end is None and run.ended_at is not None:
        run = replace(run, end="completed", wait=None)
    return replace(ended, run=run, last_seq=stored.last_seq, updated_at=stored.updated_at)
