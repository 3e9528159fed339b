"""The guardian: a script that cleans up after the harness, even if the harness was killed.

It starts with every campaign, so it imports only what it needs. See `workspace`.
"""

import os
import shutil
import signal
import subprocess
import sys
import time

PATIENCE = 30  # seconds


def main() -> None:
    directory, session = sys.argv[1:]
    sys.stdin.buffer.read()  # returns when the harness has closed its end, or is dead
    marker = f"CHAOSKIT_SESSION={session}".encode()
    deadline = time.monotonic() + PATIENCE
    # A worker of the dead harness may still write while it is being killed, so repeat.
    while kill_all(marker) or os.path.exists(directory):
        remove(directory)
        if time.monotonic() > deadline:
            sys.exit(f"chaoskit: could not remove {directory}")


def remove(directory: str) -> None:
    try:
        shutil.rmtree(directory, ignore_errors=True)
    except RecursionError:  # deeper than Python can go
        subprocess.run(["rm", "-rf", "--", directory], check=False)  # noqa: S607


def kill_all(marker: bytes) -> bool:
    """Kills every process that carries the marker; returns whether there was one."""
    ours = [pid for pid in running() if belongs(pid, marker)]
    for pid in ours:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return bool(ours)


def running() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def belongs(pid: int, marker: bytes) -> bool:
    """Whether a process carries the marker. A zombie has no environment and need not be killed."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return marker in file.read().split(b"\0")
    except OSError:
        return False


if __name__ == "__main__":
    main()
