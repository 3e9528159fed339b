"""The stores. They run inside the target: standard library only.

save(n, text)   returning is the acknowledgement
load()          the content: [[n, text], ...]; raises when it is unreadable
"""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Protocol

Saves = list[list[int | str]]


class Store(Protocol):
    def save(self, n: int, text: str) -> None: ...

    def load(self) -> Saves: ...

    def close(self) -> None: ...


class SqliteStore:
    """One row and one commit per save."""

    def __init__(self, directory: Path, *, journal: str, synchronous: str) -> None:
        self._db = sqlite3.connect(directory / "store.db", isolation_level=None)
        self._db.execute(f"PRAGMA journal_mode = {journal}")
        self._db.execute(f"PRAGMA synchronous = {synchronous}")
        self._db.execute("CREATE TABLE IF NOT EXISTS saves (n INTEGER PRIMARY KEY, text TEXT)")

    def save(self, n: int, text: str) -> None:
        self._db.execute("INSERT INTO saves VALUES (?, ?)", (n, text))

    def load(self) -> Saves:
        (answer,) = self._db.execute("PRAGMA integrity_check").fetchone()
        if answer != "ok":
            raise sqlite3.DatabaseError(f"integrity check: {answer}")
        return [list(row) for row in self._db.execute("SELECT n, text FROM saves ORDER BY n")]

    def close(self) -> None:
        self._db.close()


class JsonlStore:
    """One line per save, appended. Opening cuts off a torn last line, and syncs what a killed process left
    unsynced: what follows must not become durable before it."""

    def __init__(
        self, directory: Path, *, sync: bool = True, sync_directory: bool = True, cut: bool = True
    ) -> None:
        self._path = directory / "store.jsonl"
        self._sync = sync
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        if sync_directory:
            sync_names(directory)
        if cut:
            self._cut()
        if sync and os.fstat(self._fd).st_size:
            os.fsync(self._fd)

    def _cut(self) -> None:
        whole, newline, torn = self._path.read_bytes().rpartition(b"\n")
        if torn:
            os.ftruncate(self._fd, len(whole + newline))

    def save(self, n: int, text: str) -> None:
        line = json.dumps([n, text]).encode() + b"\n"
        if os.write(self._fd, line) != len(line):
            raise OSError("the line was only partly written")
        if self._sync:
            os.fsync(self._fd)

    def load(self) -> Saves:
        return [json.loads(line) for line in self._path.read_text().splitlines()]

    def close(self) -> None:
        os.close(self._fd)


class SnapshotStore:
    """The latest save only: written aside, synced, renamed over the old one, directory synced."""

    def __init__(
        self, directory: Path, *, sync: bool = True, rename: bool = True, sync_directory: bool = True
    ) -> None:
        self._directory = directory
        self._path = directory / "store.json"
        self._sync = sync
        self._rename = rename
        self._sync_directory = sync_directory

    def save(self, n: int, text: str) -> None:
        aside = self._directory / "store.json.tmp" if self._rename else self._path
        with aside.open("w") as file:
            json.dump([n, text], file)
            file.flush()
            if self._sync:
                os.fsync(file.fileno())
        if self._rename:
            aside.replace(self._path)
        if self._sync_directory:
            sync_names(self._directory)

    def load(self) -> Saves:
        return [json.loads(self._path.read_text())] if self._path.exists() else []

    def close(self) -> None:
        pass


def sync_names(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
