"""Small stores, broken and sound, each for one rule by which a verdict is earned."""

from __future__ import annotations

import json
import os
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
    deadline = 1
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
        return sorted(self.directory.glob(f"{session}.*.json"), key=lambda path: int(path.suffixes[0][1:]))

    def save(self, session, state):
        found = self.versions(session)
        number = int(found[-1].suffixes[0][1:]) + 1 if found else 0
        self.put(self.directory / f"{session}.{number}.json", state)

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
        self.put(self.directory / f"{session}.{os.urandom(8).hex()}.json", state)

    def load(self, session):
        found = sorted(self.directory.glob(f"{session}.*.json"), key=lambda path: path.stat().st_mtime_ns)
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


class TimeNamed(Base):
    """Sound: one file per version, named by the time, of which the latest counts"""

    promises = {"durable": ("kept", "docs", "power"), "loadable": ("opens", "docs")}

    def save(self, session, state):
        stamp = f"{datetime.now(UTC).timestamp():.6f}-{time.time_ns()}"
        self.put(self.directory / f"{session}.{stamp}.json", state)

    def load(self, session):
        found = sorted(self.directory.glob(f"{session}.*.json"))
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
