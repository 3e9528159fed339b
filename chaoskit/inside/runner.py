"""Runs lives: right after a fork, or in a fresh interpreter (`python -m` this module).

Usually one. A process that checks rebuilt crash states gets several specs in sequence, which saves a
fork for each. It ends after the first life that does not complete, or that leaves something behind: a
thread, an open file, a library that could not be opened and so was not closed. Leftovers would affect the
next life: SQLite does not roll back a hot journal while this process holds a lock on the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import socket
import sys
import threading
import traceback
from collections.abc import Iterator

from chaoskit.inside import interposer
from chaoskit.inside.life import Channel, Life
from chaoskit.inside.loading import load
from chaoskit.inside.points import PointWatcher
from chaoskit.inside.protocol import LifeSpec

PATIENCE = 0.05  # seconds, for a thread that is about to end


def run_lives(channel_fd: int) -> int:
    """Runs lives, reports how each ended, and returns the exit code."""
    channel = Channel(socket.socket(fileno=channel_fd))
    points = PointWatcher()
    try:
        while spec := channel.next_spec():
            channel.buffered = spec.buffered
            life = _run_life(spec, channel, points)
            reusable = spec.reuses_process and not life.tainted and not leaves_something(life)
            channel.tell({"type": "completed", "reusable": reusable})
            channel.flush()
    except BaseException:  # noqa: BLE001 - whatever ends a life is reported, not swallowed
        channel.tell({"type": "failed", "detail": traceback.format_exc()})
        channel.flush()
        return 1
    return 0


def _run_life(spec: LifeSpec, channel: Channel, points: PointWatcher) -> Life:
    entry = load(spec.entry)
    if spec.patch:
        load(spec.patch)()
    os.chdir(spec.directory)  # only after loading: a reference to a file may be relative
    points.begin(spec.trace, spec.kill)
    control = spec.control
    if control:
        interposer.start(spec.directory, control)
    position = interposer.position if control else lambda: points.position
    life = Life(spec, channel, position)
    if spec.clock:
        interposer.set_clock(spec.clock)
    try:
        outcome = entry(life)
        if inspect.iscoroutine(outcome):
            asyncio.run(outcome)
    finally:
        if spec.clock:
            interposer.set_clock(0)
    if control:
        interposer.stop()
    points.end()
    return life


def leaves_something(life: Life) -> bool:
    """Whether a thread is still running, or a file of this life is still open."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join(PATIENCE)  # a pool's threads may be about to end
    if len(os.listdir("/proc/self/task")) > 1:  # runs once per life, so it must be cheap
        return True
    return any(place.startswith(str(life.directory)) for place in open_files())


def open_files() -> Iterator[str]:
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor that listed the directory is closed by now
            yield os.readlink(f"/proc/self/fd/{fd}")


def leave(code: int) -> None:
    """Exits without teardown: a thread that a target left behind must not keep the process alive."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(run_lives(int(sys.argv[1])))
