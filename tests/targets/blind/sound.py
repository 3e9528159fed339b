# ruff: noqa
# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""Small session stores, standard library only."""

import asyncio
import fcntl
import hashlib
import json
import os
import sqlite3
import struct
import tempfile
import time
import uuid
from contextlib import contextmanager, suppress
from urllib.parse import quote

DOCS = "https://example.org/stores"
HEAD = struct.Struct(">I16s")


def key(session):
    """A file name for a session: quote() never yields '@' or '=', so both can separate."""
    name = quote(session, safe="")
    return name if len(name) <= 120 else "=" + hashlib.sha256(session.encode()).hexdigest()


def dump(value):
    return json.dumps(value).encode()


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def sync_dir(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd, data, offset=0):
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count


def stage(folder, data, stamp=None):
    """A synced temporary file with a unique name."""
    fd, temp = tempfile.mkstemp(dir=folder, suffix=".tmp")
    try:
        write_all(fd, data)
        if stamp is not None:
            stamp(fd)
        os.fsync(fd)
    except BaseException:
        discard(temp)
        raise
    finally:
        os.close(fd)
    return temp


def discard(path):
    with suppress(FileNotFoundError):
        os.unlink(path)


def replace(path, data):
    """Temporary file, fsync, rename, fsync of the directory."""
    folder = os.path.dirname(path)
    temp = stage(folder, data)
    try:
        os.rename(temp, path)
    except BaseException:
        discard(temp)
        raise
    sync_dir(folder)


def clean(folder):
    """Remove what interrupted saves left; make durable what is found."""
    for name in sorted(os.listdir(folder)):
        if name.endswith(".tmp"):
            discard(os.path.join(folder, name))
    sync_dir(folder)


@contextmanager
def locked(path, flags=fcntl.LOCK_EX):
    """The lock file is never removed; the kernel releases the lock of a dead process."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, flags)
        yield
    finally:
        os.close(fd)


def hold(path):
    """A lock for the whole life of the process; BlockingIOError if somebody else has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(fd)
        raise
    return fd


def frame(payload):
    return HEAD.pack(len(payload), hashlib.sha256(payload).digest()[:16]) + payload


def scan(data):
    """(record, end) of each whole record; stops at the first that is torn, zeroed or absent."""
    found, start = [], 0
    while start + HEAD.size <= len(data):
        length, digest = HEAD.unpack_from(data, start)
        end = start + HEAD.size + length
        payload = data[start + HEAD.size : end]
        if length == 0 or len(payload) < length or hashlib.sha256(payload).digest()[:16] != digest:
            break
        found.append((json.loads(payload), end))
        start = end
    return found


def add_record(fd, end, record):
    """Write a record at the end and sync it; a failed write is taken back. Returns the new end."""
    data = frame(dump(record))
    try:
        write_all(fd, data, end)
        os.fsync(fd)
    except BaseException:
        os.ftruncate(fd, end)
        raise
    return end + len(data)


def open_log(path):
    """Open a log, cut its torn tail, and sync what was found: (fd, records, end)."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        found = scan(read(path))
        end = found[-1][1] if found else 0
        if os.fstat(fd).st_size > end:
            os.ftruncate(fd, end)
        os.fsync(fd)
        sync_dir(os.path.dirname(path))
    except BaseException:
        os.close(fd)
        raise
    return fd, [record for record, _ in found], end


@contextmanager
def transaction(db):
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def open_db(directory, journal, synchronous, *schema, locking="NORMAL"):
    """A database in autocommit mode. The commit at the end also syncs what recovery found."""
    db = sqlite3.connect(os.path.join(directory, "store.db"), isolation_level=None)
    try:
        db.execute(f"PRAGMA locking_mode={locking}")
        db.execute(f"PRAGMA synchronous={synchronous}")
        mode = db.execute(f"PRAGMA journal_mode={journal}").fetchone()[0]
        if mode.upper() != journal:
            raise RuntimeError(f"journal_mode is {mode}, not {journal}")
        with transaction(db):
            for statement in schema:
                db.execute(statement)
            db.execute("CREATE TABLE IF NOT EXISTS opened (id INTEGER PRIMARY KEY, times INTEGER)")
            db.execute("INSERT INTO opened VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET times = times + 1")
        sync_dir(directory)
    except BaseException:
        db.close()
        raise
    return db


def modes(db):
    return {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}


class NoteFiles:
    """One JSON file per session, replaced by rename"""

    promises = {
        "durable": ("a save and a delete are synced, with the directory", DOCS, "power"),
        "atomic": ("a file is replaced by rename", DOCS, "power"),
        "loadable": ("a file is always complete", DOCS, "power"),
        "continues": ("a restart needs no repair", DOCS, "power"),
        "isolated": ("each session has its own file", DOCS, "power"),
    }

    def open(self, directory):
        self.directory = str(directory)
        clean(self.directory)

    def _path(self, session):
        return os.path.join(self.directory, key(session) + ".json")

    def save(self, session, state):
        replace(self._path(session), dump(state))

    def load(self, session):
        data = read(self._path(session))
        return None if data is None else json.loads(data)

    def delete(self, session):
        discard(self._path(session))
        sync_dir(self.directory)

    def close(self):
        pass


class LedgerRollback:
    """A history table in SQLite with a rollback journal that is deleted"""

    promises = {
        "durable": ("synchronous=EXTRA also syncs the deletion of the journal", DOCS, "power"),
        "atomic": ("a version is one transaction", DOCS, "power"),
        "prefix": ("versions are kept in the order of their commits", DOCS, "power"),
        "loadable": ("SQLite rolls back on open", DOCS, "power"),
        "continues": ("the next version follows the last", DOCS, "power"),
        "isolated": ("rows are selected by the exact session", DOCS, "power"),
        "immutable": ("a version is never updated", DOCS, "power"),
    }

    def open(self, directory):
        self.db = open_db(
            str(directory), "DELETE", "EXTRA",
            "CREATE TABLE IF NOT EXISTS versions (id INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT, state TEXT)",
            "CREATE INDEX IF NOT EXISTS by_session ON versions (session, id)",
        )  # fmt: skip

    def save(self, session, state):
        with transaction(self.db):
            self.db.execute(
                "INSERT INTO versions (session, state) VALUES (?, ?)", (session, json.dumps(state))
            )

    def load(self, session):
        query = "SELECT state FROM versions WHERE session = ? ORDER BY id DESC LIMIT 1"
        row = self.db.execute(query, (session,)).fetchone()
        return json.loads(row[0]) if row else None

    def history(self, session):
        query = "SELECT state FROM versions WHERE session = ? ORDER BY id"
        return [json.loads(text) for (text,) in self.db.execute(query, (session,))]

    def delete(self, session):
        with transaction(self.db):
            self.db.execute("DELETE FROM versions WHERE session = ?", (session,))

    def settings(self):
        return modes(self.db)

    def close(self):
        self.db.close()


class WalDesk:
    """The current state and a log of states, in SQLite with a write-ahead log"""

    promises = {
        "durable": ("synchronous=FULL syncs the log at each commit", DOCS, "power"),
        "atomic": ("a save is one transaction", DOCS, "power"),
        "prefix": ("the log has the order of the commits", DOCS, "power"),
        "loadable": ("SQLite recovers on open", DOCS, "power"),
        "continues": ("a restart needs no repair", DOCS, "power"),
        "isolated": ("rows are selected by the exact session", DOCS, "power"),
        "immutable": ("the log is only appended to", DOCS, "power"),
        "consistent": ("the state and the last log entry are committed together", DOCS, "power"),
    }

    def open(self, directory):
        self.db = open_db(
            str(directory), "WAL", "FULL",
            "CREATE TABLE IF NOT EXISTS current (session TEXT PRIMARY KEY, state TEXT)",
            "CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT, state TEXT)",
        )  # fmt: skip

    def save(self, session, state):
        row = (session, json.dumps(state))
        with transaction(self.db):
            self.db.execute("INSERT OR REPLACE INTO current VALUES (?, ?)", row)
            self.db.execute("INSERT INTO log (session, state) VALUES (?, ?)", row)

    def load(self, session):
        row = self.db.execute("SELECT state FROM current WHERE session = ?", (session,)).fetchone()
        return json.loads(row[0]) if row else None

    def history(self, session):
        query = "SELECT state FROM log WHERE session = ? ORDER BY id"
        return [json.loads(text) for (text,) in self.db.execute(query, (session,))]

    def records(self, session):
        query = """SELECT (SELECT state FROM current WHERE session = ?1),
                   (SELECT state FROM log WHERE session = ?1 ORDER BY id DESC LIMIT 1)"""
        current, log = self.db.execute(query, (session,)).fetchone()
        return {"current": json.loads(current or "null"), "log": json.loads(log or "null")}

    def close(self):
        self.db.close()


class WalRelaxed:
    """States and items in SQLite with a write-ahead log that is synced at checkpoints"""

    promises = {
        "durable": ("a commit survives the death of the process", DOCS),
        "atomic": ("a call is one transaction", DOCS, "power"),
        "prefix": ("the log keeps the order of the commits", DOCS, "power"),
        "loadable": ("SQLite recovers on open", DOCS, "power"),
        "continues": ("a restart needs no repair", DOCS, "power"),
        "isolated": ("rows are selected by the exact session", DOCS, "power"),
    }

    def open(self, directory):
        self.db = open_db(
            str(directory), "WAL", "NORMAL",
            "CREATE TABLE IF NOT EXISTS states (session TEXT PRIMARY KEY, state TEXT)",
            "CREATE TABLE IF NOT EXISTS items (id INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT, item TEXT)",
        )  # fmt: skip

    def save(self, session, state):
        with transaction(self.db):
            self.db.execute("INSERT OR REPLACE INTO states VALUES (?, ?)", (session, json.dumps(state)))

    def load(self, session):
        row = self.db.execute("SELECT state FROM states WHERE session = ?", (session,)).fetchone()
        return json.loads(row[0]) if row else None

    def append(self, session, items):
        rows = [(session, json.dumps(item)) for item in items]
        with transaction(self.db):
            self.db.executemany("INSERT INTO items (session, item) VALUES (?, ?)", rows)

    def items(self, session):
        query = "SELECT item FROM items WHERE session = ? ORDER BY id"
        return [json.loads(text) for (text,) in self.db.execute(query, (session,))]

    def settings(self):
        return modes(self.db)

    def close(self):
        self.db.close()


class ItemLog:
    """One log of all items, with lengths and checksums, owned by one process at a time"""

    promises = {
        "durable": ("each call is synced", DOCS, "power"),
        "atomic": ("a call is one checked record", DOCS, "power"),
        "prefix": ("the log is read up to its last whole record", DOCS, "power"),
        "loadable": ("a torn tail is cut off", DOCS, "power"),
        "continues": ("the next record follows the last whole one", DOCS, "power"),
        "isolated": ("a record names its session", DOCS, "power"),
        "fenced": ("a second process is refused while the first lives", DOCS),
    }

    def open(self, directory):
        self.lock = hold(os.path.join(directory, "lock"))
        try:
            self.fd, records, self.end = open_log(os.path.join(directory, "items.log"))
        except BaseException:
            os.close(self.lock)
            raise
        self.sessions = {}
        for record in records:
            self._apply(record)

    def _apply(self, record):
        self.sessions.setdefault(record["session"], []).extend(map(json.dumps, record["items"]))

    def append(self, session, items):
        record = {"session": session, "items": list(items)}
        self.end = add_record(self.fd, self.end, record)
        self._apply(record)

    def items(self, session):
        return [json.loads(text) for text in self.sessions.get(session, [])]

    def close(self):
        os.close(self.fd)
        os.close(self.lock)


class TidyLog:
    """A log of states that is rewritten when it holds too many old ones"""

    promises = {
        "durable": (
            "records are synced; the rewritten log is synced before and after the rename",
            DOCS,
            "power",
        ),
        "atomic": ("a save is one checked record", DOCS, "power"),
        "loadable": ("a torn tail is cut off", DOCS, "power"),
        "continues": ("the next record follows the last whole one", DOCS, "power"),
        "isolated": ("a record names its session", DOCS, "power"),
        "fenced": ("a second process is refused while the first lives", DOCS),
    }

    def open(self, directory):
        self.directory, self.path = str(directory), os.path.join(directory, "states.log")
        self.lock = hold(os.path.join(directory, "lock"))
        try:
            clean(self.directory)
            self.fd, records, self.end = open_log(self.path)
        except BaseException:
            os.close(self.lock)
            raise
        self.live = {}
        for record in records:
            self._apply(record)
        self.old = len(records) - len(self.live)

    def _apply(self, record):
        self.live.pop(record["session"], None)
        if record["state"] is not None:
            self.live[record["session"]] = dump(record)

    def _add(self, record):
        if self.old >= 6:
            self._rewrite()
        self.end = add_record(self.fd, self.end, record)
        self.old += (record["session"] in self.live) + (record["state"] is None)
        self._apply(record)

    def _rewrite(self):
        data = b"".join(frame(payload) for payload in self.live.values())
        temp = stage(self.directory, data)
        try:
            fd = os.open(temp, os.O_RDWR)
            os.rename(temp, self.path)
        except BaseException:
            discard(temp)
            raise
        os.close(self.fd)
        self.fd, self.end = fd, len(data)
        sync_dir(self.directory)  # if this fails, `old` still asks for a rewrite before the next record
        self.old = 0

    def save(self, session, state):
        self._add({"session": session, "state": state})

    def load(self, session):
        payload = self.live.get(session)
        return json.loads(payload)["state"] if payload else None

    def delete(self, session):
        if session in self.live:
            self._add({"session": session, "state": None})

    def close(self):
        os.close(self.fd)
        os.close(self.lock)


class SegmentLog:
    """A new log segment per process; each seals the segments of its predecessors"""

    promises = {
        "durable": ("each save is synced", DOCS, "power"),
        "atomic": ("a save is one checked record", DOCS, "power"),
        "prefix": ("segments are read in order, up to where they were sealed", DOCS, "power"),
        "loadable": ("torn tails are ignored", DOCS, "power"),
        "continues": ("a new process writes a new segment", DOCS, "power"),
        "isolated": ("a record names its session", DOCS, "power"),
        "immutable": ("a sealed segment does not grow", DOCS, "power"),
        "fenced": ("what is written behind a seal is ignored, and refused", DOCS),
    }

    def _path(self, number):
        return os.path.join(self.directory, f"{number:08d}.segment")

    def open(self, directory):
        self.directory = str(directory)
        sync_dir(directory)  # no later segment may outlive an earlier one
        names = [name for name in os.listdir(directory) if name.endswith(".segment")]
        self.number = max((int(name.split(".")[0]) for name in names), default=0) + 1
        while os.path.exists(self._path(self.number)):
            self.number += 1
        self.fd = os.open(self._path(self.number), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        sync_dir(directory)
        found = {number: self._read(number) for number in range(1, self.number)}
        newest = max((number for number in found if found[number]), default=0)
        limits = found[newest][0][0]["seal"] if newest else []
        self.versions, seal = {}, []
        for number, records in found.items():
            if number < newest:
                records = [pair for pair in records if pair[1] <= limits[number - 1]]
            for record, _ in records[1:]:
                self.versions.setdefault(record["session"], []).append(json.dumps(record["state"]))
            seal.append(records[-1][1] if records else 0)
        self.end = add_record(self.fd, 0, {"seal": seal})

    def _read(self, number):
        with open(self._path(number), "rb") as file:
            data = file.read()
            os.fsync(file.fileno())  # what is built on must last
        return scan(data)

    def save(self, session, state):
        self.end = add_record(self.fd, self.end, {"session": session, "state": state})
        if os.path.exists(self._path(self.number + 1)):
            raise RuntimeError("a newer process has taken over")
        self.versions.setdefault(session, []).append(json.dumps(state))

    def load(self, session):
        return json.loads(self.versions[session][-1]) if session in self.versions else None

    def history(self, session):
        return [json.loads(text) for text in self.versions.get(session, [])]

    def close(self):
        os.close(self.fd)


class Generations:
    """Two generations per session and a pointer to the current one"""

    promises = {
        "durable": ("a generation is synced before the pointer, and the pointer too", DOCS, "power"),
        "atomic": ("the pointer is replaced by rename", DOCS, "power"),
        "loadable": ("the pointer always names a complete file", DOCS, "power"),
        "continues": ("each generation has a new name", DOCS, "power"),
        "isolated": ("each session has its own pointer", DOCS, "power"),
    }

    def open(self, directory):
        self.directory = str(directory)
        clean(self.directory)

    def _path(self, name):
        return os.path.join(self.directory, name)

    def _pointer(self, session):
        return json.loads(read(self._path(key(session) + ".pointer")) or "{}")

    def save(self, session, state):
        before = self._pointer(session)
        name = f"{key(session)}@{uuid.uuid4().hex}.generation"
        os.rename(stage(self.directory, dump(state)), self._path(name))
        sync_dir(self.directory)  # the generation has its name before the pointer names it
        after = {"current": name, "previous": before.get("current")}
        replace(self._path(key(session) + ".pointer"), dump(after))
        if before.get("previous"):
            discard(self._path(before["previous"]))

    def load(self, session):
        pointer = self._pointer(session)
        return json.loads(read(self._path(pointer["current"]))) if pointer else None

    def close(self):
        pass


class Shards:
    """Eight JSON documents; a save merges its session into one of them"""

    promises = {
        "durable": ("a document is replaced and synced", DOCS, "power"),
        "atomic": ("a document is replaced by rename", DOCS, "power"),
        "loadable": ("a document is always complete", DOCS, "power"),
        "continues": ("a restart needs no repair", DOCS, "power"),
        "isolated": ("the other sessions of a document are kept as they are", DOCS, "power"),
    }

    def open(self, directory):
        self.directory = str(directory)
        clean(self.directory)

    def _path(self, session, ending):
        number = hashlib.sha256(session.encode()).digest()[0] % 8
        return os.path.join(self.directory, f"shard-{number}.{ending}")

    def _document(self, session):
        return json.loads(read(self._path(session, "json")) or "{}")

    def save(self, session, state):
        with locked(self._path(session, "lock")):
            document = self._document(session)
            document[session] = state
            replace(self._path(session, "json"), dump(document))

    def load(self, session):
        return self._document(session).get(session)

    def delete(self, session):
        with locked(self._path(session, "lock")):
            document = self._document(session)
            document.pop(session, None)
            replace(self._path(session, "json"), dump(document))

    def close(self):
        pass


class ObjectStore:
    """States as objects named by their hash; an index entry per version"""

    promises = {
        "durable": ("the object is synced before the entry that names it, and the entry too", DOCS, "power"),
        "atomic": ("an entry appears complete, under a name of its own", DOCS, "power"),
        "prefix": ("entries are numbered in the order of the saves", DOCS, "power"),
        "loadable": ("an entry names a complete object", DOCS, "power"),
        "continues": ("the next number follows the last", DOCS, "power"),
        "isolated": ("an entry belongs to one session", DOCS, "power"),
        "immutable": ("objects and entries are never changed", DOCS, "power"),
        "idempotent": ("saving the latest state again makes no new version", DOCS, "power"),
    }

    def open(self, directory):
        self.objects, self.index = os.path.join(directory, "objects"), os.path.join(directory, "index")
        for folder in (self.objects, self.index):
            os.makedirs(folder, exist_ok=True)
            sync_dir(directory)
            clean(folder)

    def _entries(self, session):
        start = key(session) + "@"
        return sorted(
            os.path.join(self.index, name) for name in os.listdir(self.index) if name.startswith(start)
        )

    def _object(self, entry):
        return os.path.join(self.objects, read(entry).decode())

    def save(self, session, state):
        data = dump(state)
        path = os.path.join(self.objects, hashlib.sha256(data).hexdigest())
        if not os.path.exists(path):
            os.rename(stage(self.objects, data), path)
        sync_dir(self.objects)  # also if it existed: its name may not have been synced
        entries = self._entries(session)
        if not entries or self._object(entries[-1]) != path:
            number = int(entries[-1].rsplit("@", 1)[1]) + 1 if entries else 1
            temp = stage(self.index, os.path.basename(path).encode())
            try:
                os.link(temp, os.path.join(self.index, f"{key(session)}@{number:08d}"))
            finally:
                discard(temp)
        sync_dir(self.index)

    def load(self, session):
        entries = self._entries(session)
        return json.loads(read(self._object(entries[-1]))) if entries else None

    def history(self, session):
        return [json.loads(read(self._object(entry))) for entry in self._entries(session)]

    def close(self):
        pass


class AsyncCards:
    """One file per session, replaced by rename and left to the kernel to write back; async"""

    promises = {
        "durable": ("a save survives the death of the process", DOCS),
        "atomic": ("a file is replaced by rename", DOCS),
        "loadable": ("a file is always complete", DOCS),
        "continues": ("a restart needs no repair", DOCS),
        "isolated": ("each session has its own file", DOCS),
    }
    callers = "tasks"

    async def open(self, directory):
        self.directory = str(directory)
        for name in sorted(os.listdir(directory)):
            if name.endswith(".tmp"):
                discard(os.path.join(directory, name))

    def _path(self, session):
        return os.path.join(self.directory, key(session) + ".json")

    async def save(self, session, state):
        data = dump(state)
        fd, temp = tempfile.mkstemp(dir=self.directory, suffix=".tmp")
        try:
            try:
                write_all(fd, data)
            finally:
                os.close(fd)
            await asyncio.sleep(0)
            os.rename(temp, self._path(session))
        except BaseException:
            discard(temp)
            raise

    async def load(self, session):
        data = read(self._path(session))
        return None if data is None else json.loads(data)

    async def delete(self, session):
        discard(self._path(session))

    async def close(self):
        await asyncio.sleep(0)


class DatedVersions:
    """One file per version; their modification times give the order"""

    promises = {
        "durable": ("a version is synced with its time, and the directory", DOCS, "power"),
        "atomic": ("a version appears complete by rename", DOCS, "power"),
        "prefix": ("a version is always later than the ones before", DOCS, "power"),
        "loadable": ("a version is always complete", DOCS, "power"),
        "continues": ("the next time is later than the last", DOCS, "power"),
        "isolated": ("a file belongs to one session", DOCS, "power"),
        "immutable": ("a version is never changed", DOCS, "power"),
    }
    clock = "seeded"

    def open(self, directory):
        self.directory = str(directory)
        clean(self.directory)

    def _versions(self, session):
        start = key(session) + "@"
        paths = [
            os.path.join(self.directory, name)
            for name in os.listdir(self.directory)
            if name.startswith(start)
        ]
        return sorted((os.stat(path).st_mtime_ns, path) for path in paths)

    def save(self, session, state):
        def stamp(fd):
            versions = self._versions(session)
            moment = max(time.time_ns(), versions[-1][0] + 1_000_000 if versions else 0)
            os.utime(fd, ns=(moment, moment))

        temp = stage(self.directory, dump(state), stamp)
        os.rename(temp, os.path.join(self.directory, f"{key(session)}@{uuid.uuid4().hex}.json"))
        sync_dir(self.directory)

    def load(self, session):
        versions = self._versions(session)
        return json.loads(read(versions[-1][1])) if versions else None

    def history(self, session):
        return [json.loads(read(path)) for _, path in self._versions(session)]

    def close(self):
        pass


class CachedTable:
    """SQLite with a truncated journal, behind a cache that follows the commits"""

    promises = {
        "durable": ("the cache is filled after the commit; synchronous=FULL syncs it", DOCS, "power"),
        "atomic": ("a save is one transaction", DOCS, "power"),
        "loadable": ("SQLite rolls back on open", DOCS, "power"),
        "continues": ("a restart needs no repair", DOCS, "power"),
        "isolated": ("rows are selected by the exact session", DOCS, "power"),
    }

    def open(self, directory):
        schema = "CREATE TABLE IF NOT EXISTS states (session TEXT PRIMARY KEY, state TEXT)"
        self.db = open_db(str(directory), "TRUNCATE", "FULL", schema)
        self.cache, self.seen = {}, None

    def save(self, session, state):
        text = json.dumps(state)
        self.cache.pop(session, None)
        with transaction(self.db):
            self.db.execute("INSERT OR REPLACE INTO states VALUES (?, ?)", (session, text))
        self.cache[session] = text

    def load(self, session):
        seen = self.db.execute("PRAGMA data_version").fetchone()[0]
        if seen != self.seen:  # another connection has committed
            self.cache.clear()
            self.seen = seen
        if session not in self.cache:
            row = self.db.execute("SELECT state FROM states WHERE session = ?", (session,)).fetchone()
            if row is None:
                return None
            self.cache[session] = row[0]
        return json.loads(self.cache[session])

    def delete(self, session):
        self.cache.pop(session, None)
        with transaction(self.db):
            self.db.execute("DELETE FROM states WHERE session = ?", (session,))

    def close(self):
        self.db.close()


class LateFolders:
    """A folder per session, made when it is first needed"""

    promises = {
        "durable": ("each new folder is synced into its parent", DOCS, "power"),
        "atomic": ("a file is replaced by rename", DOCS, "power"),
        "loadable": ("a file is always complete; a missing folder is an empty session", DOCS, "power"),
        "continues": ("a restart needs no repair", DOCS, "power"),
        "isolated": ("each session has its own folder", DOCS, "power"),
    }

    def open(self, directory):
        self.directory = str(directory)

    def _folders(self, session):
        top = os.path.join(self.directory, "sessions")
        return self.directory, top, os.path.join(top, "s-" + key(session))

    def save(self, session, state):
        root, top, folder = self._folders(session)
        os.makedirs(folder, exist_ok=True)
        sync_dir(root)
        sync_dir(top)
        clean(folder)
        replace(os.path.join(folder, "state.json"), dump(state))

    def load(self, session):
        folders = self._folders(session)
        data = read(os.path.join(folders[-1], "state.json"))
        for folder in folders:  # what is shown must last
            if os.path.isdir(folder):
                sync_dir(folder)
        return None if data is None else json.loads(data)

    def delete(self, session):
        folder = self._folders(session)[-1]
        if os.path.isdir(folder):
            discard(os.path.join(folder, "state.json"))
            sync_dir(folder)

    def close(self):
        pass


class FieldTable:
    """A row per field in SQLite; a save merges: it writes what changed and removes what is gone"""

    promises = {
        "durable": ("synchronous=FULL syncs the log at each commit", DOCS, "power"),
        "atomic": ("a save is one transaction", DOCS, "power"),
        "loadable": ("SQLite recovers on open", DOCS, "power"),
        "continues": ("a restart needs no repair", DOCS, "power"),
        "isolated": ("rows are selected by the exact session", DOCS, "power"),
        "consistent": ("the digest is committed with the fields", DOCS, "power"),
    }

    def open(self, directory):
        self.db = open_db(
            str(directory), "WAL", "FULL",
            "CREATE TABLE IF NOT EXISTS heads (session TEXT PRIMARY KEY, digest TEXT)",
            "CREATE TABLE IF NOT EXISTS fields (session TEXT, name TEXT, value TEXT, PRIMARY KEY (session, name))",
            locking="EXCLUSIVE",
        )  # fmt: skip

    def _fields(self, session):
        return dict(
            self.db.execute("SELECT name, value FROM fields WHERE session = ? ORDER BY name", (session,))
        )

    def _digest(self, fields):
        return hashlib.sha256(dump(sorted(fields.items()))).hexdigest()

    def save(self, session, state):
        new = {json.dumps(name): json.dumps(value) for name, value in state.items()}
        with transaction(self.db):
            old = self._fields(session)
            for name in sorted(old.keys() - new.keys()):
                self.db.execute("DELETE FROM fields WHERE session = ? AND name = ?", (session, name))
            for name in sorted(new):
                if old.get(name) != new[name]:
                    self.db.execute(
                        "INSERT OR REPLACE INTO fields VALUES (?, ?, ?)", (session, name, new[name])
                    )
            self.db.execute("INSERT OR REPLACE INTO heads VALUES (?, ?)", (session, self._digest(new)))

    def _head(self, session):
        row = self.db.execute("SELECT digest FROM heads WHERE session = ?", (session,)).fetchone()
        return row[0] if row else None

    def load(self, session):
        if self._head(session) is None:
            return None
        return {json.loads(name): json.loads(value) for name, value in self._fields(session).items()}

    def records(self, session):
        head = self._head(session)
        return {} if head is None else {"head": head, "fields": self._digest(self._fields(session))}

    def close(self):
        self.db.close()


class KeyedItems:
    """Items in SQLite with a persistent journal; the content of an item is its key"""

    promises = {
        "durable": ("synchronous=FULL syncs each commit", DOCS, "power"),
        "atomic": ("a call is one transaction", DOCS, "power"),
        "prefix": ("items keep the order in which they were appended", DOCS, "power"),
        "loadable": ("SQLite rolls back on open", DOCS, "power"),
        "continues": ("the next item follows the last", DOCS, "power"),
        "isolated": ("a key counts within its session", DOCS, "power"),
        "idempotent": ("an item that a session already has is not added again", DOCS, "power"),
    }

    def open(self, directory):
        self.db = open_db(
            str(directory), "PERSIST", "FULL",
            "CREATE TABLE IF NOT EXISTS items (id INTEGER PRIMARY KEY AUTOINCREMENT,"
            " session TEXT, key TEXT, item TEXT, UNIQUE (session, key))",
        )  # fmt: skip

    def append(self, session, items):
        with transaction(self.db):
            for item in items:
                digest = hashlib.sha256(json.dumps(item, sort_keys=True).encode()).hexdigest()
                row = (session, digest, json.dumps(item))
                self.db.execute(
                    "INSERT INTO items (session, key, item) VALUES (?, ?, ?) ON CONFLICT (session, key) DO NOTHING",
                    row,
                )

    def items(self, session):
        query = "SELECT item FROM items WHERE session = ? ORDER BY id"
        return [json.loads(text) for (text,) in self.db.execute(query, (session,))]

    def settings(self):
        return modes(self.db)

    def close(self):
        self.db.close()


class TurnFiles:
    """A file per session; each process takes a turn number, and only the last turn may save"""

    promises = {
        "durable": ("a save is synced, with the directory", DOCS, "power"),
        "atomic": ("a file is replaced by rename", DOCS, "power"),
        "loadable": ("a file is always complete", DOCS, "power"),
        "continues": ("a restart takes the next turn", DOCS, "power"),
        "isolated": ("each session has its own file", DOCS, "power"),
        "fenced": ("the turn is checked under the lock under which the file is replaced", DOCS),
    }

    def open(self, directory):
        self.directory = str(directory)
        with self._locked():
            clean(self.directory)
            self.turn = self._turn() + 1
            replace(os.path.join(self.directory, "turn"), dump(self.turn))

    def _locked(self):
        return locked(os.path.join(self.directory, "lock"))  # blocking

    def _turn(self):
        return json.loads(read(os.path.join(self.directory, "turn")) or "0")

    def _path(self, session):
        return os.path.join(self.directory, key(session) + ".json")

    def save(self, session, state):
        data = dump(state)
        with self._locked():
            if self._turn() != self.turn:
                raise RuntimeError("a newer process has taken over")
            replace(self._path(session), data)

    def load(self, session):
        data = read(self._path(session))
        return None if data is None else json.loads(data)

    def close(self):
        pass
