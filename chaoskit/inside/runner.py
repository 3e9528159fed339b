"""Run lives: right after a fork, or as a fresh interpreter (`python -m` this module).

Almost always one. A process that checks rebuilt crash states gets one spec after the other, which
saves a fork for each; it ends after the first life that does not complete.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import sys
import traceback
from typing import Any

from chaoskit.inside import interposer
from chaoskit.inside.life import Channel, Life
from chaoskit.inside.loading import load
from chaoskit.inside.points import PointWatcher


def run_lives(channel_fd: int) -> int:
    """Live, tell the supervisor how it went, and return the exit code."""
    channel = Channel(socket.socket(fileno=channel_fd))
    points = PointWatcher()
    try:
        while spec := channel.next_spec():
            channel.patient = spec["patient"]
            _run_life(spec, channel, points)
            channel.tell({"type": "completed"})
            channel.flush()
    except BaseException:  # noqa: BLE001 - whatever ends a life is reported, not swallowed
        channel.tell({"type": "failed", "detail": traceback.format_exc()})
        channel.flush()
        return 1
    return 0


def _run_life(spec: dict[str, Any], channel: Channel, points: PointWatcher) -> None:
    entry = load(spec["entry"])
    if spec["patch"]:
        load(spec["patch"])()
    os.chdir(spec["directory"])  # only now: a reference to a file may be relative
    points.begin(spec["trace"], spec["kill"])
    control = spec["control"]
    if control:
        interposer.start(spec["directory"], control)
    position = interposer.position if control else lambda: points.position
    outcome = entry(Life(spec, channel, position))
    if inspect.iscoroutine(outcome):
        asyncio.run(outcome)
    if control:
        interposer.stop()
    points.end()


def leave(code: int) -> None:
    """Exit without teardown: a thread that a target left behind must not keep the process alive."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(run_lives(int(sys.argv[1])))
