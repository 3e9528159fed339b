"""Programs that run under the interposer: watched from their start, or forked from a warm interpreter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from chaoskit.disk import interposer
from chaoskit.disk.interposer import Action, Control, Mode
from chaoskit.disk.ops import Trace
from chaoskit.disk.trace import Snapshot, decode, snapshot

needs_interposer = pytest.mark.skipif(interposer.available() is not None, reason=str(interposer.available()))
REPOSITORY = Path(interposer.__file__).parents[2]
COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler")


class Watched:
    """A directory, a control, and a way to run programs that are watched from the start."""

    def __init__(self, directory: Path, control: Control) -> None:
        self.directory = directory
        self.control = control
        self.start: Snapshot = snapshot(directory)

    def arm(
        self,
        mode: Mode = "record",
        action: Action | None = None,
        *,
        seccomp: bool = True,
        check: bool = False,
    ) -> None:
        self.start = snapshot(self.directory)
        self.control.arm(self.directory, mode, action, seccomp=seccomp, check=check)

    def run(
        self,
        program: str | Sequence[str],
        mode: Mode = "record",
        action: Action | None = None,
        *,
        seccomp: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        self.arm(mode, action, seccomp=seccomp)
        return self.go(program)

    def go(self, program: str | Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Once it is armed."""
        return subprocess.run(
            command_of(program),
            cwd=self.directory,
            env=interposer.environment(self.control),
            capture_output=True,
            text=True,
            check=False,
            process_group=0,
        )

    @property
    def trace(self) -> Trace:
        return decode(self.control.raw_trace(), self.start)

    def counter(self, name: str) -> int:
        """A counter that the interposer keeps in the control page and the product does not read."""
        return self.control._get(name)

    def record(self, program: str | Sequence[str], *, seccomp: bool = True) -> Trace:
        done = self.run(program, seccomp=seccomp)
        assert done.returncode == 0, done.stderr
        assert self.control.position == len(self.trace.ops)
        return self.trace


def command_of(program: str | Sequence[str]) -> list[str]:
    if isinstance(program, str):
        return [sys.executable, "-c", textwrap.dedent(program)]
    return list(program)


Tree = dict[str, bytes | None]


def tree(directory: Path) -> Tree:
    """Path to content; None for a directory. SQLite's -shm is left out: it is mapped."""
    found: Tree = {}
    for path in sorted(directory.rglob("*")):
        if path.name.endswith("-shm"):
            continue
        name = str(path.relative_to(directory))
        if path.is_symlink():
            found[name] = b"-> " + os.fsencode(path.readlink())
        else:
            found[name] = None if path.is_dir() else path.read_bytes()
    return found


def kinds(trace: Trace) -> list[str]:
    return [op.kind for op in trace.ops]


ZYGOTE = """
    import json, os, sys, traceback
    from chaoskit.inside import interposer as inside
    import sqlite3
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                os.chdir(job["directory"])
                inside.start(job["directory"], job["control"])
                exec(job["code"], {"inside": inside})
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        print(os.waitpid(pid, 0)[1], flush=True)
"""


class Zygote:
    """A warm interpreter with the sleeping interposer; one fork for each run."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            command_of(ZYGOTE),
            env=interposer.preload({**os.environ, "PYTHONPATH": str(REPOSITORY)}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, watched: Watched, code: str) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        job = {
            "directory": str(watched.directory),
            "control": str(watched.control.path),
            "code": textwrap.dedent(code),
        }
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


def empty(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir()
