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
from typing import Any

from chaoskit.disk import interposer
from chaoskit.model import Target
from chaoskit.run import environment
from chaoskit.run.workspace import SESSION_VARIABLE

# Threads at import would make forking unsafe: libraries that use these variables start none.
SINGLE_THREADED = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL", "NUMEXPR", "BLIS")}


def _environment(session: str, preload: bool, python: str, hash_seed: int) -> dict[str, str]:
    # The target imports modules from the same path as the harness. In a separate environment it gets
    # only the modules that have to run inside it.
    ours = [path for path in sys.path if path]
    paths = os.pathsep.join(ours if python == sys.executable else [environment.only_inside()])
    # Runs with the same seed must be the same: the order of sets must not differ between them.
    fixed = {"PYTHONHASHSEED": str(hash_seed), **SINGLE_THREADED}
    own = {"PYTHONPATH": paths, **fixed, SESSION_VARIABLE: session}
    return interposer.preload({**os.environ, **own}) if preload else {**os.environ, **own}


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
    def __init__(
        self,
        target: Target,
        *,
        session: str,
        cold: bool = False,
        watch_disk: bool = False,
        hash_seed: int = 0,
    ) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
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
                env=_environment(session, watch_disk or target.seeded_clock, python, hash_seed),
            )
        self._check(self._answer())

    def start(self, fds: list[int]) -> Process:
        """Forks a process for a life; `fds` are its channel, stdout and stderr."""
        answer = self.request({"do": "fork"}, fds)
        return Process(self, answer["pid"])

    def request(self, message: dict[str, Any], fds: list[int] | None = None) -> dict[str, Any]:
        socket.send_fds(self._control, [json.dumps(message).encode()], fds or [])
        return self._check(self._answer())

    def close(self) -> None:
        self._control.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        data = self._control.recv(1 << 16)
        if not data:
            code = self._process.wait()
            raise CannotStart(f"the zygote ended unexpectedly with exit code {code}")
        answer: dict[str, Any] = json.loads(data)
        return answer

    def _check(self, answer: dict[str, Any]) -> dict[str, Any]:
        if "error" in answer:
            self.close()
            raise CannotStart(answer["error"])
        return answer
