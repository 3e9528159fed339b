"""Small stores, broken and sound, each for one rule by which a verdict is earned."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

K = ("kept", "docs")


class Base:
    """One file per session, written aside, synced, renamed, directory synced: sound"""

    saves = 6
    largest = 900

    def open(self, directory):
        self.directory = Path(directory)

    def path(self, session):
        return self.directory / f"{session}.json"

    def save(self, session, state):
        self.put(self.path(session), state)

    def put(self, path, state):
        aside = path.with_suffix(".tmp")
        with aside.open("w") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        handle = os.open(path.parent, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)

    def load(self, session):
        path = self.path(session)
        return json.loads(path.read_text()) if path.exists() else None

    def close(self):
        pass


class Sound(Base):
    """The base itself"""

    promises = {
        "durable": ("kept", "docs", "power"),
        "loadable": ("opens", "docs"),
        "continues": ("on", "docs"),
    }


class RenameLast(Base):
    """Sound without power loss: its last operation is the rename itself"""

    promises = {"durable": K, "loadable": K, "atomic": K}

    def put(self, path, state):
        aside = path.with_suffix(".tmp")
        aside.write_text(json.dumps(state))
        aside.replace(path)


class Elsewhere(Base):
    """Ignores the directory that it is given"""

    def open(self, directory):
        super().open(directory)
        self.directory = Path(os.environ["ELSEWHERE"])


class OutOfMemory(Base):
    """Keeps everything in memory once it has found something to recover: gone with the next process"""

    promises = {"durable": K}

    def open(self, directory):
        super().open(directory)
        found = list(self.directory.glob("*.json"))
        self.memory = {path.stem: json.loads(path.read_text()) for path in found} if found else None

    def save(self, session, state):
        if self.memory is None:
            super().save(session, state)
        else:
            self.memory[session] = state

    def load(self, session):
        return super().load(session) if self.memory is None else self.memory.get(session)


class Glued(Base):
    """Skips a torn last line, and appends the next one to it"""

    promises = {"durable": K}

    def log(self, session):
        return self.directory / f"{session}.jsonl"

    def save(self, session, state):
        with self.log(session).open("a") as file:
            file.write(json.dumps(state) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def load(self, session):
        latest = None
        for line in self.log(session).read_text().splitlines() if self.log(session).exists() else []:
            try:
                latest = json.loads(line)
            except ValueError:
                continue
        return latest


class HashNamed(Base):
    """Names files by hash(session), which another process computes differently"""

    promises = {"durable": K}

    def path(self, session):
        return self.directory / f"{hash(session)}.json"


_cleaned: set[int] = set()


class AbsolutePaths(Base):
    """Notes where its files are, by their full paths"""

    def save(self, session, state):
        super().save(session, state)
        self.put(self.directory / f"{session}.where", str(self.path(session)))

    def load(self, session):
        where = self.directory / f"{session}.where"
        path = Path(json.loads(where.read_text())) if where.exists() else None
        return json.loads(path.read_text()) if path and path.exists() else None


class CleansOnce(Base):
    """Removes what it takes for leftovers, once per process"""

    promises = {"durable": K}

    def open(self, directory):
        super().open(directory)
        if os.getpid() not in _cleaned:
            _cleaned.add(os.getpid())
            if len(list(self.directory.glob("*.json"))) > 1:
                for path in sorted(self.directory.glob("*.json"))[1:]:
                    path.unlink()


_cache: dict[str, dict] = {}


class PathCache(Base):
    """Sound: caches what it read, per path, for as long as the process lives"""

    promises = {"durable": ("kept", "docs", "power"), "loadable": ("opens", "docs")}

    def save(self, session, state):
        super().save(session, state)
        _cache[str(self.path(session))] = dict(state)

    def load(self, session):
        path = str(self.path(session))
        if path not in _cache:
            found = super().load(session)
            if found is None:
                return None
            _cache[path] = found
        return dict(_cache[path])


_sessions: dict[str, dict] = {}


class SessionCache(Base):
    """Caches what it read, per session, for as long as the process lives: in another directory, too"""

    promises = {"durable": K}

    def load(self, session):
        if session not in _sessions:
            found = super().load(session)
            if found is None:
                return None
            _sessions[session] = found
        return dict(_sessions[session])


class _Marked(Base):
    """Knows whether the last process closed it"""

    def open(self, directory):
        super().open(directory)
        self.dirty = (self.directory / "open").exists()
        (self.directory / "open").touch()

    def close(self):
        (self.directory / "open").unlink(missing_ok=True)


class Exits(_Marked):
    """After a crash every save ends the process"""

    promises = {"continues": K}

    def save(self, session, state):
        if self.dirty:
            raise SystemExit(3)
        super().save(session, state)


class ClosesBadly(_Marked):
    """After a crash close raises"""

    promises = {"continues": K}

    def close(self):
        if self.dirty:
            raise OSError("not a clean end")
        super().close()


class Aborts(_Marked):
    """After a crash opening it ends the process"""

    promises = {"loadable": K}

    def open(self, directory):
        super().open(directory)
        if self.dirty:
            os.abort()


class Hangs(_Marked):
    """After a crash it shows its sessions, and then a save never returns"""

    promises = {"continues": K, "loadable": K}
    deadline = 0.4
    saves = 2

    def save(self, session, state):
        if self.dirty:
            threading.Event().wait()
        super().save(session, state)


class _Items:
    """Items appended to one file per session, a call in one write"""

    saves = 8
    largest = 900

    def open(self, directory):
        self.directory = Path(directory)

    def path(self, session):
        return self.directory / f"{session}.jsonl"

    def append(self, session, items):
        handle = os.open(self.path(session), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(handle, "".join(json.dumps(item) + "\n" for item in items).encode())
        os.close(handle)

    def items(self, session):
        path = self.path(session)
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def close(self):
        pass


class Repeats(_Items):
    """Promises that a repeated append makes no double, and has nothing to recognise one by"""

    promises = {"idempotent": K}


class DeletesNothing(_Items):
    """delete returns, and that is all"""

    promises = {"durable": K}
    saves = 20

    def delete(self, session):
        pass


class HalfDeleted(Base):
    """One file per version; a deletion removes them one by one, the newest first"""

    promises = {"atomic": K}
    saves = 24

    def versions(self, session):
        return sorted(self.directory.glob(f"{session}~*.json"), key=self.number)

    def number(self, path):
        return int(path.stem.rpartition("~")[2])

    def save(self, session, state):
        found = self.versions(session)
        number = self.number(found[-1]) + 1 if found else 0
        self.put(self.directory / f"{session}~{number}.json", state)

    def load(self, session):
        found = self.versions(session)
        return json.loads(found[-1].read_text()) if found else None

    def delete(self, session):
        for path in reversed(self.versions(session)):
            path.unlink()


class ForgetsOnRestart(Base):
    """Loses everything when it is closed, without any crash"""

    def close(self):
        for path in self.directory.glob("*.json"):
            path.unlink()


class CannotLoad(Base):
    """load always raises"""

    def load(self, session):
        raise KeyError(session)


class CannotOpen(Base):
    """open always raises"""

    def open(self, directory):
        raise OSError("no such service")


class NewestTime(Base):
    """Sound: one file per version, and the latest is the one that was modified last"""

    promises = {"durable": ("kept", "docs", "power"), "loadable": ("opens", "docs")}

    def save(self, session, state):
        self.put(self.directory / f"{session}~{os.urandom(8).hex()}.json", state)

    def load(self, session):
        found = sorted(self.directory.glob(f"{session}~*.json"), key=lambda path: path.stat().st_mtime_ns)
        return json.loads(found[-1].read_text()) if found else None


class Attributes(Base):
    """Sound, and keeps its version in an extended attribute, which cannot be rebuilt"""

    def save(self, session, state):
        super().save(session, state)
        os.setxattr(self.path(session), "user.version", b"1")


class Spoils(Base):
    """A late save by a paused process leaves a file that nobody can read"""

    promises = {"fenced": K}

    def open(self, directory):
        super().open(directory)
        self.seen = {}

    def save(self, session, state):
        current = self.path(session).read_text() if self.path(session).exists() else ""
        if session in self.seen and current != self.seen[session]:
            self.path(session).write_text("{")
            raise OSError("somebody else was here")
        super().save(session, state)
        self.seen[session] = self.path(session).read_text()


class _Logged(Base):
    """Saves go to a log, which is synced; opening it moves them to one file per session"""

    promises = {"durable": ("kept", "docs", "power"), "atomic": K}

    def open(self, directory):
        super().open(directory)
        self.log = self.directory / "log"
        self.latest = {}
        if self.log.exists():
            for line in self.log.read_text().splitlines():
                session, state = json.loads(line)
                self.move(self.path(session), state)
            self.log.unlink()
            self.sync()

    def move(self, path, state):
        self.put(path, state)

    def sync(self):
        handle = os.open(self.directory, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)

    def save(self, session, state):
        new = not self.log.exists()
        with self.log.open("a") as file:
            file.write(json.dumps([session, state]) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if new:
            self.sync()
        self.latest[session] = state

    def load(self, session):
        return self.latest.get(session) or super().load(session)


class MovesSynced(_Logged):
    """Sound: what is moved is synced before the log is removed; a torn last line was never acknowledged"""

    def open(self, directory):
        log = Path(directory) / "log"
        if log.exists() and not log.read_bytes().endswith(b"\n"):
            with log.open("r+b") as file:
                file.truncate(file.read().rfind(b"\n") + 1)
                os.fsync(file.fileno())
        super().open(directory)


class MovesUnsynced(MovesSynced):
    """Moves the log's saves to files that nobody syncs, and removes the log: a power loss takes both"""

    promises = {"durable": ("kept", "docs", "power")}

    def move(self, path, state):
        path.write_text(json.dumps(state))


class SameName(Base):
    """Replaces what it takes for punctuation: a-b and a_b share a file"""

    saves = 20

    def path(self, session):
        return self.directory / f"{session.replace('-', '_')}.json"


class PrefixScan(Base):
    """One file per version; finds the latest of a session by the beginning of its name"""

    def open(self, directory):
        super().open(directory)
        self.count = len(list(self.directory.glob("*.json")))

    def save(self, session, state):
        self.count += 1
        self.put(self.directory / f"{session}{self.count:04}.json", state)

    def load(self, session):
        found = max(self.directory.glob(f"{session}*.json"), key=lambda path: path.stem[-4:], default=None)
        return json.loads(found.read_text()) if found else None


class Compacts(Base):
    """A log, rewritten in place by every 64th save"""

    promises = {"durable": K}
    saves = 30

    def open(self, directory):
        super().open(directory)
        self.log = self.directory / "log"
        self.states, self.lines = {}, 0
        text = self.log.read_text() if self.log.exists() else ""
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                session, state = json.loads(line)
                self.states[session] = state
                self.lines += 1
        if text and not text.endswith("\n"):
            os.truncate(self.log, len(text[: text.rfind("\n") + 1].encode()))

    def save(self, session, state):
        self.states[session] = state
        self.lines += 1
        whole = self.lines % 64 == 0
        with self.log.open("w" if whole else "a") as file:
            for item in self.states.items() if whole else [(session, state)]:
                file.write(json.dumps(item) + "\n")

    def load(self, session):
        return self.states.get(session)


class SetsAside(Base):
    """Sound: the index is set aside while it is written anew; load puts it back, and save starts from it"""

    promises = {"durable": K, "atomic": K}

    def save(self, session, state):
        index, old = self.directory / "index", self.directory / "old"
        if index.exists():
            index.rename(old)
        states = json.loads(old.read_text()) if old.exists() else {}
        self.put(index, {**states, session: state})
        old.unlink(missing_ok=True)

    def load(self, session):
        index, old = self.directory / "index", self.directory / "old"
        if old.exists() and not index.exists():
            old.rename(index)
        return json.loads(index.read_text()).get(session) if index.exists() else None


class ForgetsUnlessRead(SetsAside):
    """The same, and a save removes what an interrupted one has set aside, unless load has put it back"""

    def save(self, session, state):
        index, old = self.directory / "index", self.directory / "old"
        if old.exists() and not index.exists():
            old.unlink()
        super().save(session, state)


class AllFour(Base):
    """Sound: states and items of a session, as the documentation allows"""

    promises = {"durable": K, "loadable": K, "prefix": K}

    def path_of_items(self, session):
        return self.directory / f"{session}.items"

    def append(self, session, items):
        self.put(self.path_of_items(session), [*self.items(session), *items])

    def items(self, session):
        path = self.path_of_items(session)
        return json.loads(path.read_text()) if path.exists() else []

    def settings(self):
        return {"where": str(self.directory / "x"), "kind": "files"}


class LosesItems(AllFour):
    """The same, but items are rewritten in place"""

    def append(self, session, items):
        self.path_of_items(session).write_text(json.dumps([*self.items(session), *items]))


class Locks(Base):
    """Sound: a process holds a lock from open to close, and others wait for it"""

    promises = {"durable": K, "fenced": K}

    def open(self, directory):
        super().open(directory)
        self.lock = (self.directory / "lock").open("w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def close(self):
        self.lock.close()


class HangsForLong(_Marked):
    """After a crash every save hangs"""

    deadline = 60

    def save(self, session, state):
        while self.dirty:
            signal.pause()
        super().save(session, state)


class TimeNamed(Base):
    """Sound: one file per version, named by the time, of which the latest counts"""

    promises = {"durable": ("kept", "docs", "power"), "loadable": ("opens", "docs")}

    def save(self, session, state):
        stamp = f"{datetime.now(UTC).timestamp():.6f}-{time.time_ns()}"
        self.put(self.directory / f"{session}~{stamp}.json", state)

    def load(self, session):
        found = sorted(self.directory.glob(f"{session}~*.json"))
        return json.loads(found[-1].read_text()) if found else None


class TimeNamedSeeded(TimeNamed):
    """The same, under a clock that follows the seed"""

    clock = "seeded"


class Sleeps(Base):
    """Slow, and says so with too short a deadline"""

    deadline = 0.5

    def save(self, session, state):
        time.sleep(0.3)
        super().save(session, state)
