"""The supervisor: carries out one Schedule and writes down what happened. All effects live here.

    start life 0 --(fault fires: dead)--> start life 1 --( ... )--> last life, undisturbed --> Run

Guarantees:

S1. A fault counts as fired only when the child wrote that it did *and* the process died of SIGKILL.
S2. A planned fault that did not fire, and a death that we did not cause, put a doubt on the run.
S3. No life outlasts its deadline; a life that does is killed and the history says `hung`.
S4. When a life is over, nothing of its process group is left, before the next one starts.
S5. The history is on disk before anybody judges it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from chaoskit.inside.points import KILLED
from chaoskit.model import (
    Ack,
    Born,
    Crashed,
    Ended,
    Event,
    Fail,
    Fault,
    Firing,
    History,
    How,
    Info,
    Invoke,
    Json,
    Mutant,
    Ok,
    Probe,
    Run,
    Scenario,
    Schedule,
    select as select_events,
)
from chaoskit.world import Refused, World
from chaoskit.zygote import Process, Zygote

HISTORY_FILE = "history.jsonl"


class Supervisor:
    """Runs schedules of one scenario, one after the other, on one zygote."""

    def __init__(
        self,
        scenario: Scenario,
        zygote: Zygote,
        *,
        seed: int,
        mutant: Mutant | None = None,
        deadline: float | None = None,
    ) -> None:
        self._scenario = scenario
        self._zygote = zygote
        self._seed = seed
        self._mutant = mutant
        self._deadline = deadline or scenario.target.deadline
        self._workload = scenario.workload(seed)

    def carry_out(
        self, schedule: Schedule, directory: Path, baseline: tuple[Event, ...] = ()
    ) -> Run:
        """One run in a directory of its own; what the target persists is in `state` below it."""
        directory.mkdir()  # not its parents: a workspace that is gone stays gone
        (directory / "state").mkdir()
        run = _RunInProgress(self._scenario, directory)
        plan: tuple[Fault | None, ...] = (*schedule.faults, None)
        for life, fault in enumerate(plan):
            how = self._live(run, life, fault)
            if how != "crashed":
                break
        return run.finish(schedule, baseline)

    def _live(self, run: _RunInProgress, life: int, fault: Fault | None) -> How:
        with self._start(run, life, fault) as (process, channel):
            conversation = _Conversation(run, life, channel)
            timely = conversation.listen(process, time.monotonic() + self._deadline)
            status = process.reap()
        trace, killed = read_trace(run.directory / f"trace-{life}")
        run.traces.append(trace)
        if killed and fault and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return run.end_crashed(life, fault)
        if not timely:
            return run.end(life, "hung", f"did not finish in {self._deadline:g} s, and was killed")
        if conversation.last == "completed":
            return run.end(life, "completed")
        if conversation.last == "failed":
            return run.end(life, "failed", conversation.detail)
        return run.end(life, "died", describe_status(status))

    @contextmanager
    def _start(
        self, run: _RunInProgress, life: int, fault: Fault | None
    ) -> Iterator[tuple[Process, socket.socket]]:
        ours, theirs = socket.socketpair()
        run.write_spec(life, self._spec(run, life, fault))
        files = [run.open(name, life) for name in ("spec", "trace", "stdout", "stderr")]
        spec, trace, out, err = files
        with ours:
            try:
                process = self._zygote.start([spec, theirs.fileno(), trace, out, err])
            finally:
                theirs.close()
                for fd in files:
                    os.close(fd)
            yield process, ours

    def _spec(self, run: _RunInProgress, life: int, fault: Fault | None) -> dict[str, Json]:
        kill = None
        if fault:
            kill = {"name": fault.point.name, "nth": fault.point.nth, "when": fault.when}
        return {
            "entry": self._scenario.target.entry,
            "patch": self._mutant.patch if self._mutant else None,
            "directory": str(run.directory / "state"),
            "life": life,
            "seed": self._seed,
            "workload": self._workload,
            "kill": kill,
        }


class _RunInProgress:
    """What is known of a run so far. Files of life n end in `-n`."""

    def __init__(self, scenario: Scenario, directory: Path) -> None:
        self.directory = directory
        self.world = World(scenario.services)
        self.events: list[Event] = []
        self.traces: list[tuple[Firing, ...]] = []
        self.fired = 0
        self.doubts: list[str] = []

    def write_spec(self, life: int, spec: dict[str, Json]) -> None:
        self.events.append(Born(life))
        (self.directory / f"spec-{life}").write_bytes(msgspec.json.encode(spec))

    def open(self, name: str, life: int) -> int:
        flags = os.O_RDONLY if name == "spec" else os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.open(self.directory / f"{name}-{life}", flags, 0o600)

    def end_crashed(self, life: int, fault: Fault) -> How:
        self.fired += 1
        self.events.append(Crashed(life, len(self.traces[-1]), fault))
        return self.end(life, "crashed")

    def end(self, life: int, how: How, detail: str = "") -> How:
        answered = {e.op for e in self.events if isinstance(e, Ok | Fail) and e.life == life}
        open_operations = (
            e.op
            for e in list(select_events(self.events, Invoke))
            if e.life == life and e.op not in answered
        )
        self.events += [Info(life, op) for op in open_operations]
        self.events.append(Ended(life, how, detail))
        if how == "died":
            self.doubts.append(f"life {life} died, but not by our hand: {detail}")
        return how

    def finish(self, schedule: Schedule, baseline: tuple[Event, ...]) -> Run:
        for fault in schedule.faults[self.fired :]:
            self.doubts.append(f"the planned fault did not fire: {fault}")
        lines = b"\n".join(msgspec.json.encode(event) for event in self.events)
        (self.directory / HISTORY_FILE).write_bytes(lines + b"\n")
        return Run(
            schedule=schedule,
            history=History(tuple(self.events), baseline),
            traces=tuple(self.traces),
            fired=self.fired,
            doubts=tuple(self.doubts),
        )


class _Conversation:
    """Listens to one life: answers its calls to the World, writes down what it tells."""

    def __init__(self, run: _RunInProgress, life: int, channel: socket.socket) -> None:
        self.last = ""  # "completed" or "failed" once the life has said so
        self.detail = ""
        self._run = run
        self._life = life
        self._channel = channel
        self._partial = b""

    def listen(self, process: Process, deadline: float) -> bool:
        """Until the process is dead. False if it had to be killed for being late."""
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
            elif process.pidfd in ready:
                return timely  # only once the socket is silent: what was said before a death counts

    def _read(self) -> bool:
        data = self._channel.recv(1 << 16)
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._hear(msgspec.json.decode(line))
        return bool(data)

    def _hear(self, message: dict[str, Any]) -> None:
        kind = message.pop("t")
        if kind in ("completed", "failed"):
            self.last, self.detail = kind, message.get("detail", "")
        elif kind == "call":
            self._reply(message)
        else:
            self._run.events.append(event_of(kind, self._life, message))

    def _reply(self, call: dict[str, Any]) -> None:
        world = self._run.world
        known = len(world.ledger)
        try:
            reply = {"result": world.act(self._life, call)}
        except Refused as refusal:
            reply = {"error": str(refusal)}
        self._run.events += world.ledger[known:]
        try:
            self._channel.sendall(msgspec.json.encode(reply) + b"\n")
        except OSError:  # the caller is gone; the effect stays done, which is the point of it all
            return


_EVENTS = {"ack": Ack, "probe": Probe, "invoke": Invoke, "ok": Ok, "fail": Fail}


def event_of(kind: str, life: int, message: dict[str, Any]) -> Event:
    event: Event = msgspec.convert({"life": life, **message}, _EVENTS[kind])
    return event


def read_trace(path: Path) -> tuple[tuple[Firing, ...], bool]:
    """The firings of one life, and whether it died of the planned fault."""
    content = path.read_bytes()
    killed = content.endswith(KILLED)
    seen: dict[tuple[str, str], int] = {}
    firings = []
    for line in content.removesuffix(KILLED).decode().splitlines():
        when, name = line.split("\t")
        nth = seen[name, when] = seen.get((name, when), 0) + 1
        firings.append(msgspec.convert({"point": {"name": name, "nth": nth}, "when": when}, Firing))
    return tuple(firings), killed


def describe_status(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit code {os.waitstatus_to_exitcode(status)} without a word"
