"""The control stores as adapters: sound ones that must hold, broken ones that must be caught."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import threading
from pathlib import Path


class Wal:
    """SQLite in WAL mode, every commit synced: sound"""

    style = "history"
    promises = {
        "durable": ("a commit is synced", "https://sqlite.org/pragma.html#pragma_synchronous", "power")
    }
    synchronous = "FULL"
    saves = 10
    largest = 20_000  # a page or five: the million is for the libraries

    def open(self, directory):
        self.db = sqlite3.connect(Path(directory) / "s.db", isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute(f"PRAGMA synchronous = {self.synchronous}")
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS s (session TEXT, n INTEGER, state TEXT, PRIMARY KEY (session, n))"
        )

    def save(self, session, state):
        self.db.execute("INSERT OR REPLACE INTO s VALUES (?, ?, ?)", (session, state["n"], json.dumps(state)))

    def history(self, session):
        rows = self.db.execute("SELECT state FROM s WHERE session = ? ORDER BY n", (session,))
        return [json.loads(state) for (state,) in rows]

    def load(self, session):
        kept = self.history(session)
        return kept[-1] if kept else None

    def delete(self, session):
        self.db.execute("DELETE FROM s WHERE session = ?", (session,))

    def settings(self):
        return {"synchronous": self.db.execute("PRAGMA synchronous").fetchone()[0]}

    def close(self):
        self.db.close()


class Bound(Wal):
    """Says that threads may use it, and its connection belongs to the one that opened it"""

    callers = "threads"


class Shared(Wal):
    """Two rows make a save, and one connection without a lock is for everybody: sound, one at a time"""

    promises = {}

    def open(self, directory):
        super().open(directory)
        self.db.isolation_level = "DEFERRED"
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS halves (session TEXT, n INTEGER, PRIMARY KEY (session, n))"
        )

    async def save(self, session, state):
        self.db.execute("INSERT OR REPLACE INTO halves VALUES (?, ?)", (session, state["n"]))
        await asyncio.sleep(0)
        super().save(session, state)
        self.db.commit()

    def records(self, session):
        found = (
            self.db.execute(f"SELECT COUNT(*) FROM {table} WHERE session = ?", (session,))
            for table in ("halves", "s")
        )
        return dict(zip(("halves", "states"), (rows.fetchone()[0] for rows in found), strict=True))

    def delete(self, session):
        with self.db:
            self.db.execute("DELETE FROM halves WHERE session = ?", (session,))
            super().delete(session)


class SharedByTasks(Shared):
    """... and several tasks use it at once: whoever commits first commits half of the others' saves"""

    callers = "tasks"


class Normal(Wal):
    """SQLite in WAL mode, synchronous=NORMAL: a loss of power takes commits back"""

    synchronous = "NORMAL"


class Files:
    """One file per session, written in place: broken by any kill"""

    saves = 10
    largest = 20_000  # a page or five: the million is for the libraries

    def open(self, directory):
        self.directory = Path(directory)

    def save(self, session, state):
        with (self.directory / session).open("w") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())

    def load(self, session):
        path = self.directory / session
        return json.loads(path.read_text()) if path.exists() else None

    def close(self):
        pass


class Careful(Files):
    """One file per session, written aside, synced, renamed, directory synced: sound"""

    def save(self, session, state):
        aside = self.directory / f"{session}.tmp"
        with aside.open("w") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self.directory / session)
        directory = os.open(self.directory, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)


LEFT = []  # what nobody lets go of


class LeavesFile(Careful):
    """Sound, but for a file that it never closes"""

    def close(self):
        LEFT.append((self.directory / "a").open())


class LeavesThread(Careful):
    """Sound, but for a thread that never ends"""

    def close(self):
        threading.Thread(target=threading.Event().wait, daemon=True).start()


class OpensOnce(Careful):
    """Cannot be opened where it has been before"""

    def open(self, directory):
        super().open(directory)
        if any(self.directory.iterdir()):
            raise OSError("somebody was here")


class Refuses(Files):
    """No save ever works: nothing can be lost, and nothing may be said to hold"""

    def save(self, session, state):
        raise OSError("out of order")


class Lines:
    """Items appended to a file, never synced"""

    saves = 10
    largest = 20_000  # a page or five: the million is for the libraries

    async def open(self, directory):
        self.directory = Path(directory)

    async def append(self, session, items):
        with (self.directory / f"{session}.jsonl").open("a") as file:
            file.write("".join(json.dumps(item) + "\n" for item in items))

    async def items(self, session):
        path = self.directory / f"{session}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    async def close(self):
        pass
