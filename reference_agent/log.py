"""EventLog: an append-only file of JSON lines, one per event, `seq` counting 1, 2, 3... (G6).

    {"seq": 7, "ts": "2026-02-21T10:01:25Z", "kind": "run.started", "run_id": "run_9f5", ...}

A line is written with one write(2) and synced before it counts. A crash can therefore leave one
unfinished line at the end, and nothing else: opening cuts it off. Any other damage did not come
from a crash of ours; it is reported with file and line, and the file is left as it is.

When a write or a sync fails, nobody knows what is in the file beyond the last line that counted: before
the next line is written, the rest is cut off. A failed sync is never repeated on the same bytes: the
kernel may have dropped them and call the file clean.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from reference_agent.files import sync_directory
from reference_agent.ids import Clock
from reference_agent.points import persisting


class DamagedLog(Exception):
    """A line that no crash explains."""


class Log(Protocol):
    """Where events go: an EventLog, or what keeps more than that up to date with each line."""

    @property
    def events(self) -> list[dict[str, Any]]: ...

    def append(self, kind: str, **fields: Any) -> int: ...

    def close(self) -> None: ...


class EventLog:
    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        created = not path.exists()
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        if created:
            sync_directory(path.parent)
        try:
            self.events = self._recover()
        except BaseException:
            os.close(self._fd)
            raise
        self._good_size = os.fstat(self._fd).st_size  # up to here every line counts
        self._doubtful = False  # whether something may lie beyond

    def close(self) -> None:
        os.close(self._fd)

    def append(self, kind: str, **fields: Any) -> int:
        """Durable when it returns; the answer is the event's seq."""
        seq = len(self.events) + 1
        event = {"seq": seq, "ts": _timestamp(self._clock()), "kind": kind, **fields}
        with persisting("log.append"):
            self._write(msgspec.json.encode(event) + b"\n")
        self.events.append(event)
        return seq

    def _write(self, line: bytes) -> None:
        if self._doubtful:
            os.ftruncate(self._fd, self._good_size)
        self._doubtful = True
        written = os.write(self._fd, line)
        if written != len(line):
            raise OSError(f"{self._path}: wrote {written} of {len(line)} bytes")
        os.fsync(self._fd)
        self._doubtful = False
        self._good_size += len(line)

    def _recover(self) -> list[dict[str, Any]]:
        content = self._path.read_bytes()
        whole, newline, torn = content.rpartition(b"\n")
        lines = whole.split(b"\n") if newline else []
        # Judged before it is cut: a damaged file is left as it is.
        events = [self._decode(line, number) for number, line in enumerate(lines, 1)]
        if torn:
            with persisting("log.cut"):
                os.ftruncate(self._fd, len(whole) + len(newline))
                os.fsync(self._fd)
        return events

    def _decode(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            event: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DamagedLog(f"{self._path}, line {number}: not a JSON object ({error})") from None
        if event.get("seq") != number:
            found = event.get("seq")
            raise DamagedLog(f"{self._path}, line {number}: expected seq {number}, found {found}")
        return event


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
