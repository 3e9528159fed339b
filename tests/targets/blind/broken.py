# ruff: noqa
# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""Small session stores, each with its own way to keep things on disk."""

import json
import logging
import os
import pickle
import queue
import re
import shutil
import sqlite3
import threading
import uuid
import zipfile
import zlib
from pathlib import Path
from urllib.parse import quote

DOCS = "https://example.org/stores"


def _name(session):
    return quote(session, safe="")


def _replace(path, text):
    """Write a temporary file and rename it over path."""
    tmp = str(path) + ".tmp"
    with open(tmp, "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(tmp, path)


def _append(path, data):
    """Append all of data, or raise and leave the file as it was."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(fd).st_size
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        except OSError:
            os.ftruncate(fd, size)
            raise
    finally:
        os.close(fd)


def _line(*values):
    return (json.dumps(values) + "\n").encode()


def _trim(path):
    """Cut off an unfinished last line."""
    if os.path.exists(path):
        data = Path(path).read_bytes()
        if not data.endswith(b"\n"):
            os.truncate(path, data.rfind(b"\n") + 1)


def _lines(path):
    return Path(path).read_bytes().splitlines() if os.path.exists(path) else []


def _sync_dir(directory):
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Notebook:
    """One JSON file per session, rewritten by each save"""

    promises = {
        "durable": ("a saved state survives a restart", DOCS),
        "loadable": ("a saved session can always be loaded", DOCS),
    }

    def open(self, directory):
        self.root = Path(directory)

    def _path(self, session):
        return self.root / f"{_name(session)}.json"

    def save(self, session, state):
        with open(self._path(session), "w", encoding="utf-8") as f:
            json.dump(state, f)

    def load(self, session):
        path = self._path(session)
        return json.loads(path.read_text("utf-8")) if path.exists() else None

    def close(self):
        pass


class Ledger:
    """All sessions in one log, kept open for appending"""

    promises = {
        "durable": ("appended items survive a restart", DOCS),
        "prefix": ("items come back in the order of the appends", DOCS),
    }

    def open(self, directory):
        path = Path(directory) / "ledger.jsonl"
        _trim(path)
        self.entries = {}
        for line in _lines(path):
            session, items = json.loads(line)
            self.entries.setdefault(session, []).extend(items)
        self.log = open(path, "a", encoding="utf-8")

    def append(self, session, items):
        self.log.write(json.dumps([session, items]) + "\n")
        self.entries.setdefault(session, []).extend(items)

    def items(self, session):
        return list(self.entries.get(session, []))

    def close(self):
        self.log.close()


class Gatehouse:
    """One process at a time: a lock file guards the directory"""

    promises = {
        "durable": ("a saved state survives a crash of the process", DOCS),
        "continues": ("after a crash, start the process again and go on", DOCS),
    }

    def open(self, directory):
        self.root = Path(directory)
        self.lock = self.root / "store.lock"
        try:
            fd = os.open(self.lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            raise RuntimeError("the store is in use by another process") from None
        os.close(fd)

    def save(self, session, state):
        _replace(self.root / f"{_name(session)}.json", json.dumps(state))

    def load(self, session):
        path = self.root / f"{_name(session)}.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else None

    def close(self):
        self.lock.unlink()


class Attic:
    """A log of states, compacted after every 50 records"""

    promises = {
        "durable": ("every saved state survives a crash", DOCS),
        "isolated": ("saving one session does not touch another", DOCS),
    }
    saves = 60

    def open(self, directory):
        self.log = Path(directory) / "attic.log"
        _trim(self.log)
        lines = _lines(self.log)
        self.states = dict(json.loads(line) for line in lines)
        self.count = len(lines)

    def save(self, session, state):
        _append(self.log, _line(session, state))
        self.states[session] = state
        self.count += 1
        if self.count >= 50 + len(self.states):
            self._compact()

    def _compact(self):
        self.log.unlink()
        for session, state in self.states.items():
            _append(self.log, _line(session, state))
        self.count = len(self.states)

    def load(self, session):
        return self.states.get(session)

    def close(self):
        pass


class Cardbox:
    """States in one data file, found through an index of offsets"""

    promises = {
        "durable": ("a saved state can be loaded after a crash", DOCS),
        "loadable": ("the index always leads to a complete state", DOCS),
    }

    def open(self, directory):
        self.data = Path(directory) / "cards.dat"
        self.data.touch()
        self.index_path = Path(directory) / "cards.idx"
        self.index = {}
        if self.index_path.exists():
            self.index = json.loads(self.index_path.read_text("utf-8"))

    def save(self, session, state):
        card = json.dumps(state).encode()
        self.index[session] = [self.data.stat().st_size, len(card)]
        _replace(self.index_path, json.dumps(self.index))
        _append(self.data, card)

    def load(self, session):
        if session not in self.index:
            return None
        offset, length = self.index[session]
        with open(self.data, "rb") as f:
            f.seek(offset)
            return json.loads(f.read(length))

    def close(self):
        pass


class Logbook:
    """One JSON-lines file per session; damaged lines are skipped"""

    promises = {
        "durable": ("an appended item is never lost in a crash", DOCS),
        "atomic": ("the items of one call appear together", DOCS),
        "prefix": ("items are kept in order", DOCS),
    }

    def open(self, directory):
        self.root = Path(directory)

    def append(self, session, items):
        _append(self.root / f"{_name(session)}.jsonl", _line(*items))

    def items(self, session):
        found = []
        for line in _lines(self.root / f"{_name(session)}.jsonl"):
            try:
                found.extend(json.loads(line))
            except ValueError:
                continue  # an append was interrupted here
        return found

    def close(self):
        pass


class Twinset:
    """Each state in a primary file and in a mirror for the readers"""

    promises = {
        "durable": ("a saved state survives a crash", DOCS),
        "consistent": ("primary and mirror always show the same state", DOCS),
    }

    def open(self, directory):
        self.root = Path(directory)

    def _read(self, session, part):
        path = self.root / f"{_name(session)}.{part}.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else None

    def save(self, session, state):
        for part in ("primary", "mirror"):
            _replace(self.root / f"{_name(session)}.{part}.json", json.dumps(state))

    def load(self, session):
        return self._read(session, "primary")

    def records(self, session):
        return {part: self._read(session, part) for part in ("primary", "mirror")}

    def close(self):
        pass


class Nursery:
    """A folder per session, created by its first save"""

    promises = {
        "durable": ("a saved state survives a crash", DOCS),
        "continues": ("sessions can be saved again after a crash", DOCS),
    }

    def open(self, directory):
        self.root = Path(directory)

    def save(self, session, state):
        folder = self.root / f"{_name(session)}.session"
        if not folder.exists():
            folder.mkdir()
            _replace(folder / "format.json", json.dumps({"format": 2}))
        _replace(folder / "state.json", json.dumps(state))

    def load(self, session):
        folder = self.root / f"{_name(session)}.session"
        if not (folder / "format.json").exists():
            return None  # not a session of ours
        path = folder / "state.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else None

    def close(self):
        pass


class Hourglass:
    """One file per version; a clean shutdown leaves an index behind"""

    promises = {
        "durable": ("the latest saved state is found after a crash", DOCS),
        "prefix": ("the history keeps the order of the saves", DOCS),
    }

    def open(self, directory):
        self.root = Path(directory)
        self.index = self.root / "index.json"
        self.order = {}
        if self.index.exists():
            self.order = json.loads(self.index.read_text("utf-8"))
            self.index.unlink()
        else:  # no clean shutdown: rebuild
            files = self.root.glob("*.version")
            for path in sorted(files, key=lambda p: (int(p.stat().st_mtime), p.name)):
                session = json.loads(path.read_text("utf-8"))["session"]
                self.order.setdefault(session, []).append(path.name)

    def save(self, session, state):
        name = f"{uuid.uuid4().hex}.version"
        _replace(self.root / name, json.dumps({"session": session, "state": state}))
        self.order.setdefault(session, []).append(name)

    def history(self, session):
        return [json.loads((self.root / n).read_text("utf-8"))["state"] for n in self.order.get(session, [])]

    def load(self, session):
        return (self.history(session) or [None])[-1]

    def close(self):
        _replace(self.index, json.dumps(self.order))


class Scribe:
    """Each save goes through a scratch file and a rename"""

    promises = {
        "durable": ("a saved state survives a crash", DOCS),
        "loadable": ("a file is replaced as a whole, never half written", DOCS),
    }

    def open(self, directory):
        self.root = Path(directory)
        self.scratch = self.root / "scratch"

    def save(self, session, state):
        with open(self.scratch, "a", encoding="utf-8") as f:
            f.write(json.dumps(state))
        os.replace(self.scratch, self.root / f"{_name(session)}.json")

    def load(self, session):
        path = self.root / f"{_name(session)}.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else None

    def close(self):
        pass


class Vault:
    """Synced temporary file, then a rename"""

    promises = {
        "durable": ("a saved state is on disk when save returns, also after a power failure", DOCS, "power"),
        "atomic": ("a state is replaced as a whole", DOCS, "power"),
    }

    def open(self, directory):
        self.root = Path(directory)

    def save(self, session, state):
        path = self.root / f"{_name(session)}.json"
        tmp = path.with_name(path.name + ".tmp")
        with open(tmp, "w", encoding="utf-8") as f:
            f.write(json.dumps(state))
            f.flush()
            os.fsync(f.fileno())
        os.replace(tmp, path)

    def load(self, session):
        path = self.root / f"{_name(session)}.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else None

    def close(self):
        pass


class Courier:
    """A background thread writes; callers never wait for the disk"""

    promises = {
        "durable": ("save returns once the state is stored", DOCS),
        "loadable": ("a stored session can be loaded", DOCS),
    }

    def open(self, directory):
        self.root = Path(directory)
        self.latest = {}
        self.queue = queue.Queue()
        self.writer = threading.Thread(target=self._write, daemon=True)
        self.writer.start()

    def _write(self):
        while (job := self.queue.get()) is not None:
            session, text = job
            _replace(self.root / f"{_name(session)}.json", text)

    def save(self, session, state):
        self.latest[session] = state
        self.queue.put((session, json.dumps(state)))

    def load(self, session):
        path = self.root / f"{_name(session)}.json"
        if session not in self.latest and path.exists():
            self.latest[session] = json.loads(path.read_text("utf-8"))
        return self.latest.get(session)

    def close(self):
        self.queue.put(None)
        self.writer.join()


class Roster:
    """A folder per session, one numbered file per append"""

    promises = {
        "durable": ("an appended item survives a crash", DOCS),
        "atomic": ("the items of one append are kept together", DOCS),
        "prefix": ("items are kept in order", DOCS),
    }

    def open(self, directory):
        self.root = Path(directory)

    def append(self, session, items):
        folder = self.root / f"{_name(session)}.roster"
        folder.mkdir(exist_ok=True)
        number = len(os.listdir(folder))
        _replace(folder / f"{number}.json", json.dumps(items))

    def items(self, session):
        folder = self.root / f"{_name(session)}.roster"
        found, number = [], 0
        while (path := folder / f"{number}.json").exists():
            found.extend(json.loads(path.read_text("utf-8")))
            number += 1
        return found

    def close(self):
        pass


class Closet:
    """The current state and a backup of the one before"""

    promises = {
        "durable": ("saves and deletions survive a crash", DOCS),
        "atomic": ("a save or a deletion happens or does not", DOCS),
    }

    def open(self, directory):
        self.root = Path(directory)

    def _paths(self, session):
        return self.root / f"{_name(session)}.json", self.root / f"{_name(session)}.bak"

    def save(self, session, state):
        current, backup = self._paths(session)
        if current.exists():
            shutil.copyfile(current, backup)
        _replace(current, json.dumps(state))

    def load(self, session):
        for path in self._paths(session):
            if path.exists():
                return json.loads(path.read_text("utf-8"))
        return None

    def delete(self, session):
        for path in self._paths(session):
            path.unlink(missing_ok=True)

    def close(self):
        pass


class Mailroom:
    """Every version is kept; a marker shows which one is being written"""

    promises = {
        "durable": ("a saved version survives a crash", DOCS),
        "isolated": ("a crash while saving one session leaves the others alone", DOCS),
    }

    def open(self, directory):
        self.root = Path(directory)
        for marker in list(self.root.glob("*.pending")):  # roll back what was interrupted
            number = int(marker.read_text())
            for path in list(self.root.glob(f"{marker.stem}*.json")):
                if int(path.stem[-6:]) >= number:
                    path.unlink()
            marker.unlink()

    def _versions(self, session):
        pattern = re.compile(re.escape(_name(session)) + r"-\d{6}\.json")
        return sorted(p for p in self.root.iterdir() if pattern.fullmatch(p.name))

    def save(self, session, state):
        number = len(self._versions(session)) + 1
        marker = self.root / f"{_name(session)}.pending"
        _replace(marker, str(number))
        _replace(self.root / f"{_name(session)}-{number:06d}.json", json.dumps(state))
        marker.unlink()

    def history(self, session):
        return [json.loads(p.read_text("utf-8")) for p in self._versions(session)]

    def load(self, session):
        return (self.history(session) or [None])[-1]

    def close(self):
        pass


class Abacus:
    """One JSON array per session, extended by each append"""

    promises = {
        "durable": ("appended items survive a crash", DOCS),
        "loadable": ("the array is always valid JSON", DOCS),
    }

    def open(self, directory):
        self.root = Path(directory)

    def append(self, session, items):
        path = self.root / f"{_name(session)}.json"
        if not path.exists():
            _replace(path, "[]")
        with open(path, "r+", encoding="utf-8") as f:
            everything = json.load(f) + items
            f.seek(0)
            f.write(json.dumps(everything))
            f.truncate()

    def items(self, session):
        path = self.root / f"{_name(session)}.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else []

    def close(self):
        pass


class Beacon:
    """A snapshot and a log with checksums"""

    promises = {
        "durable": ("a saved state survives a crash", DOCS),
        "loadable": ("a damaged log is recognised and repaired", DOCS),
    }

    def open(self, directory):
        self.snapshot = Path(directory) / "beacon.snapshot"
        self.log = Path(directory) / "beacon.log"
        stored = json.loads(self.snapshot.read_text("utf-8")) if self.snapshot.exists() else {}
        self.states = dict(stored)
        try:
            for line in _lines(self.log):
                checksum, record = line.split(b" ", 1)
                if int(checksum) != zlib.crc32(record):
                    raise ValueError("checksum")
                self.states.update([json.loads(record)])
        except ValueError:
            logging.warning("the log is damaged, going back to the snapshot")
            os.truncate(self.log, 0)
            self.states = stored

    def save(self, session, state):
        record = json.dumps([session, state]).encode()
        _append(self.log, b"%d %s\n" % (zlib.crc32(record), record))
        self.states[session] = state

    def load(self, session):
        return self.states.get(session)

    def close(self):
        _replace(self.snapshot, json.dumps(self.states))
        self.log.unlink(missing_ok=True)


class Trellis:
    """A log of saves, folded into a snapshot at the next start"""

    promises = {
        "durable": ("a saved state survives crashes, whenever they happen", DOCS),
        "continues": ("after a crash the store starts again", DOCS),
    }

    def open(self, directory):
        self.snapshot = Path(directory) / "trellis.json"
        self.log = Path(directory) / "trellis.log"
        self.states = json.loads(self.snapshot.read_text("utf-8")) if self.snapshot.exists() else {}
        _trim(self.log)
        if self.log.exists():
            self.states.update(json.loads(line) for line in _lines(self.log))
            self.log.unlink()
            _replace(self.snapshot, json.dumps(self.states))

    def save(self, session, state):
        _append(self.log, _line(session, state))
        self.states[session] = state

    def load(self, session):
        return self.states.get(session)

    def delete(self, session):
        self.save(session, None)

    def close(self):
        pass


class Turnstile:
    """A journal of appends, moved into a snapshot now and then"""

    promises = {
        "durable": ("appended items survive a crash", DOCS),
        "prefix": ("items come back once each, in order", DOCS),
        "idempotent": ("recovery never repeats an append", DOCS),
    }

    def open(self, directory):
        self.snapshot = Path(directory) / "turnstile.json"
        self.journal = Path(directory) / "turnstile.journal"
        self.entries = json.loads(self.snapshot.read_text("utf-8")) if self.snapshot.exists() else {}
        _trim(self.journal)
        for line in _lines(self.journal):
            session, items = json.loads(line)
            self.entries.setdefault(session, []).extend(items)
        self._checkpoint()

    def _checkpoint(self):
        _replace(self.snapshot, json.dumps(self.entries))
        self.journal.unlink(missing_ok=True)
        self.appends = 0

    def append(self, session, items):
        _append(self.journal, _line(session, items))
        self.entries.setdefault(session, []).extend(items)
        self.appends += 1
        if self.appends >= 10:
            try:
                self._checkpoint()
            except OSError:
                pass  # the journal has everything, try again next time

    def items(self, session):
        return list(self.entries.get(session, []))

    def close(self):
        self._checkpoint()


class Jar:
    """Pickles, one after the other in a single file"""

    promises = {
        "durable": ("saves and deletions survive a crash", DOCS),
        "loadable": ("the file can always be read back", DOCS),
    }

    def open(self, directory):
        self.path = Path(directory) / "jar.pickle"
        self.path.touch()
        self.states = {}
        with open(self.path, "rb") as f:
            while True:
                try:
                    session, state = pickle.load(f)
                except EOFError:
                    break
                self.states[session] = state

    def save(self, session, state):
        _append(self.path, pickle.dumps((session, state)))
        self.states[session] = state

    def delete(self, session):
        self.save(session, None)

    def load(self, session):
        return self.states.get(session)

    def close(self):
        pass


class Trunk:
    """All versions as members of one zip archive"""

    promises = {
        "durable": ("a saved version survives a crash", DOCS),
        "loadable": ("the archive can always be opened", DOCS),
        "prefix": ("versions are kept in order", DOCS),
    }

    def open(self, directory):
        self.path = Path(directory) / "trunk.zip"

    def _members(self, archive, session):
        return [n for n in archive.namelist() if n.rpartition("/")[0] == _name(session)]

    def save(self, session, state):
        with zipfile.ZipFile(self.path, "a") as archive:
            number = len(self._members(archive, session)) + 1
            archive.writestr(zipfile.ZipInfo(f"{_name(session)}/{number:05d}"), json.dumps(state))

    def history(self, session):
        if not self.path.exists():
            return []
        with zipfile.ZipFile(self.path) as archive:
            return [json.loads(archive.read(n)) for n in self._members(archive, session)]

    def load(self, session):
        return (self.history(session) or [None])[-1]

    def close(self):
        pass


class Seesaw:
    """Two slots per session, written in turn; the other one stays intact"""

    promises = {
        "durable": ("there is always a slot with the latest saved state", DOCS),
        "loadable": ("a half-written slot is ignored", DOCS),
    }

    def open(self, directory):
        self.root = Path(directory)
        self.turn = {}

    def _newest(self, session):
        newest = {"number": 0, "state": None}
        for slot in (0, 1):
            try:
                found = json.loads((self.root / f"{_name(session)}.{slot}").read_text("utf-8"))
            except (FileNotFoundError, ValueError):
                continue
            newest = max(newest, found, key=lambda entry: entry["number"])
        return newest

    def save(self, session, state):
        slot = self.turn.get(session, 0)
        entry = {"number": self._newest(session)["number"] + 1, "state": state}
        with open(self.root / f"{_name(session)}.{slot}", "w", encoding="utf-8") as f:
            f.write(json.dumps(entry))
        self.turn[session] = 1 - slot

    def load(self, session):
        return self._newest(session)["state"]

    def close(self):
        pass


class Kettle:
    """Never lets a storage problem stop the application"""

    promises = {
        "durable": ("a state is stored when save returns", DOCS),
        "atomic": ("a state is replaced as a whole", DOCS),
    }

    def open(self, directory):
        self.root = Path(directory)

    def save(self, session, state):
        try:
            _replace(self.root / f"{_name(session)}.json", json.dumps(state))
        except OSError as error:
            logging.warning("cannot save %s: %s", session, error)

    def load(self, session):
        path = self.root / f"{_name(session)}.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else None

    def close(self):
        pass


class Postbox:
    """Appends with a reserve of space for the day the disk is full"""

    promises = {
        "durable": ("an item is stored when append returns", DOCS),
        "prefix": ("items are kept in order", DOCS),
    }

    def open(self, directory):
        self.root = Path(directory)
        self.reserve = self.root / "reserve.bin"
        for path in self.root.glob("*.jsonl"):
            _trim(path)
        if not self.reserve.exists():
            self.reserve.write_bytes(bytes(65536))

    def append(self, session, items):
        for attempt in (1, 2, 3):
            try:
                with open(self.root / f"{_name(session)}.jsonl", "ab") as f:
                    f.write(_line(*items))
                return
            except OSError:
                if attempt == 3:
                    raise
                self.reserve.unlink(missing_ok=True)  # make room and try again

    def items(self, session):
        found = []
        for line in _lines(self.root / f"{_name(session)}.jsonl"):
            try:
                found.extend(json.loads(line))
            except ValueError:
                logging.warning("skipped a damaged line")
        return found

    def close(self):
        pass


class Compass:
    """The process that opened the store last is its only writer"""

    promises = {
        "durable": ("a saved state survives a crash", DOCS),
        "fenced": ("an old process cannot write any more once a new one has taken over", DOCS),
    }

    def open(self, directory):
        self.root = Path(directory)
        self.owner = self.root / "owner"
        self.token = uuid.uuid4().hex
        self.confirmed = False
        _replace(self.owner, self.token)

    def save(self, session, state):
        if not self.confirmed:
            if self.owner.read_text() != self.token:
                raise PermissionError("another process owns this store")
            self.confirmed = True
        _replace(self.root / f"{_name(session)}.json", json.dumps(state))

    def load(self, session):
        path = self.root / f"{_name(session)}.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else None

    def close(self):
        pass


class Sundial:
    """SQLite, tuned for speed"""

    promises = {
        "durable": ("a committed state survives a crash of the process", DOCS),
        "atomic": ("a save is one transaction", DOCS),
        "loadable": ("the database stays intact", DOCS),
    }

    def open(self, directory):
        self.db = sqlite3.connect(Path(directory) / "sundial.db", check_same_thread=False)
        self.db.execute("PRAGMA journal_mode = OFF")
        self.db.execute("CREATE TABLE IF NOT EXISTS states (session TEXT PRIMARY KEY, state TEXT)")
        self.db.commit()

    def save(self, session, state):
        with self.db:
            self.db.execute("REPLACE INTO states VALUES (?, ?)", (session, json.dumps(state)))

    def load(self, session):
        row = self.db.execute("SELECT state FROM states WHERE session = ?", (session,)).fetchone()
        return json.loads(row[0]) if row else None

    def settings(self):
        return {"journal_mode": self.db.execute("PRAGMA journal_mode").fetchone()[0]}

    def close(self):
        self.db.close()


class Tapestry:
    """Temporary file, sync, rename, sync of the folder"""

    promises = {
        "durable": ("a saved state survives a power failure", DOCS, "power"),
        "loadable": ("a saved state is never half written, even if the power fails", DOCS, "power"),
    }

    def open(self, directory):
        self.root = Path(directory)

    def save(self, session, state):
        path = self.root / f"{_name(session)}.json"
        tmp = path.with_name(path.name + ".tmp")
        with open(tmp, "w", encoding="utf-8") as f:
            f.write(json.dumps(state))
            os.fsync(f.fileno())
        os.replace(tmp, path)
        _sync_dir(self.root)

    def load(self, session):
        path = self.root / f"{_name(session)}.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else None

    def close(self):
        pass


class Almanac:
    """A synced log with checksums, compacted after every 20 saves"""

    promises = {
        "durable": ("each save is synced before it returns: safe against power failures", DOCS, "power"),
        "loadable": ("an interrupted write is cut off at the next start", DOCS, "power"),
    }

    def open(self, directory):
        self.log = Path(directory) / "almanac.log"
        self.states, self.saved, valid = {}, 0, 0
        self.log.touch()
        _sync_dir(directory)
        for line in self.log.read_bytes().splitlines(keepends=True):
            checksum, _, record = line.rstrip(b"\n").partition(b" ")
            if not line.endswith(b"\n") or checksum != b"%d" % zlib.crc32(record):
                break
            self.states.update([json.loads(record)])
            valid += len(line)
        os.truncate(self.log, valid)

    def _encode(self, session, state):
        record = json.dumps([session, state]).encode()
        return b"%d %s\n" % (zlib.crc32(record), record)

    def save(self, session, state):
        _append(self.log, self._encode(session, state))
        with open(self.log, "rb") as f:
            os.fsync(f.fileno())
        self.states[session] = state
        self.saved += 1
        if self.saved % 20 == 0:
            new = self.log.with_suffix(".new")
            new.write_bytes(b"".join(self._encode(*entry) for entry in self.states.items()))
            os.replace(new, self.log)
            _sync_dir(self.log.parent)

    def load(self, session):
        return self.states.get(session)

    def close(self):
        pass


class Quarry:
    """SQLite in WAL mode"""

    promises = {
        "durable": ("a committed save or deletion survives a power failure", DOCS, "power"),
        "atomic": ("a save is one transaction", DOCS, "power"),
    }

    def open(self, directory):
        self.db = sqlite3.connect(Path(directory) / "quarry.db", check_same_thread=False)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = NORMAL")
        self.db.execute("CREATE TABLE IF NOT EXISTS states (session TEXT PRIMARY KEY, state TEXT)")
        self.db.commit()

    def save(self, session, state):
        with self.db:
            self.db.execute("REPLACE INTO states VALUES (?, ?)", (session, json.dumps(state)))

    def load(self, session):
        row = self.db.execute("SELECT state FROM states WHERE session = ?", (session,)).fetchone()
        return json.loads(row[0]) if row else None

    def delete(self, session):
        with self.db:
            self.db.execute("DELETE FROM states WHERE session = ?", (session,))

    def close(self):
        self.db.close()


class Folio:
    """Numbered versions and a counter for the next number"""

    promises = {
        "durable": ("a saved version survives a crash", DOCS),
        "immutable": ("a version in the history never changes", DOCS),
    }

    def open(self, directory):
        self.root = Path(directory)

    def save(self, session, state):
        counter = self.root / f"{_name(session)}.counter"
        number = int(counter.read_text()) if counter.exists() else 1
        _replace(self.root / f"{_name(session)}.{number}.json", json.dumps(state))
        _replace(counter, str(number + 1))

    def history(self, session):
        found, number = [], 1
        while (path := self.root / f"{_name(session)}.{number}.json").exists():
            found.append(json.loads(path.read_text("utf-8")))
            number += 1
        return found

    def load(self, session):
        return (self.history(session) or [None])[-1]

    def close(self):
        pass


class Mantel:
    """The previous state is kept until the new one is complete"""

    promises = {
        "durable": ("a saved state survives crashes", DOCS),
        "loadable": ("a half-written state is replaced by its backup", DOCS),
    }

    def open(self, directory):
        self.root = Path(directory)

    def _paths(self, session):
        return self.root / f"{_name(session)}.json", self.root / f"{_name(session)}.bak"

    def save(self, session, state):
        current, backup = self._paths(session)
        if current.exists():
            os.replace(current, backup)
        with open(current, "w", encoding="utf-8") as f:
            f.write(json.dumps(state))

    def load(self, session):
        for path in self._paths(session):
            try:
                return json.loads(path.read_text("utf-8"))
            except (FileNotFoundError, ValueError):
                continue
        return None

    def close(self):
        pass


class Tally:
    """Items as rows of a SQLite table"""

    promises = {
        "durable": ("an appended item survives a crash", DOCS),
        "atomic": ("the items of one append are stored together or not at all", DOCS),
        "prefix": ("items are kept in order", DOCS),
    }

    def open(self, directory):
        self.db = sqlite3.connect(Path(directory) / "tally.db", isolation_level=None, check_same_thread=False)
        self.db.execute("CREATE TABLE IF NOT EXISTS items (id INTEGER PRIMARY KEY, session TEXT, item TEXT)")

    def append(self, session, items):
        for item in items:
            self.db.execute("INSERT INTO items (session, item) VALUES (?, ?)", (session, json.dumps(item)))

    def items(self, session):
        rows = self.db.execute("SELECT item FROM items WHERE session = ? ORDER BY id", (session,))
        return [json.loads(row[0]) for row in rows]

    def close(self):
        self.db.close()


class Parcel:
    """The current states in one database, the audit trail in another"""

    promises = {
        "durable": ("a committed save survives a crash", DOCS),
        "consistent": ("a state and its audit entry are written in one transaction", DOCS),
    }

    def open(self, directory):
        self.db = sqlite3.connect(
            Path(directory) / "parcel.db", isolation_level=None, check_same_thread=False
        )
        self.db.execute("ATTACH ? AS audit", (str(Path(directory) / "audit.db"),))
        for name in ("main", "audit"):
            self.db.execute(f"PRAGMA {name}.journal_mode = WAL")
        self.db.execute("CREATE TABLE IF NOT EXISTS main.states (session TEXT PRIMARY KEY, state TEXT)")
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS audit.trail (id INTEGER PRIMARY KEY, session TEXT, state TEXT)"
        )

    def save(self, session, state):
        text = json.dumps(state)
        self.db.execute("BEGIN IMMEDIATE")
        with self.db:
            self.db.execute("REPLACE INTO main.states VALUES (?, ?)", (session, text))
            self.db.execute("INSERT INTO audit.trail (session, state) VALUES (?, ?)", (session, text))

    def _one(self, query, session):
        row = self.db.execute(query, (session,)).fetchone()
        return json.loads(row[0]) if row else None

    def load(self, session):
        return self._one("SELECT state FROM main.states WHERE session = ?", session)

    def records(self, session):
        latest = self._one("SELECT state FROM audit.trail WHERE session = ? ORDER BY id DESC", session)
        return {"current": self.load(session), "audited": latest}

    def close(self):
        self.db.close()


class Ferry:
    """Makes room for the new state when the disk is full"""

    promises = {
        "durable": ("a saved state is kept until it is replaced", DOCS),
        "atomic": ("a state is replaced as a whole", DOCS),
    }

    def open(self, directory):
        self.root = Path(directory)

    def save(self, session, state):
        path = self.root / f"{_name(session)}.json"
        try:
            _replace(path, json.dumps(state))
        except OSError:
            path.unlink(missing_ok=True)  # the old state is obsolete anyway
            _replace(path, json.dumps(state))

    def load(self, session):
        path = self.root / f"{_name(session)}.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else None

    def close(self):
        pass
