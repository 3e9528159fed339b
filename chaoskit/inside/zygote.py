"""The zygote: a warm interpreter that has imported the target and forks its lives.

Method. Importing a target takes 60 to 2,000 ms, a fork a few. But a fork copies one thread and
shares every file descriptor: all lives would share a connection opened before it, and a lock held by
another thread would never be released. So before each fork the zygote checks that it has one thread
and only its own descriptors, and refuses otherwise. In mode `cold` it imports nothing, and each life
becomes a fresh interpreter.

It adopts the processes that a life leaves behind (PR_SET_CHILD_SUBREAPER) and kills them when the life
is reaped. When the supervisor is gone (end of file on the control socket) it kills all lives and exits.
Every life dies with the zygote (PR_SET_PDEATHSIG).

Control protocol, one JSON object per packet; a request to fork has file descriptors attached:

    {"do": "fork"} + [channel, stdout, stderr]  ->  {"pid": n} | {"error": reason}
    {"do": "reap", "pid": n}                    ->  {"status": n}
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chaoskit.inside import runner
from chaoskit.inside.loading import load

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PACKET = 1 << 16
KILLED = 128  # plus the signal: an exit code, as shells have it
THREADED_LIBRARIES = ("openblas", "libgomp", "libiomp", "libmkl", "libzmq", "libgrpc", "polars", "libarrow")
THREAD_VARIABLES = {f"{name}_NUM_THREADS" for name in ("OPENBLAS", "OMP", "MKL", "NUMEXPR", "BLIS")}
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when the parent ends; exits now if it has ended already."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class Zygote:
    def __init__(self, control: socket.socket, *, cold: bool) -> None:
        self._control = control
        self._cold = cold
        self._lives: set[int] = set()  # processes that were forked and not yet reaped

    def serve(self) -> None:
        """Serves until the supervisor is gone: at end of file, or in the middle of a request."""
        try:
            while request := self._receive():
                self._control.send(json.dumps(self._answer(*request)).encode())
        except ConnectionError:
            return
        finally:
            kill_children(but=set())

    def _answer(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        try:
            return self._reap(message["pid"]) if message["do"] == "reap" else self._fork(fds)
        finally:
            for fd in fds:
                os.close(fd)

    def _receive(self) -> tuple[dict[str, Any], list[int]] | None:
        data, fds, _, _ = socket.recv_fds(self._control, PACKET, 3)
        return (json.loads(data), fds) if data else None

    def _reap(self, pid: int) -> dict[str, Any]:
        status = os.waitpid(pid, 0)[1]
        self._lives.discard(pid)
        kill_children(but=self._lives)
        return {"status": status}

    def _fork(self, fds: list[int]) -> dict[str, Any]:
        reason = why_not_fork(known={self._control.fileno(), *fds})
        if reason:
            return {"error": reason}
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._live(fds, parent)
        self._lives.add(pid)
        return {"pid": pid}

    def _live(self, fds: list[int], parent: int) -> None:
        """In the child; never returns."""
        try:
            os.setsid()  # its own session and process group, which are killed as a whole
            die_with_parent(parent)
            self._control.close()
            channel, out, err = fds
            for stream, number in ((out, 1), (err, 2)):
                os.dup2(stream, number)
                os.close(stream)
            if self._cold:
                become_fresh_interpreter(channel)
            runner.leave(runner.run_lives(channel))
        except BaseException:  # noqa: BLE001 - nothing may return into the zygote's loop
            traceback.print_exc()
            os._exit(1)


def become_fresh_interpreter(channel: int) -> None:
    os.set_inheritable(channel, True)
    module = "chaoskit.inside.runner"
    os.execv(sys.executable, [sys.executable, "-m", module, str(channel)])  # noqa: S606


def why_not_fork(known: set[int]) -> str:
    """The reason why a fork would be unsafe, or an empty string."""
    threads = len(os.listdir("/proc/self/task"))  # runs once per fork, so it must be cheap
    if threads != 1:
        return (
            f"expected one thread before a fork, found {threads} ({', '.join(_extra_threads())}): start"
            " threads in the entry or in open(), not at import; a library that starts them by itself usually"
            " has a variable for their number"
            f" ({', '.join(sorted(THREAD_VARIABLES & os.environ.keys()))} are 1 already)"
        )
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd not in known:
            with contextlib.suppress(OSError):  # the descriptor that listed the directory is closed by now
                place = str(Path(f"/proc/self/fd/{fd}").readlink())
                if not place.startswith(("/dev/", "/proc/")):
                    return f"expected no open file before a fork, found {place}: open it in the entry"
    return ""


def _extra_threads() -> Iterator[str]:
    """The names of all threads but the first, and the libraries that are known to start some at import."""
    known = {str(each.native_id): each.name for each in threading.enumerate()}
    for number in sorted(os.listdir("/proc/self/task"), key=int):
        if int(number) != os.getpid():
            with contextlib.suppress(OSError):  # it has just ended
                name = Path(f"/proc/self/task/{number}/comm").read_text().strip()
                yield known.get(number, name)
    mapped = Path("/proc/self/maps").read_text()
    found = [name for name in THREADED_LIBRARIES if name in mapped]
    if found:
        yield f"loaded: {', '.join(found)}"


def kill_children(but: set[int]) -> None:
    """Kills and reaps all children except `but`."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := set(map(int, children.read_text().split())) - but:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def step_aside(parent: int) -> None:
    """Fork, and continue in the child; the parent only waits for it.

    So the parent of the process that imports the target is this one, not the harness: a target that kills
    its parent ends itself.
    """
    die_with_parent(parent)
    launcher = os.getpid()
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(code if code >= 0 else KILLED - code)
    die_with_parent(launcher)


def main() -> None:
    control_fd, parent, mode, *preload = sys.argv[1:]
    step_aside(int(parent))
    mine = os.getpid()
    # The target must not inherit the supervisor's signal handling.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    control = socket.socket(fileno=int(control_fd))
    try:
        for name in preload:
            if ":" in name:
                load(name)
            else:
                importlib.import_module(name)
    except BaseException:  # noqa: BLE001 - the supervisor shows it to the user
        control.send(json.dumps({"error": traceback.format_exc()}).encode()[:PACKET])
        return
    if os.getpid() != mine:  # a child that the target forked while it was imported
        os._exit(0)
    # Imported objects are never freed. Freezing them keeps collections in a life from walking them,
    # which would copy their pages.
    gc.collect()
    gc.freeze()
    control.send(json.dumps({"ready": os.getpid()}).encode())
    Zygote(control, cold=mode == "cold").serve()


if __name__ == "__main__":
    main()
