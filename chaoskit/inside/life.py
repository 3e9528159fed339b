"""Life: the argument of a target's entry function. One incarnation of the process, seen from inside.

Protocol with the supervisor, one JSON object per line on an inherited stream socket:

    <- the spec (`protocol.LifeSpec`): what to run, where, with which fault
    -> {"type": "ack" | "probe" | "invoke" | "ok" | "fail", "life", "at", ...}    an event, as recorded
    -> {"type": "call", "life", "at", "service", "action", "args", "key"}         answered by one line
    <- {"result": ...} | {"error": "..."} | {"lost": "..."}
    -> {"type": "completed", "reusable": bool} | {"type": "failed", "detail": traceback}
    <- the next spec, or end of file

Data that was sent stays in the socket when the sender is killed, so no report is lost. A life without a
planned fault may buffer its reports and send them all at once.
"""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chaoskit.inside.protocol import LifeSpec, decode


class WorldRefused(Exception):
    """The World answered with an error: the effect was not done."""


class ReplyLost(ConnectionError):
    """The World's reply was lost: the effect may have been done."""


class Channel:
    """Our end of the socket to the supervisor."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lines = sock.makefile("rb")
        self._pending: list[bytes] = []
        self.buffered = False  # whether reports may be delayed until an answer is needed or the life ends

    def next_spec(self) -> LifeSpec | None:
        """The next spec, or None if the supervisor has no more for this process."""
        line = self._lines.readline()
        return decode(line) if line else None

    def tell(self, message: dict[str, Any]) -> None:
        self._pending.append(line_of(message))
        if not self.buffered:
            self.flush()

    def flush(self) -> None:
        self._sock.sendall(b"".join(self._pending))
        self._pending.clear()

    def ask(self, message: dict[str, Any]) -> Any:
        self.tell(message)
        self.flush()
        reply = json.loads(self._lines.readline())
        if "error" in reply:
            raise WorldRefused(reply["error"])
        if "lost" in reply:
            raise ReplyLost(reply["lost"])
        return reply["result"]


def line_of(message: dict[str, Any]) -> bytes:
    """Text that is not valid Unicode, as some exceptions have, becomes valid: the other end is strict."""
    try:
        text = json.dumps(message, ensure_ascii=False, allow_nan=False)
    except ValueError:  # JSON has no nan
        text = json.dumps(_with_finite_numbers(message), ensure_ascii=False)
    return text.encode("utf-8", "replace") + b"\n"


def _with_finite_numbers(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {key: _with_finite_numbers(each) for key, each in value.items()}
    return [_with_finite_numbers(each) for each in value] if isinstance(value, list | tuple) else value


def said_by(error: BaseException, directory: Path) -> str:
    """The error's message without the path of the state directory; its type if it has no message."""
    return (str(error) or type(error).__name__).replace(str(directory), ".")


class Operation:
    """An operation in flight; `result` is what the caller gets back."""

    def __init__(self) -> None:
        self.result: Any = None


class Life:
    """One life of the target: its state directory, its workload, and its channel to the supervisor.

    `directory` survives the crash; `number` counts lives from 0 (0 starts, later ones resume);
    `workload` is the scenario's plain data; `seed` decides everything random; `store` is the kind of
    store to use, if the scenario offers a choice; `interrupted` has the arguments of the operations
    that the previous life did not complete: what a client would retry.
    `final` is true in an extra life after the last one, which only looks at what the others left.
    A target that leaves something behind in its process sets `tainted`: the process is not reused.
    """

    def __init__(self, spec: LifeSpec, channel: Channel, position: Callable[[], int]) -> None:
        self.directory = Path(spec.directory)
        self.number = spec.life
        self.seed = spec.seed
        self.store = spec.store
        self.workload = spec.workload
        self.interrupted = spec.interrupted
        self.final = spec.final
        self.tainted = False
        self._channel = channel
        self._position = position
        self._operations = 0
        self._ticks = 0

    @property
    def position(self) -> int:
        """How many points this life has passed: operations on its files if these are watched, else names."""
        return self._position()

    def now(self) -> float:
        """Virtual time in seconds: advances a millisecond per call and a minute per life."""
        self._ticks += 1
        return 1_700_000_000 + 60 * self.number + self._ticks / 1000

    def call(self, service: str, action: str, *, key: str | None = None, **args: Any) -> Any:
        """Call a service of the World. The effect is in the ledger before this returns."""
        return self._channel.ask(
            {**self._head("call"), "service": service, "action": action, "args": args, "key": key}
        )

    def ack(self, name: str, **data: Any) -> None:
        """Acknowledge that something is durable: losing it afterwards is a violation."""
        self._channel.tell({**self._head("ack"), "name": name, "data": data})

    def probe(self, name: str, **data: Any) -> None:
        """Report what the store holds: `recovered` after a recovery, `end` when all work is done."""
        self._channel.tell({**self._head("probe"), "name": name, "data": data})

    @contextmanager
    def operation(self, name: str, **args: Any) -> Iterator[Operation]:
        """Reports invoke, then ok or fail; if the process dies within it, the supervisor records `info`."""
        number = self._operations = self._operations + 1
        self._channel.tell({**self._head("invoke"), "op": number, "name": name, "args": args})
        operation = Operation()
        try:
            yield operation
        except GeneratorExit:
            raise
        except BaseException as error:  # SystemExit and a cancellation are answers, too
            words = said_by(error, self.directory)
            self._channel.tell({**self._head("fail"), "op": number, "error": words})
            raise
        self._channel.tell({**self._head("ok"), "op": number, "result": operation.result})

    def share(self) -> None:
        """Stop buffering reports: the process is about to have children that report too.

        They must take turns: there is one channel.
        """
        self._channel.buffered = False
        self._channel.flush()

    def _head(self, kind: str) -> dict[str, Any]:
        return {"type": kind, "life": self.number, "at": self._position()}
