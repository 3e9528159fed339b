"""Fingerprint: identifies the content of a directory, as the program that owns it would read it.

Two recoveries that start from the same content, after the same acknowledgements and effects, and pass the
same points are the same recovery. SQLite draws
random numbers into its log and its journal, so equal databases differ in their bytes: a database is
identified by what can be read from it, and its log and journal belong to it. The number of the process that
died, as lock files have it, does not count.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

MAGIC = b"SQLite format 3\x00"
COMPANIONS = ("-wal", "-shm", "-journal")


def fingerprint(directory: Path, pid: int) -> str:
    """Of what process `pid` has left."""
    found = hashlib.blake2b(digest_size=12)
    for path in _files(directory):
        found.update(os.fsencode(path.relative_to(directory)) + b"\0")
        content = _content(path, directory.parent).replace(str(pid).encode(), b"pid")
        found.update(hashlib.blake2b(content).digest())
    return found.hexdigest()


def _files(directory: Path) -> Iterator[Path]:
    every = sorted(directory.rglob("*"))
    databases = {path for path in every if _is_database(path)}
    for path in every:
        if not any(path.name == f"{db.name}{end}" for db in databases for end in COMPANIONS):
            yield path


def _is_database(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _content(path: Path, aside: Path) -> bytes:
    if path.is_symlink():
        return os.fsencode(path.readlink())
    if not path.is_file():
        return b"directory"
    if _is_database(path):
        try:
            return _rows(path, aside)
        except sqlite3.Error:  # damaged: only its bytes identify it
            pass
    return path.read_bytes()


def _rows(path: Path, aside: Path) -> bytes:
    """Everything in the database, read from a copy: opening it would roll back a journal."""
    with tempfile.TemporaryDirectory(dir=aside) as copy:
        for end in ("", *COMPANIONS):
            companion = path.with_name(path.name + end)
            if companion.exists():
                shutil.copy(companion, copy)
        with closing(sqlite3.connect(Path(copy) / path.name)) as db:
            version = str(db.execute("PRAGMA user_version").fetchone())
            return "\n".join([version, *db.iterdump()]).encode(errors="surrogatepass")
