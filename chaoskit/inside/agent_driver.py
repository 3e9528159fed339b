"""Drives a third-party agent framework as a target, with a scripted model and tools that act on the World.

An adapter is a class with two methods, sync or async (docs/adapters.md):

    start(directory, world)      begin the task, work until the answer, and return it
    resume(directory, world)     after a crash, in the framework's documented way: return the answer;
                                 None if there is nothing to resume and the task has to be started

and, if the framework supports them:

    validate(directory)          load everything persisted through the framework's own schema; raise
                                 if it rejects any of it
    park(directory, world)       begin a task that stops for approval, and return
    approve(directory, world)    resume it with an approval; several processes may try
    fork(directory, world)       resume twice from one checkpoint: return both states

`world.model(messages)` is the scripted model, `world.act(...)` performs a tool's effect. If a framework
does not know whether an interrupted call happened, does not retry it, and reports that to the user, the
adapter calls `world.surface(...)`.
"""

from __future__ import annotations

import asyncio
import inspect
import mmap
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from chaoskit.inside.life import Life
from chaoskit.inside.loading import load
from chaoskit.inside.repeatable import make_repeatable
from chaoskit.inside.store import awaited
from chaoskit.inside.store_driver import introduce

Message = dict[str, Any]  # {"role": "user" | "assistant" | "tool", "calls": [id...], "call_id": id}
RESUMERS = 2
PATIENCE = 3.0  # seconds; a process that waits for another's lock never arrives


class AdapterWorld:
    """The interface of an adapter's model and tools to the World, which survives crashes."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._script: list[dict[str, Any]] = life.workload["script"]
        self._one_at_a_time = Turns()
        self.task: str = life.workload["task"]
        self.session = "session"
        self.before_acting: Callable[[], None] = lambda: None
        self.found: dict[str, Any] | None = None  # the state found after a crash, until it is reported

    def recovered(self) -> None:
        """Recovery ends with the first new request or effect, or when nothing is left to do."""
        found, self.found = self.found, None
        if found is not None:
            self._life.probe("recovered", **found)

    def act(self, service: str, action: str, *, key: str | None = None, **args: Any) -> str:
        """Performs a tool's effect; it is in the ledger before this returns a receipt.

        Pass `key` only if the framework gives the tool an idempotency key.
        """
        self.before_acting()
        with self._one_at_a_time:
            self.recovered()
            answer: dict[str, str] = self._life.call(service, action, key=key, **args)
        return answer["receipt"]

    def surface(self, call: str, args: dict[str, Any]) -> None:
        """The framework reported to the user that this call may or may not have happened.

        Nothing weaker counts, and only for a call that a crash interrupted: `args` are those of the call.
        """
        with self._one_at_a_time:
            self._life.ack("surfaced", call=call, args=args)

    def model(self, messages: Sequence[Message]) -> dict[str, Any]:
        """The scripted model: {"tool", "args", "id"} or {"answer"}, by the number of its earlier turns."""
        turn = 1 + sum(message["role"] == "assistant" for message in messages)
        said = self._decision(turn)
        with self._one_at_a_time:
            self.recovered()
            self._life.probe(
                "asked", turn=turn, orphans=orphans(messages), call=said if "tool" in said else None
            )
        return said

    def _decision(self, turn: int) -> dict[str, Any]:
        said = self._script[min(turn, len(self._script)) - 1]
        if "answer" in said:
            return {"answer": said["answer"]}
        wording = f" (attempt {self._life.number})" if self._life.workload["fickle"] else ""
        suffix = f"-{self._life.number}" if self._life.workload["fickle"] else ""
        note = {"note": f"as agreed{wording}"}
        return {"tool": said["tool"], "args": {**said["args"], **note}, "id": f"call_{turn}{suffix}"}


class Turns:
    """A lock between processes for the channel. A process must not die while it holds the lock."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.write(self._writing, b"x")

    def __enter__(self) -> None:
        os.read(self._reading, 1)

    def __exit__(self, *_: object) -> None:
        os.write(self._writing, b"x")


def orphans(messages: Sequence[Message]) -> list[str]:
    """Calls without a result before the last message: providers reject such a conversation."""
    answered = {message.get("call_id") for message in messages if message["role"] == "tool"}
    return [call for message in messages for call in message.get("calls", ()) if call not in answered]


def main(life: Life) -> None:
    make_repeatable(life)
    adapter, world = load(life.workload["adapter"])(), AdapterWorld(life)
    introduce(life, adapter)
    life.probe("meant", effects=life.workload["meant"])
    if life.workload.get("race"):
        race(life, adapter, world)
        return
    if life.workload.get("fork"):
        one, other = call(adapter.fork, str(life.directory), world)
        life.probe("forked", one=repr(one)[:500], other=repr(other)[:500], same=one == other)
        return
    directory = str(life.directory)
    if life.number:
        world.found = _validity(adapter, directory)
        try:
            answer = call(adapter.resume, directory, world)
        finally:
            world.recovered()
        answer = call(adapter.start, directory, world) if answer is None else answer
    else:
        answer = call(adapter.start, directory, world)
    life.probe("end", answer=answer)


def _validity(adapter: Any, directory: str) -> dict[str, Any]:
    if not hasattr(adapter, "validate"):
        return {}
    try:
        call(adapter.validate, directory)
    except Exception as error:  # noqa: BLE001 - a framework may raise anything
        return {"valid": False, "trouble": f"{type(error).__name__}: {error}"[:300]}
    return {"valid": True}


def race(life: Life, adapter: Any, world: AdapterWorld) -> None:
    """Park a task, then resume it in several processes at once: the gated effect must happen once.

    The tool waits on purpose: it acts once every other process has reached it or was refused.
    """
    directory = str(life.directory)
    call(adapter.park, directory, world)
    life.probe("parked")
    life.share()
    reading, writing = os.pipe()  # its end of file starts all processes
    there = mmap.mmap(-1, RESUMERS)  # shared: one byte each, set when the process may act or has ended
    racers = []
    for number in range(RESUMERS):
        pid = os.fork()
        if pid == 0:
            world.before_acting = lambda number=number: _meet(there, number)  # type: ignore[misc]
            os.close(writing)
            os.read(reading, 1)
            refused = _resume_quietly(adapter, directory, world)
            there[number] = 1
            os._exit(refused)
        racers.append(pid)
    os.close(reading)
    os.close(writing)
    refused = sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in racers)
    life.probe("raced", resumers=RESUMERS, refused=refused)


def _meet(there: mmap.mmap, number: int) -> None:
    there[number] = 1
    latest = time.monotonic() + PATIENCE
    while not all(there[:]) and time.monotonic() < latest:
        time.sleep(0.002)


def _resume_quietly(adapter: Any, directory: str, world: AdapterWorld) -> int:
    signal.alarm(20)
    try:
        call(adapter.approve, directory, world)
    except BaseException:  # noqa: BLE001 - any exception is a refusal
        return 1
    return 0


def call(method: Any, *args: Any) -> Any:
    answer = method(*args)
    return asyncio.run(awaited(answer)) if inspect.isawaitable(answer) else answer
