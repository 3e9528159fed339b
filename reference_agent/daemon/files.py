"""The daemon's changes on files: one synced line each, in segments (D8).

    daemon.000001.jsonl    recorded, linked, enqueued ... 1,000 lines
    daemon.000002.jsonl    snapshot (the whole state, in one line), enqueued, ...    <- read at open

A full segment is never touched again; the next one begins with a snapshot. Opening reads only the last
segment. A crash before its first line is complete leaves the new segment empty: the one before it then
still counts as the last, and its snapshot is written again. Nothing is ever rewritten; old segments are
history and may be moved away.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from reference_agent.daemon.records import AnyChange, Snapshot, point_of
from reference_agent.daemon.state import State
from reference_agent.daemon.stores import DaemonOpening
from reference_agent.ids import Clock
from reference_agent.store.event_log import DamagedLog, EventLog, read_log

SEGMENT = 1000  # lines


class FilesDaemonStore:
    def __init__(self, directory: Path, clock: Clock, segment: int = SEGMENT) -> None:
        self._directory = directory
        self._clock = clock
        self._limit = segment
        self._number = max(segments(directory), default=1)
        self._next: EventLog | None = None  # a segment that could not be begun yet
        self._log = self._open(self._number)
        try:
            self.state = folded(self._log.events, self._log.path)
            if self._number > 1 and not self._log.events:
                before = segment_path(directory, self._number - 1)
                self.state = folded(read_log(before), before)
                self._begin(self._log)
        except BaseException:
            self._log.close()
            raise

    async def close(self) -> None:
        self._log.close()
        if self._next:
            self._next.close()

    async def write(self, change: AnyChange) -> None:
        if len(self._log.events) >= self._limit:
            self._rotate()
        self._log.record(msgspec.to_builtins(change), point_of(change))
        self.state.add(change)

    def _rotate(self) -> None:
        """A failed attempt is repeated on the same EventLog, which cuts off what the first one left: that
        may be a whole snapshot, and the state is not the sum of two."""
        self._next = self._next or self._open(self._number + 1)
        self._begin(self._next)
        self._log.close()
        self._log, self._next, self._number = self._next, None, self._number + 1

    def _begin(self, log: EventLog) -> None:
        snapshot = Snapshot(tuple(self.state.changes()))
        log.record(msgspec.to_builtins(snapshot), point_of(snapshot))

    def _open(self, number: int) -> EventLog:
        path = segment_path(self._directory, number)
        return EventLog(path, self._clock, judge=lambda events: folded(events, path))


async def open_store(opening: DaemonOpening) -> FilesDaemonStore:
    return FilesDaemonStore(opening.location.directory, opening.clock, opening.segment or SEGMENT)


def segments(directory: Path) -> list[int]:
    return sorted(int(path.name.split(".")[1]) for path in directory.glob("daemon.*.jsonl"))


def segment_path(directory: Path, number: int) -> Path:
    return directory / f"daemon.{number:06}.jsonl"


def folded(events: Iterable[dict[str, Any]], path: Path) -> State:
    """An invalid line counts as damage."""
    state = State()
    for event in events:
        try:
            state.add(msgspec.convert(event, AnyChange))
        except (msgspec.ValidationError, KeyError) as error:
            raise DamagedLog(f"{path}, line {event['seq']}: {error}") from None
    return state
