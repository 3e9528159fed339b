"""A conversation: the supervisor's side of one life's channel.

Answers the life's calls to the World, records its events, and detects its end, death or timeout.
"""

from __future__ import annotations

import select
import socket
import time

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

    def listen(self, process: Process, deadline: float, *, until_death: bool) -> bool:
        """Listens until the life is over; with `until_death`, until its process has ended.

        Returns False if the life missed its deadline and was killed.
        """
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(process.pidfd, select.POLLIN)
        timely = True
        while True:
            if timely and time.monotonic() >= deadline:
                timely = False
                process.kill()
            patience = max(0.0, deadline - time.monotonic()) * 1000 if timely else None
            ready = {fd for fd, _ in poll.poll(patience)}
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
