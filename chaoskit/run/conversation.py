"""A conversation: the supervisor's side of one life's channel.

Answers the life's calls to the World, records its events, and detects its end, death or timeout.
"""

from __future__ import annotations

import os
import select
import socket
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from chaoskit.faults.kind import CallFault
from chaoskit.model import Ack, Event, Fail, Invoke, Ok, Probe
from chaoskit.run.world import Call, Calls, Lost, Refused, World
from chaoskit.run.zygote import Process


class _Completed(msgspec.Struct, tag="completed"):
    reusable: bool


class _Failed(msgspec.Struct, tag="failed"):
    detail: str


_MESSAGE = msgspec.json.Decoder(Ack | Probe | Invoke | Ok | Fail | Call | _Completed | _Failed)


MOST_PATIENCE = 10  # times the deadline, for a life that waits for a core


class Patience:
    """How long a life may still take. Time that it waits for a core does not count: a verdict must not depend
    on what else the machine is doing."""

    def __init__(self, pid: int, seconds: float, until: float | None) -> None:
        self._pids = (pid, os.getpid())  # a life waits for its supervisor's answers, too
        self._waited = self._waits()
        self._begun = time.monotonic()
        self._seconds = seconds
        self._until = until  # a limit on the monotonic clock, which nothing extends
        self._allowed = seconds

    def left(self) -> float:
        """Seconds; none if the life is late."""
        left = self._left()
        if left <= 0:
            starved = sum(now - before for now, before in zip(self._waits(), self._waited, strict=True))
            self._allowed = self._seconds + min(starved, MOST_PATIENCE * self._seconds)
            left = self._left()
        return max(0.0, left)

    def _left(self) -> float:
        end = self._begun + self._allowed
        return (end if self._until is None else min(end, self._until)) - time.monotonic()

    def _waits(self) -> list[float]:
        return [seconds_in_queue(pid) for pid in self._pids]


def seconds_in_queue(pid: int) -> float:
    """For how long the threads of a process were ready to run and had no core; 0 where the kernel does not
    report it."""
    waited = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError, IndexError, ValueError):
            waited += int(task.read_text().split()[1])
    return waited / 1e9


class Conversation:
    def __init__(
        self, channel: socket.socket, world: World, events: list[Event], fault: CallFault | None = None
    ) -> None:
        self.last = ""  # "completed" or "failed", once the life has reported it
        self.detail = ""
        self.reusable = False  # whether its process may run another life
        self._channel = channel
        self.calls = Calls(fault)
        self._world = world
        self._events = events
        self._partial = b""

    def listen(
        self, process: Process, seconds: float, *, until: float | None = None, until_death: bool
    ) -> bool:
        """Listens until the life is over; with `until_death`, until its process has ended.

        Returns False if the life took longer than this, and was killed.
        """
        patience = Patience(process.pid, seconds, until)
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(process.pidfd, select.POLLIN)
        timely = True
        while True:
            left = patience.left() if timely else None
            if left == 0:
                timely, left = False, None
                process.kill()
            ready = {fd for fd, _ in poll.poll(None if left is None else left * 1000)}
            if self._channel.fileno() in ready:
                if not self._read():
                    poll.unregister(self._channel)
                if self.last == "completed" and not until_death:
                    return timely
                if self.last:  # the life is over: end of file tells the process not to wait for another
                    self._channel.shutdown(socket.SHUT_WR)
            elif process.pidfd in ready:
                return timely  # only once the socket is drained: reports sent before a death count

    def _read(self) -> bool:
        try:
            data = self._channel.recv(1 << 16)
        except ConnectionResetError:  # it was killed before it had read everything that was sent to it
            data = b""
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._hear(_MESSAGE.decode(line))
        return bool(data)

    def _hear(self, message: Event | Call | _Completed | _Failed) -> None:
        if isinstance(message, Call):
            self._reply(message)
        elif isinstance(message, _Failed):
            self.last, self.detail = "failed", message.detail
        elif isinstance(message, _Completed):
            self.last, self.reusable = "completed", message.reusable
        else:
            self._events.append(message)

    def _reply(self, call: Call) -> None:
        known = len(self._world.ledger)
        try:
            reply = {"result": self.calls.carry_out(self._world, call)}
        except Refused as refusal:
            reply = {"error": str(refusal)}
        except Lost as loss:
            reply = {"lost": str(loss)}
        self._events += self._world.ledger[known:]
        try:
            self._channel.sendall(msgspec.json.encode(reply) + b"\n")
        except OSError:  # the caller is dead; its effect on the World remains
            return
