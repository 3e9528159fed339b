"""A third party's agent framework as a target: a scripted model, tools that act on the World.

An adapter is a class with two methods, sync or async (docs/adapters.md):

    start(directory, world)      begin the task, and work until the answer: return it
    resume(directory, world)     after a crash, by the framework's own documented way: return the answer;
                                 None if there is nothing to resume, and the task has to be started

and, where the framework has such things:

    validate(directory)          load everything that is persisted by the framework's own schema; raise
                                 if it refuses any of it
    park(directory, world)       begin a task that stops for approval, and return
    approve(directory, world)    resume it with an approval, as each of several processes may
    fork(directory, world)       resume twice from one checkpoint: (one state, the other)

The `world` has the scripted model (`world.model(messages)`) and what tools do (`world.act(...)`). If a
framework does not know whether an interrupted call happened, does not retry it, and reports that to the user,
the adapter calls `world.surface(...)`.
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
from chaoskit.inside.store_driver import awaited, make_repeatable

Message = dict[str, Any]  # {"role": "user" | "assistant" | "tool", "calls": [id...], "call_id": id}
RESUMERS = 2
PATIENCE = 3.0  # seconds; one that waits for the other's lock never comes


class AdapterWorld:
    """What an adapter's model and tools talk to. Nothing of it is touched by a crash."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._script: list[dict[str, Any]] = life.workload["script"]
        self._one_at_a_time = Turns()
        self.task: str = life.workload["task"]
        self.session = "session"
        self.before_acting: Callable[[], None] = lambda: None
        self.found: dict[str, Any] | None = None  # what was found after a crash, until it is reported

    def recovered(self) -> None:
        """Recovery is over when something new is asked or done, or when there is nothing left to do."""
        found, self.found = self.found, None
        if found is not None:
            self._life.probe("recovered", **found)

    def act(self, service: str, action: str, *, key: str | None = None, **args: Any) -> str:
        """What a tool does: in the ledger before this returns; the answer is a receipt.

        `key` only where the framework gives the tool one to tell a retry by.
        """
        self.before_acting()
        with self._one_at_a_time:
            self.recovered()
            answer: dict[str, str] = self._life.call(service, action, key=key, **args)
        return answer["receipt"]

    def surface(self, call: str, args: dict[str, Any]) -> None:
        """The user has been told that nobody knows whether this call happened; not for anything less."""
        with self._one_at_a_time:
            self._life.ack("surfaced", call=call, args=args)

    def model(self, messages: Sequence[Message]) -> dict[str, Any]:
        """The scripted model: {"tool", "args", "id"} or {"answer"}, by how often it has spoken before."""
        turn = 1 + sum(message["role"] == "assistant" for message in messages)
        with self._one_at_a_time:
            self.recovered()
            self._life.probe("asked", turn=turn, orphans=orphans(messages))
        said = self._script[min(turn, len(self._script)) - 1]
        if "answer" in said:
            return {"answer": said["answer"]}
        wording = f" (attempt {self._life.number})" if self._life.workload["fickle"] else ""
        suffix = f"-{self._life.number}" if self._life.workload["fickle"] else ""
        note = {"note": f"as agreed{wording}"}
        return {"tool": said["tool"], "args": {**said["args"], **note}, "id": f"call_{turn}{suffix}"}


class Turns:
    """A lock between processes: the holder of the byte may use the channel. Dying with it is a bug."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.write(self._writing, b"x")

    def __enter__(self) -> None:
        os.read(self._reading, 1)

    def __exit__(self, *_: object) -> None:
        os.write(self._writing, b"x")


def orphans(messages: Sequence[Message]) -> list[str]:
    """Calls without a result that are not the last thing said: providers refuse such a conversation."""
    answered = {message.get("call_id") for message in messages if message["role"] == "tool"}
    return [call for message in messages for call in message.get("calls", ()) if call not in answered]


def main(life: Life) -> None:
    make_repeatable(life)
    adapter, world = load(life.workload["adapter"])(), AdapterWorld(life)
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
    except Exception as error:  # noqa: BLE001 - whatever the framework raises
        return {"valid": False, "trouble": f"{type(error).__name__}: {error}"[:300]}
    return {"valid": True}


def race(life: Life, adapter: Any, world: AdapterWorld) -> None:
    """Park a task, then resume it in several processes at once: the gated effect must happen once.

    The tool is slow on purpose: it acts when every other process has reached it or was refused.
    """
    directory = str(life.directory)
    call(adapter.park, directory, world)
    life.share()
    reading, writing = os.pipe()  # its end of file is the starting shot
    there = mmap.mmap(-1, RESUMERS)  # shared: a byte for each, set when it may act, or has ended
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
    except BaseException:  # noqa: BLE001 - refused, in whatever way
        return 1
    return 0


def call(method: Any, *args: Any) -> Any:
    answer = method(*args)
    return asyncio.run(awaited(answer)) if inspect.isawaitable(answer) else answer
