"""EventLog: an append-only file of JSON lines, one per event, `seq` counting 1, 2, 3... (G6).

    {"seq": 7, "ts": "2026-02-21T10:01:25Z", "kind": "run.started", "run_id": "run_9f5", ...}

A line is written with one write(2) and synced before it counts. A crash can therefore leave one
unfinished line at the end, and nothing else: opening cuts it off. It has no newline, or, where the
power failed and its pages came in any order, NUL bytes, which JSON never has. Any other damage did not
come from a crash of ours; it is reported with file and line, and the file is left as it is.

A whole line that was found may not have been synced by the life that wrote it: opening syncs it before
anybody relies on it. The file's name is synced before the first line is written.

When a write or a sync fails, nobody knows what is in the file beyond the last line that counted: before
the next line is written, the rest is cut off. A failed sync is never repeated on the same bytes: the
kernel may have dropped them and call the file clean.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from reference_agent.ids import Clock
from reference_agent.points import persisting
from reference_agent.store.durable import sync_directory


class DamagedLog(Exception):
    """A line that no crash explains."""


Events = list[dict[str, Any]]


def no_objection(_events: Events) -> None:
    """To a log whose lines mean nothing to anybody else."""


class EventLog:
    def __init__(self, path: Path, clock: Clock, judge: Callable[[Events], object] = no_objection) -> None:
        """`judge` may know more about the lines; it raises before anything is cut off."""
        self.path = path
        self.listeners: list[Callable[[dict[str, Any]], None]] = []  # told of each line that counts
        self._clock = clock
        self._judge = judge
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if not os.fstat(self._fd).st_size:  # new, or made by a life that came no further
                sync_directory(path.parent)
            self.events = self._recover()
        except BaseException:
            os.close(self._fd)
            raise
        self._good_size = os.fstat(self._fd).st_size  # up to here every line counts
        self._doubtful = False  # whether something may lie beyond

    def close(self) -> None:
        os.close(self._fd)

    @property
    def next_seq(self) -> int:
        return len(self.events) + 1

    def append(self, kind: str, **fields: Any) -> int:
        """Durable when it returns; the answer is the event's seq."""
        return int(self.record({"kind": kind, **fields})["seq"])

    def record(self, fields: dict[str, Any], point: str = "log.append") -> dict[str, Any]:
        """The same for one who has a name of his own for the point; the event as it will be read."""
        event = {"seq": self.next_seq, "ts": _timestamp(self._clock()), **fields}
        line = msgspec.json.encode(event)
        as_read: dict[str, Any] = msgspec.json.decode(line)  # first: what is written can be read
        with persisting(point):
            self._write(line + b"\n")
        self.events.append(as_read)  # and not what the caller may still change
        for listener in self.listeners:
            listener(as_read)
        return as_read

    def _write(self, line: bytes) -> None:
        if self._doubtful:
            os.ftruncate(self._fd, self._good_size)
        self._doubtful = True
        written = os.write(self._fd, line)
        if written != len(line):
            raise OSError(f"{self.path}: wrote {written} of {len(line)} bytes")
        os.fsync(self._fd)
        self._doubtful = False
        self._good_size += len(line)

    def _recover(self) -> Events:
        # Judged before it is cut: a damaged file is left as it is.
        events, torn = _parsed(self.path)
        if torn:
            self._judge(events)
            with persisting("log.cut"):
                os.ftruncate(self._fd, os.fstat(self._fd).st_size - torn)
                os.fsync(self._fd)
        elif events:
            os.fsync(self._fd)
        return events


def read_log(path: Path) -> Events:
    """What counts so far, beside whoever may be writing; nothing is cut off."""
    return _parsed(path)[0]


def _parsed(path: Path) -> tuple[Events, int]:
    """The events, and how many bytes at the end are an unfinished line."""
    *lines, torn = path.read_bytes().split(b"\n")
    left = len(torn)
    if lines and not torn and b"\0" in lines[-1]:
        left = len(lines.pop()) + 1
    return [_decoded(line, path, number) for number, line in enumerate(lines, 1)], left


def _decoded(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        event: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedLog(f"{path}, line {number}: not a JSON object ({error})") from None
    if event.get("seq") != number:
        found = event.get("seq")
        raise DamagedLog(f"{path}, line {number}: expected seq {number}, found {found}")
    return event


def _timestamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
