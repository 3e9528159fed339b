"""RealDisk: performs on a mounted file system what it records, with the hidden steps that time would do."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

from tests.disk.programs import INITIAL
from tests.disk.traces import Disk

LIBC = ctypes.CDLL(None, use_errno=True)
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
PAGE = 4096
WRITE = 2
WRITE_AND_WAIT = 1 | 2 | 4  # SYNC_FILE_RANGE_WAIT_BEFORE | WRITE | WAIT_AFTER


def call(name: str, *arguments: int) -> None:
    wide = [ctypes.c_int(arguments[0]), *(ctypes.c_longlong(a) for a in arguments[1:])]
    if getattr(LIBC, name)(*wide) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


class RealDisk(Disk):
    """Performs what it records. A file stays open from its first write, or each write opens it again."""

    def __init__(self, root: Path, keep_open: bool, initial: Mapping[str, bytes] = INITIAL) -> None:
        super().__init__(**initial)
        self.mount = root
        self.root = root / "watched"
        self.keep_open = keep_open
        self.handles: dict[int, int] = {}

    def _op(self, kind, path, **fields):
        getattr(self, f"_really_{kind}", self._really_shape)(kind, path, fields)
        return super()._op(kind, path, **fields)

    def _handle(self, path: str, flags: int = 0) -> int:
        number = self.numbers[path]
        if number not in self.handles or flags:
            return os.open(self.root / path, os.O_RDWR | flags)
        return self.handles[number]

    def _release(self, path: str, handle: int, flags: int = 0) -> None:
        if self.keep_open and not flags:
            self.handles[self.numbers[path]] = handle
        else:
            self._close(path, handle)

    def _close(self, path: str, handle: int) -> None:
        """At the end of an operation that is recorded next."""
        os.close(handle)
        self.closes.append((self.at + 1, self.numbers[path]))

    def close(self, path: str) -> None:
        if self.numbers[path] in self.handles:
            os.close(self.handles.pop(self.numbers[path]))
            super().close(path)

    def close_all(self) -> None:
        for handle in set(self.handles.values()):
            os.close(handle)
        self.handles = {}

    def write_back(self, *, wait: bool, only: int | None = None, first: int = 0, end: int = 0) -> None:
        """The dirty pages of every open file, or of one, from page `first` to page `end`, or all of them;
        without waiting, they are only on their way."""
        handles = sorted(set(self.handles.values()))
        length = max(0, end - first) * PAGE
        for handle in handles if only is None else handles[only : only + 1]:
            call("sync_file_range", handle, first * PAGE, length, WRITE_AND_WAIT if wait else WRITE)

    def _really_shape(self, kind, path, fields):
        flags = os.O_DSYNC if fields.get("durable") else 0
        handle = self._handle(path, flags)
        if kind == "write":
            os.pwrite(handle, fields["data"], fields["offset"])
        elif kind == "truncate":
            os.ftruncate(handle, fields["length"])
        elif kind == "allocate":
            os.posix_fallocate(handle, fields["offset"], fields["length"])
        else:
            mode = PUNCH_HOLE | KEEP_SIZE if fields.get("keep_size") else ZERO_RANGE
            LIBC.fallocate.argtypes = [ctypes.c_int] * 2 + [ctypes.c_longlong] * 2
            assert LIBC.fallocate(handle, mode, fields["offset"], fields["length"]) == 0
        self._release(path, handle, flags)

    def _really_create(self, kind, path, fields):
        self._release(path, os.open(self.root / path, os.O_RDWR | os.O_CREAT | os.O_EXCL))

    def _really_mkdir(self, kind, path, fields):
        (self.root / path).mkdir()

    def _really_rmdir(self, kind, path, fields):
        (self.root / path).rmdir()

    def _really_symlink(self, kind, path, fields):
        (self.root / path).symlink_to(fields["data"].decode())

    def _really_unlink(self, kind, path, fields):
        (self.root / path).unlink()

    def _really_rename(self, kind, path, fields):
        os.rename(self.root / path, self.root / self._there(fields))

    def _really_link(self, kind, path, fields):
        os.link(self.root / path, self.root / self._there(fields))

    def _there(self, fields) -> str:
        home = next(p for p, number in self.numbers.items() if number == fields["parent2"])
        return f"{home}/{fields['name2']}".lstrip("/")

    def _really_fsync(self, kind, path, fields):
        handle = os.open(self.root / path, os.O_RDONLY)
        getattr(os, kind)(handle)
        self._close(path, handle)

    _really_fdatasync = _really_fsync

    def _really_sync(self, kind, path, fields):
        handle = os.open(self.mount, os.O_RDONLY)
        call("syncfs", handle)
        os.close(handle)

    def hidden(self, step) -> None:
        if step[0] == "commit":
            with open(self.mount / "stranger", "ab") as file:
                file.write(b"x")
                file.flush()
                os.fsync(file.fileno())
        elif step[1] in self.numbers:
            handle = os.open(self.root / step[1], os.O_RDONLY)
            call("sync_file_range", handle, 0, 0, WRITE_AND_WAIT)
            os.close(handle)
