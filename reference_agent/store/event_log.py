"""EventLog: an append-only file of JSON lines, one per event, `seq` counting 1, 2, 3... (G6).

    {"seq": 7, "ts": "2026-02-21T10:01:25Z", "kind": "run.started", "run_id": "run_9f5", ...}

A line is written with one write(2) and synced before it counts. A crash can therefore leave at most one
torn line at the end, which opening cuts off. A torn line has no newline, or it contains NUL bytes where a
power failure let pages reach the disk out of order; valid JSON never contains NUL. A crash of the agent
cannot cause any other damage. Such damage is reported with file and line, and the file is left as it is.

The process that wrote a complete line may have died before syncing it, so opening syncs the file before
anything relies on it. The file's name is synced before the first line is written.

After a failed write or sync, the content beyond the last line that counted is unknown, and it is cut off
before the next line is written. A failed sync is never repeated on the same bytes: the kernel may have
dropped them and marked the file clean.
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
    """A damaged line that no crash can explain."""


Events = list[dict[str, Any]]


def no_objection(_events: Events) -> None:
    """The default `judge`: accept all lines."""


class EventLog:
    def __init__(self, path: Path, clock: Clock, judge: Callable[[Events], object] = no_objection) -> None:
        """`judge` may apply further checks to the lines; it raises before anything is cut off."""
        self.path = path
        self.listeners: list[Callable[[dict[str, Any]], None]] = []  # called with each line that counts
        self._clock = clock
        self._judge = judge
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if not os.fstat(self._fd).st_size:  # new, or left empty by an earlier process that died
                sync_directory(path.parent)
            self.events = self._recover()
        except BaseException:
            os.close(self._fd)
            raise
        self._good_size = os.fstat(self._fd).st_size  # every line up to here counts
        self._doubtful = False  # whether there may be bytes beyond it

    def close(self) -> None:
        os.close(self._fd)

    @property
    def next_seq(self) -> int:
        return len(self.events) + 1

    def append(self, kind: str, **fields: Any) -> int:
        """Append an event, durable on return. Return its seq."""
        return int(self.record({"kind": kind, **fields})["seq"])

    def record(self, fields: dict[str, Any], point: str = "log.append") -> dict[str, Any]:
        """Append an event under a caller-chosen persist point. Return the event as it will be read back."""
        event = {"seq": self.next_seq, "ts": _timestamp(self._clock()), **fields}
        line = msgspec.json.encode(event)
        as_read: dict[str, Any] = msgspec.json.decode(line)  # before the write: proves it can be read back
        with persisting(point):
            self._write(line + b"\n")
        self.events.append(as_read)  # not `event`: the caller may still modify its fields
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
        # Validated before the cut: a damaged file is left as it is.
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
    """Read the events that count so far, even while another process writes. Cuts nothing off."""
    return _parsed(path)[0]


def _parsed(path: Path) -> tuple[Events, int]:
    """Return the events, and the number of bytes at the end that form a torn line."""
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
