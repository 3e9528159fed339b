"""Run one life to its end: right after a fork, or as a fresh interpreter (`python -m` this module)."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import socket
import sys
import traceback
from pathlib import Path

from chaoskit.inside.life import Channel, Life
from chaoskit.inside.loading import load
from chaoskit.inside.points import PointWatcher


def run_life(spec_fd: int, channel_fd: int, trace_fd: int) -> int:
    """Live, tell the supervisor how it went, and return the exit code."""
    channel = Channel(socket.socket(fileno=channel_fd))
    try:
        with os.fdopen(spec_fd, "rb") as file:
            spec = json.load(file)
        points = PointWatcher(trace_fd, spec["kill"])
        entry = load(spec["entry"])
        if spec["patch"]:
            load(spec["patch"])()
        os.chdir(spec["directory"])  # only now: a reference to a file may be relative
        points.install()
        outcome = entry(Life(spec, channel, points, Path(spec["directory"])))
        if inspect.iscoroutine(outcome):
            asyncio.run(outcome)
    except BaseException:  # noqa: BLE001 - whatever ends a life is reported, not swallowed
        channel.tell({"t": "failed", "detail": traceback.format_exc()})
        return 1
    channel.tell({"t": "completed"})
    return 0


def leave(code: int) -> None:
    """Exit without teardown: a thread that a target left behind must not keep the process alive."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(run_life(*map(int, sys.argv[1:4])))
