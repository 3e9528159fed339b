"""The output of strace about a program, in the vocabulary of a trace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from chaoskit.disk.ops import Trace
from tests.disk.replayer import Replayer, joined
from tests.disk.watching import command_of

STRACE = shutil.which("strace") or ""
needs_strace = pytest.mark.skipif(not STRACE, reason="no strace")


Event = tuple[str, str, str, int | None, int]  # kind, path, other path, offset if known, length

STRACED = (
    "open,openat,creat,write,pwrite64,writev,pwritev,pwritev2,truncate,ftruncate,fallocate,fsync,"
    "fdatasync,sync,syncfs,rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,"
    "rmdir,mkdir,mkdirat,sendfile,copy_file_range,splice"
)
ARGUMENT = re.compile(
    r"""(?:AT_FDCWD|-?\d+)<[^>]*>(?:\(deleted\))?|"(?:[^"\\]|\\.)*"(?:\.\.\.)?|\[[^\]]*\]|[^,\s]+"""
)


class Strace:
    """Run a program under strace alone, and return its operations in the interposer's vocabulary."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.sizes = {str(path): path.stat().st_size for path in directory.rglob("*") if path.is_file()}
        self.events: list[Event] = []

    def run(self, program: str | Sequence[str], log: Path) -> list[Event]:
        subprocess.run(
            [STRACE, "-f", "-y", "-s0", "-o", str(log), f"-etrace={STRACED}", *command_of(program)],
            cwd=self.directory,
            check=True,
            capture_output=True,
        )
        unfinished: dict[str, str] = {}
        for line in log.read_text().splitlines():
            pid, text = line.split(maxsplit=1)
            if text.endswith("<unfinished ...>"):
                unfinished[pid] = text.removesuffix("<unfinished ...>")
                continue
            if text.startswith("<..."):
                text = unfinished.pop(pid) + text.split("resumed>", 1)[1]
            matched = re.match(r"(\w+)\((.*)\)\s+= (-?\d+)", text)
            if matched and int(matched[3]) >= 0:
                self.note(matched[1], ARGUMENT.findall(matched[2]), int(matched[3]))
        return self.events

    def path(self, text: str, directory: str = "") -> str:
        return os.path.normpath(Path(directory or self.directory, text.strip('"')))

    def of_fd(self, argument: str) -> str:
        return argument[argument.index("<") + 1 : argument.rindex(">")]

    def add(self, kind: str, path: str, other: str = "", offset: int | None = None, length: int = 0) -> None:
        if (path + "/").startswith(self.directory + "/"):
            short = [p and os.path.relpath(p, self.directory).strip(".") for p in (path, other)]
            self.events.append((kind, short[0], short[1], offset, length))

    def note(self, call: str, a: list[str], result: int) -> None:
        if call in ("open", "openat", "creat"):
            at = call == "openat"
            path = self.path(a[at], self.of_fd(a[0]) if at else "")
            self.opened(path, "O_CREAT|O_TRUNC" if call == "creat" else a[at + 1])
        elif call in ("write", "writev", "pwrite64", "pwritev", "pwritev2", "sendfile"):
            positioned = call.startswith("pwrite")
            self.wrote(self.of_fd(a[0]), int(a[3]) if positioned else None, result)
        elif call in ("copy_file_range", "splice"):
            self.wrote(self.of_fd(a[2]), None, result)
        elif call in ("fsync", "fdatasync"):
            self.add(call, self.of_fd(a[0]))
        elif call == "ftruncate":
            self.add("truncate", self.of_fd(a[0]), length=int(a[1]))
            self.sizes[self.of_fd(a[0])] = int(a[1])
        else:
            self.named(call, a)

    def opened(self, path: str, flags: str) -> None:
        if "O_CREAT" in flags and path not in self.sizes:
            self.add("create", path)
            self.sizes[path] = 0
        elif "O_TRUNC" in flags and self.sizes.get(path):
            self.add("truncate", path)
            self.sizes[path] = 0

    def wrote(self, path: str, offset: int | None, length: int) -> None:
        if length:
            self.add("write", path, "", offset, length)
            self.sizes[path] = max(1, self.sizes.get(path, 0))

    def named(self, call: str, a: list[str]) -> None:
        name = call.removesuffix("2").removesuffix("at")
        if call.endswith(("at", "at2")):
            kind_of = {"unlink": "rmdir"} if "AT_REMOVEDIR" in a else {}
            first = [self.path(a[1], self.of_fd(a[0]))]
            if name in ("rename", "link"):
                first.append(self.path(a[3], self.of_fd(a[2])))
            self.renamed(kind_of.get(name, name), first)
        else:
            paths = a[1:] if name == "symlink" else a[:2] if name in ("rename", "link") else a[:1]
            self.renamed(name, [self.path(path) for path in paths])

    def renamed(self, kind: str, paths: list[str]) -> None:
        self.add(kind, paths[0], paths[1] if len(paths) > 1 else "")
        if kind in ("rename", "unlink"):
            size = self.sizes.pop(paths[0], 0)
            if kind == "rename":
                self.sizes[paths[1]] = size
        elif kind == "link":
            self.sizes[paths[1]] = self.sizes[paths[0]]


def events_of(trace: Trace) -> list[Event]:
    replayer = Replayer(trace)
    events: list[Event] = []
    for op in trace.ops:
        path = replayer.last_path.get(op.file, "")
        if op.parent >= 0:
            path = joined(replayer.last_path[op.parent], op.name)
        other = joined(replayer.last_path[op.parent2], op.name2) if op.parent2 >= 0 else ""
        length = op.length if op.kind in ("write", "truncate") else 0
        events.append((op.kind, path, other, op.offset, length))
        replayer.apply(op)
    return events


def comparable(events: list[Event], offsets_of: list[Event]) -> list[Event]:
    """Replace random names of temporary files by their order; an offset that strace did not print is
    not compared."""
    seen: dict[str, str] = {}

    def steady(path: str) -> str:
        return re.sub(r"tmp\w{8}", lambda m: seen.setdefault(m[0], f"tmp{len(seen)}"), path)

    offsets = [event[3] for event in offsets_of] + [None] * len(events)
    return [
        (kind, steady(path), steady(other), None if known is None else offset, length)
        for (kind, path, other, offset, length), known in zip(events, offsets, strict=False)
    ]
