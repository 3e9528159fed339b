"""The supervisor's handle on a zygote: start it, request lives, end it.

`chaoskit.inside.zygote` is the zygote itself, and explains why forking it is safe.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from chaoskit.disk import interposer
from chaoskit.inside.zygote import KILLED
from chaoskit.model import Target
from chaoskit.run import environment
from chaoskit.run.workspace import SESSION_VARIABLE

IMPORT_DEADLINE = 60.0  # seconds; large libraries take twenty on a busy machine
# Threads at import would make forking unsafe: libraries that use these variables start none.
SINGLE_THREADED = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL", "NUMEXPR", "BLIS")}


# What programs need to run at all. Everything else may be a secret of the user's.
NEEDED = ("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH")


def clean_environment(variables: Mapping[str, str], home: Path, passed: Sequence[str]) -> dict[str, str]:
    """What a target may see: what it needs, a home of its own, and what the user passes on."""
    kept = {n: v for n, v in variables.items() if n in NEEDED or n in passed or n.startswith("LC_")}
    return {"HOME": str(home), "TMPDIR": str(home), **kept}


def _environment(
    session: str, preload: bool, python: str, hash_seed: int, clean: dict[str, str]
) -> dict[str, str]:
    # The target imports modules from the same path as the harness. In a separate environment it gets
    # only the modules that have to run inside it.
    ours = [path for path in sys.path if path]
    paths = os.pathsep.join(ours if python == sys.executable else [environment.only_inside()])
    # Runs with the same seed must be the same: the order of sets must not differ between them.
    fixed = {"PYTHONHASHSEED": str(hash_seed), **SINGLE_THREADED}
    own = {**clean, "PYTHONPATH": paths, **fixed, SESSION_VARIABLE: session}
    return interposer.preload(own) if preload else own


def _ended(code: int) -> str:
    number = -code if code < 0 else code - KILLED
    return f"was killed (signal {number})" if number > 0 else f"ended by itself, with exit code {code}"


class CannotStart(Exception):
    """The target's process cannot be started."""


class Process:
    """One life's process. Its pid cannot be reused before `reap`, so killing it by pid is safe."""

    def __init__(self, zygote: Zygote, pid: int) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)  # readable when the process has ended
        self._zygote = zygote

    def kill(self) -> None:
        """SIGKILL to the life's whole process group."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:  # not yet in its own group: it has only just been forked
            os.kill(self.pid, signal.SIGKILL)

    def reap(self) -> int:
        """Kill what is left of the group, and return the wait status."""
        self.kill()
        os.close(self.pidfd)
        return int(self._zygote.request({"do": "reap", "pid": self.pid})["status"])


class Zygote:
    """Started at once, usable when `ready`: several can import the target at the same time."""

    def __init__(
        self,
        target: Target,
        *,
        session: str,
        cold: bool = False,
        watch_disk: bool = False,
        hash_seed: int = 0,
        home: Path,
        pass_env: Sequence[str] = (),
        deadline: float = IMPORT_DEADLINE,
    ) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._printed = tempfile.TemporaryFile(dir=home)  # noqa: SIM115 - closed with the zygote
        preload = () if cold else (target.entry, *target.preload)
        mode = "cold" if cold else "warm"
        python = environment.interpreter(target.requires)
        with theirs:
            # The interpreter itself rather than a launcher script: preloaded libraries and signals
            # must reach the target.
            self._process = subprocess.Popen(
                [
                    python,
                    "-m",
                    "chaoskit.inside.zygote",
                    str(theirs.fileno()),
                    str(os.getpid()),
                    mode,
                    *preload,
                ],
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # only the harness gets Ctrl-C; it then ends the zygote
                stdin=subprocess.DEVNULL,
                # What a target prints when it is imported must not reach the terminal.
                stdout=subprocess.DEVNULL,
                stderr=self._printed,
                env=_environment(
                    session,
                    watch_disk or target.seeded_clock,
                    python,
                    hash_seed,
                    clean_environment(os.environ, home, pass_env),
                ),
            )
        self._deadline = deadline
        self._is_ready = False

    def ready(self) -> None:
        """Waits until the target is imported, which may hang; raises CannotStart if it cannot be."""
        self._control.settimeout(self._deadline)
        try:
            self._check(self._answer())
        except TimeoutError:
            self.close()
            raise CannotStart(
                f"it was not imported after {self._deadline:g} s; if it needs longer, raise --deadline"
            ) from None
        self._control.settimeout(None)
        self._is_ready = True

    def start(self, fds: list[int]) -> Process:
        """Forks a process for a life; `fds` are its channel, stdout and stderr."""
        answer = self.request({"do": "fork"}, fds)
        return Process(self, answer["pid"])

    def request(self, message: dict[str, Any], fds: list[int] | None = None) -> dict[str, Any]:
        with suppress(ConnectionError):  # it is gone; the answer, end of file, says so
            socket.send_fds(self._control, [json.dumps(message).encode()], fds or [])
        return self._check(self._answer())

    def close(self) -> None:
        self._forget()
        if not self._is_ready:
            self._process.kill()
        self._process.wait()

    def _forget(self) -> None:
        self._control.close()
        self._printed.close()

    def _last_words(self) -> str:
        """The last line that the target printed to standard error when it was imported."""
        self._printed.seek(max(0, self._printed.seek(0, os.SEEK_END) - 1000))
        lines = self._printed.read().decode(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return f": {said[-1]}" if said else ""

    def _answer(self) -> dict[str, Any]:
        try:
            data = self._control.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            code = self._process.wait()
            said = self._last_words()
            self._forget()
            raise CannotStart(f"the process that imports it {_ended(code)}{said}")
        answer: dict[str, Any] = json.loads(data)
        return answer

    def _check(self, answer: dict[str, Any]) -> dict[str, Any]:
        if "error" in answer:
            self.close()
            raise CannotStart(answer["error"])
        return answer
