"""Stores that write by unusual routes: some that the interposer records, some that it cannot see.

Every one of them really keeps what it acknowledges, so a verdict of VIOLATED is wrong for all of them. HOLDS
is right only where every operation was recorded; otherwise the verdict is UNKNOWN, with the reason.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import socket
import sqlite3
import struct
import subprocess
import sys
from pathlib import Path

K = ("kept", "docs")
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.syscall.restype = ctypes.c_long

MAP_32BIT = 0x40
PAGE = 4096
NATIVE = bytes.fromhex("4889f8 4889f7 4889d6 4889ca 4d89c2 4d89c8 4c8b4c2408 0f05 c3")  # six arguments
INT_80 = bytes.fromhex("53 89f8 89f3 87d1 cd80 5b 4898 c3")  # three arguments


class Base:
    """One file per session, replaced as a whole"""

    promises = {"durable": K, "loadable": K}
    saves = 4
    largest = 900

    def open(self, directory):
        self.directory = Path(directory)

    def path(self, session):
        return self.directory / f"{session}.json"

    def save(self, session, state):
        aside = self.path(session).with_suffix(".tmp")
        self.put(aside, json.dumps(state).encode())
        aside.replace(self.path(session))

    def put(self, path, data):
        path.write_bytes(data)

    def load(self, session):
        path = self.path(session)
        return json.loads(path.read_bytes().rstrip(b"\0")) if path.exists() else None

    def close(self):
        pass


def opened(path, flags=os.O_RDWR | os.O_CREAT | os.O_TRUNC):
    return os.open(path, flags, 0o644)


def assert_all(done, data):
    if done != len(data):
        raise OSError(-done if done < 0 else 0, f"{done} of {len(data)} bytes were written")


# --- machine code and raw system calls


def code_at(code, *, low=False):
    """A function made of these bytes; `low`: in the first 4 GiB."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (MAP_32BIT if low else 0)
    place = libc.mmap(None, PAGE, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC, flags, -1, 0)
    ctypes.memmove(place, code, len(code))
    return ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 7)(place)


class RawSyscall(Base):
    """write by the C library's syscall()"""

    def put(self, path, data):
        fd = opened(path)
        assert_all(libc.syscall(1, fd, data, ctypes.c_size_t(len(data))), data)
        os.close(fd)


class MachineCode(Base):
    """write by a `syscall` instruction of its own"""

    low = False
    bits = 0

    def put(self, path, data):
        call = code_at(NATIVE, low=self.low)
        buffer = ctypes.create_string_buffer(data, len(data))
        fd = opened(path)
        assert_all(call(1 | self.bits, fd, ctypes.addressof(buffer), len(data), 0, 0, 0), data)
        os.close(fd)


class LowCode(MachineCode):
    """The same from the first 4 GiB, where statically linked programs live"""

    low = True


class X32(MachineCode):
    """The same by a number of the x32 interface"""

    bits = 0x40000000


class Int80(Base):
    """write as a 32-bit system call"""

    low = False

    def put(self, path, data):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_32BIT
        place = libc.mmap(None, 1 << 20, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        ctypes.memmove(place, data, len(data))
        fd = opened(path)
        assert_all(code_at(INT_80, low=self.low)(4, fd, place, len(data), 0, 0, 0), data)
        os.close(fd)


class LowInt80(Int80):
    """The same from the first 4 GiB"""

    low = True


class HiddenIndex(LowCode):
    """Broken: an index that nobody sees is written in two steps, and gone before the end

    A crash between the steps leaves a store that cannot be loaded; where the index is missing, it is.
    """

    def save(self, session, state):
        Base.put(self, self.path(session).with_suffix(".tmp"), json.dumps(state).encode())
        self.path(session).with_suffix(".tmp").replace(self.path(session))
        index = self.directory / "index"
        self.put(index, b"{")
        (self.directory / "clean").touch()
        (self.directory / "clean").unlink()
        self.put(index, b"{}")

    def load(self, session):
        index = self.directory / "index"
        if index.exists() and index.read_text():
            json.loads(index.read_text())
        return super().load(session)

    def close(self):
        (self.directory / "index").unlink(missing_ok=True)


class IoUring(Base):
    """write through io_uring"""

    def put(self, path, data):
        fd = opened(path)
        ring_write(fd, data)
        os.close(fd)


def ring_write(fd, data):
    params = ctypes.create_string_buffer(120)
    ring = libc.syscall(425, 4, params)
    if ring < 0:
        raise OSError(ctypes.get_errno(), "no io_uring here")
    sq = struct.unpack_from("10I", params.raw, 40)  # head, tail, mask, entries, flags, dropped, array...
    rings = mmap.mmap(ring, 4096, offset=0)
    entries = mmap.mmap(ring, 4096, offset=0x10000000)
    buffer = ctypes.create_string_buffer(data, len(data))
    entries[:64] = struct.pack("<BBHiQQI28x", 23, 0, 0, fd, 0, ctypes.addressof(buffer), len(data))
    struct.pack_into("<I", rings, sq[6], 0)
    tail = struct.unpack_from("<I", rings, sq[1])[0]
    struct.pack_into("<I", rings, sq[1], tail + 1)
    done = libc.syscall(426, ring, 1, 1, 1, None, 0)
    for each in (rings, entries):
        each.close()
    os.close(ring)
    if done != 1:
        raise OSError(ctypes.get_errno(), "io_uring_enter failed")


class PosixAio(Base):
    """write by aio_write, which the C library does in a thread"""

    def put(self, path, data):
        fd = opened(path)
        buffer = ctypes.create_string_buffer(data, len(data))
        control = ctypes.create_string_buffer(168)  # struct aiocb
        struct.pack_into("@iii4xPN", control, 0, fd, 0, 0, ctypes.addressof(buffer), len(data))
        struct.pack_into("@i", control, 44, 1)  # SIGEV_NONE
        if libc.aio_write(control):
            raise OSError(ctypes.get_errno(), "aio_write failed")
        while libc.aio_error(control) == 115:  # EINPROGRESS
            pass
        assert_all(libc.aio_return(control), data)
        os.close(fd)


# --- mappings


class Mapped(Base):
    """Stores through a shared mapping"""

    def put(self, path, data):
        fd = opened(path)
        os.ftruncate(fd, len(data))
        with mmap.mmap(fd, len(data)) as memory:
            memory[:] = data
        os.close(fd)


class MappedAndSynced(Base):
    """The same, synced with msync"""

    def put(self, path, data):
        fd = opened(path)
        os.ftruncate(fd, len(data))
        with mmap.mmap(fd, len(data)) as memory:
            memory[:] = data
            memory.flush()
        os.close(fd)


class MappedDatabaseIndex(Mapped):
    """The same in a file that is named like SQLite's shared memory"""

    def path(self, session):
        return self.directory / f"{session}-shm"

    def save(self, session, state):
        aside = self.directory / "new-shm"
        self.put(aside, json.dumps(state).encode())
        aside.replace(self.path(session))


class MadeWritable(Base):
    """Maps for reading, and makes the mapping writable afterwards"""

    def put(self, path, data):
        fd = opened(path)
        os.ftruncate(fd, len(data))
        place = libc.mmap(None, len(data), mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        if libc.mprotect(place, len(data), mmap.PROT_READ | mmap.PROT_WRITE):
            raise OSError(ctypes.get_errno(), "mprotect failed")
        ctypes.memmove(place, data, len(data))
        libc.munmap(ctypes.c_void_p(place), ctypes.c_size_t(len(data)))
        os.close(fd)


# --- copies inside the kernel, and other calls


class Splice(Base):
    """write to a pipe, splice into the file"""

    def put(self, path, data):
        reading, writing = os.pipe()
        fd = opened(path)
        for at in range(0, len(data), 60000):
            part = data[at : at + 60000]
            os.write(writing, part)
            assert_all(os.splice(reading, fd, len(part)), part)
        for each in (reading, writing, fd):
            os.close(each)


class CopyRange(Base):
    """copy_file_range from a file without a name, sendfile for the rest"""

    def put(self, path, data):
        with (self.directory / "source").open("w+b") as source:
            source.write(data)
            source.flush()
            fd = opened(path)
            half = os.copy_file_range(source.fileno(), fd, len(data) // 2, 0)
            assert_all(half + os.sendfile(fd, source.fileno(), half, len(data) - half), data)
            os.close(fd)
        (self.directory / "source").unlink()


class Direct(Base):
    """O_DIRECT, from a page of its own"""

    def put(self, path, data):
        size = -(-len(data) // PAGE) * PAGE
        with mmap.mmap(-1, size) as memory:
            memory[: len(data)] = data
            try:
                fd = opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT)
            except OSError:  # a file system without it
                fd = opened(path)
            assert_all(os.write(fd, memory), memory)
            os.close(fd)


class Holes(Base):
    """Allocates, punches a hole, and shrinks the file through another name"""

    def put(self, path, data):
        fd = opened(path)
        os.write(fd, b"x" * (len(data) + PAGE))
        libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(1 << 20))  # PUNCH_HOLE | KEEP_SIZE
        os.pwrite(fd, data, 0)
        other = self.directory / "other"
        other.unlink(missing_ok=True)
        os.link(path, other)
        os.truncate(other, len(data))
        other.unlink()
        os.close(fd)


class Nameless(Base):
    """O_TMPFILE, linked when it is complete"""

    def put(self, path, data):
        fd = os.open(self.directory, os.O_TMPFILE | os.O_WRONLY, 0o644)
        os.write(fd, data)
        path.unlink(missing_ok=True)
        if libc.linkat(-100, f"/proc/self/fd/{fd}".encode(), -100, os.fsencode(path), 0x400):
            raise OSError(ctypes.get_errno(), "linkat failed")
        os.close(fd)


class Attribute(Base):
    """Keeps the state in an extended attribute, which it removes when it is closed"""

    def save(self, session, state):
        self.path(session).touch()
        os.setxattr(self.path(session), "user.state", json.dumps(state).encode())

    def load(self, session):
        path = self.path(session)
        if not path.exists():
            return None
        if "user.state" in os.listxattr(path):
            return json.loads(os.getxattr(path, "user.state"))
        return super().load(session)

    def close(self):
        for path in self.directory.glob("*.json"):
            if "user.state" in os.listxattr(path):
                data = os.getxattr(path, "user.state")
                path.write_bytes(data)
                os.removexattr(path, "user.state")


# --- other names of the same file


class ProcFd(Base):
    """Opens its file a second time through /proc/self/fd, and truncates it there"""

    def put(self, path, data):
        fd = opened(path, os.O_RDONLY | os.O_CREAT)
        again = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_TRUNC)
        os.write(again, data)
        os.close(again)
        os.close(fd)


def outside(directory):
    """A directory of the store that is not below the one it was given, different in each run."""
    place = Path(os.environ["ELSEWHERE"]) / directory.parent.name
    place.mkdir(exist_ok=True)
    return place


class LinkedOutside(Base):
    """Writes through a second name that is outside of the directory"""

    def put(self, path, data):
        path.touch()
        other = outside(self.directory) / path.name
        other.unlink(missing_ok=True)
        os.link(path, other)
        other.write_bytes(data)


class SymlinkOut(Base):
    """The directory has symbolic links only; the files are elsewhere"""

    def open(self, directory):
        super().open(directory)
        link = self.directory / "data"
        if not link.is_symlink():
            link.symlink_to(outside(self.directory))

    def path(self, session):
        return self.directory / "data" / f"{session}.json"


class OutsideDatabase(Base):
    """A database elsewhere; the directory has a lock file, which is written at every save"""

    def open(self, directory):
        super().open(directory)
        self.db = sqlite3.connect(Path(os.environ["ELSEWHERE"]) / "sessions.db")
        self.db.execute("CREATE TABLE IF NOT EXISTS sessions (name PRIMARY KEY, state)")
        self.db.commit()

    def save(self, session, state):
        (self.directory / "lock").write_text(session)
        self.db.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?)", (session, json.dumps(state)))
        self.db.commit()

    def load(self, session):
        row = self.db.execute("SELECT state FROM sessions WHERE name = ?", (session,)).fetchone()
        return json.loads(row[0]) if row else None

    def close(self):
        self.db.close()


class OutsideIndex(Base):
    """Keeps the list of its sessions elsewhere, in a place of its own for each directory"""

    def index(self):
        return outside(self.directory) / "sessions"

    def save(self, session, state):
        super().save(session, state)
        with self.index().open("a") as file:
            file.write(session + "\n")


class Server(Base):
    """A server keeps the sessions; the directory has a lock file, which is written at every save"""

    def save(self, session, state):
        (self.directory / "lock").write_text(session)
        served({"path": f"{os.environ['ELSEWHERE']}/{session}", "data": json.dumps(state)})

    def load(self, session):
        path = Path(os.environ["ELSEWHERE"], session)
        return json.loads(path.read_text()) if path.exists() else None


# --- other processes


class CleanEnvironment(Base):
    """A child process writes, with an empty environment"""

    def put(self, path, data):
        command = ["/bin/sh", "-c", 'exec /bin/cat > "$1"', "sh", str(path)]
        subprocess.run(command, input=data, env={}, check=True)


class StaticHelper(Base):
    """A statically linked program writes"""

    def put(self, path, data):
        subprocess.run([os.environ["STATIC_HELPER"], str(path)], input=data, check=True)


def served(request, *, wants_fd=False):
    """Asks the process behind $DAEMON, which is no child of ours."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(os.environ["DAEMON"])
        line.sendall(json.dumps(request).encode() + b"\n")
        if wants_fd:
            return socket.recv_fds(line, 1, 1)[1][0]
        line.recv(1)
    return None


class Daemon(Base):
    """A daemon writes"""

    def put(self, path, data):
        served({"path": str(path), "data": data.decode()})


class DaemonLog(Base):
    """A daemon writes a log; closing the store copies it to its place and removes it"""

    def save(self, session, state):
        path = self.directory / f"{session}.log"
        path.touch()
        served({"path": str(path), "data": json.dumps(state)})

    def load(self, session):
        log = self.directory / f"{session}.log"
        return json.loads(log.read_text()) if log.exists() and log.read_text() else super().load(session)

    def close(self):
        for log in self.directory.glob("*.log"):
            super().put(log.with_suffix(".json"), log.read_bytes())
            log.unlink()


class PassedDescriptor(Base):
    """A daemon opens the file and passes its descriptor"""

    def put(self, path, data):
        fd = served({"path": str(path)}, wants_fd=True)
        os.write(fd, data)
        os.close(fd)


def serve(address):
    """The daemon: writes what it is asked to, or passes an open descriptor."""
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(address)
        door.listen()
        while True:
            line, _ = door.accept()
            with line, line.makefile("rb") as reader:
                request = json.loads(reader.readline())
                fd = os.open(request["path"], os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
                if "data" in request:
                    os.write(fd, request["data"].encode())
                    line.send(b".")
                else:
                    socket.send_fds(line, [b"."], [fd])
                os.close(fd)


if __name__ == "__main__":
    serve(sys.argv[1])
