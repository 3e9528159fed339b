"""A tiny agent in memory that is sound by construction, crashed anywhere: histories for the properties.

`yield` marks each place where a crash may strike. What is assigned to `Disk` survives it; what is reported
after a `yield` may never have been reported. The order is that of the reference agent: the store first, the
log second, the acknowledgement last; a decision before it is carried out, `issued` before the effect.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from chaoskit.faults.kill import Kill
from chaoskit.model import Ack, Born, Crashed, Effect, Ended, Event, PersistPoint, Probe

Work = list[list[int]]  # for each request, the number of calls of each turn
KILL = Kill(PersistPoint("write", 1), "after")
TOKENS = 7  # of each turn


class Disk:
    def __init__(self) -> None:
        self.messages: list[list[Any]] = []
        self.checkpoint: int | None = None  # messages in the last one
        self.versions = 0
        self.decisions: set[int] = set()
        self.usage: list[list[int]] = []
        self.calls: dict[str, str] = {}
        self.answers: dict[str, str | None] = {}
        self.run: tuple[str, str] | None = None  # the open one, and its request
        self.unlogged: str | None = None  # a run that ended; the log may lack it
        self.log: list[str] = []

    def append(self, kind: str, **fields: Any) -> int:
        self.log.append(json.dumps({"seq": len(self.log) + 1, "kind": kind, **fields}) + "\n")
        return len(self.log)

    def look(self) -> dict[str, Any]:
        return {
            "messages": [list(message) for message in self.messages],
            "answers": dict(self.answers),
            "log": list(self.log),
            "checkpoint": self.checkpoint,
            "beyond": len(self.messages) - (self.checkpoint or len(self.messages)),
            "versions": [self.versions or None, self.versions],
            "checkpoints": list(range(1, self.versions + 1)),
            "usage": [list(row) for row in self.usage],
            "errors": [],
            "calls": dict(self.calls),
        }


class Life:
    def __init__(self, disk: Disk, events: list[Event], number: int, work: Work) -> None:
        self.disk, self.events, self.number, self.work = disk, events, number, work

    def probe(self, name: str, **data: Any) -> None:
        self.events.append(Probe(self.number, 0, name, data))

    def ack(self, name: str, **data: Any) -> None:
        self.events.append(Ack(self.number, 0, name, data))

    def live(self) -> Iterator[None]:
        disk = self.disk
        self.events.append(Born(self.number))
        self.probe("found", snapshot=None, lines=len(disk.log))
        self.probe("cadence", kind="turn", turns=None, seconds=None)
        yield from self.recover()
        if self.number:
            self.probe("recovered", **disk.look())
            self.probe("shown", shown=[f"- {text}" for text in texts(disk.messages)])
        for number, turns in enumerate(self.work):
            if disk.answers.get(f"r{number}") is None:
                yield from self.fulfil(f"r{number}", turns)
        self.probe("end", questions=[], **disk.look())

    def recover(self) -> Iterator[None]:
        disk = self.disk
        if disk.run:
            run, request = disk.run
            if f'"{run}"' not in "".join(disk.log):
                disk.append("run.started", run_id=run, request_id=request)
                yield
            disk.append("run.interrupted", run_id=run, reason="process_restart")
            disk.run = None  # in one step: a second record would be a bug, and this agent is sound
            yield
        elif disk.unlogged:
            disk.append("run.completed", run_id=disk.unlogged)
            disk.unlogged = None
            yield
        if disk.checkpoint is not None:
            del disk.messages[disk.checkpoint :]
            yield

    def fulfil(self, request: str, turns: list[int]) -> Iterator[None]:
        disk, run = self.disk, f"run-{self.number}-{request}"
        disk.answers[request], disk.run = None, (run, request)
        yield
        seq = disk.append("run.started", run_id=run, request_id=request)
        yield
        self.ack("accepted", request=request, run=run, log_seq=seq)
        if ["user", f"please {request}", None] not in disk.messages:
            disk.messages.append(["user", f"please {request}", None])
            yield
        while (done := self.complete_turns(request)) <= len(turns):
            yield from self.take_turn(request, (*turns, 0)[done])
        answer = disk.messages[-1][1]
        disk.answers[request], disk.run, disk.unlogged = answer, None, run
        yield
        seq = disk.append("run.completed", run_id=run)
        disk.unlogged = None
        yield
        self.ack("answer", request=request, answer=answer, log_seq=seq)

    def complete_turns(self, request: str) -> int:
        begin = self.disk.messages.index(["user", f"please {request}", None])
        return sum(m[0] == "assistant" for m in self.disk.messages[begin:]) - (
            self.results_so_far() is not None
        )

    def results_so_far(self) -> int | None:
        """How many results the turn in progress has; None if no turn is."""
        results = 0
        for role, _, calls in reversed(self.disk.messages):
            if role == "tool":
                results += 1
            elif role == "assistant":
                return results if results < len(json.loads(calls or "[]")) else None
            else:
                break
        return None

    def take_turn(self, request: str, calls: int) -> Iterator[None]:
        disk, results = self.disk, self.results_so_far()
        turn = sum(m[0] == "assistant" for m in disk.messages) + (results is None)
        wanted = [{"id": f"c{turn}-{n}", "name": "mail", "args": {"to": f"{turn}/{n}"}} for n in range(calls)]
        if turn not in disk.decisions:
            self.probe("asked", turn=turn, orphans=[], said=[json.dumps(m) for m in disk.messages])
            self.probe("answered", turn=turn, tokens=TOKENS + turn)
            disk.decisions.add(turn)
            disk.usage.append([turn, TOKENS + turn])
            yield
            self.ack("decided", turn=turn)
        if results is None:
            text = "" if calls else f"done {request}"
            disk.messages.append(["assistant", text, json.dumps(wanted) if calls else None])
            yield
        for call in wanted[results or 0 :]:
            yield from self.carry_out(call)
        disk.versions += 1
        disk.checkpoint = len(disk.messages)
        yield
        seq = disk.append("turn.completed", turn=turn)
        yield
        self.ack("turn", turn=turn, messages=len(disk.messages), log_seq=seq)

    def carry_out(self, call: dict[str, Any]) -> Iterator[None]:
        disk, name = self.disk, call["id"]
        facts = {"call": name, "tool": "mail", "args": call["args"]}
        if disk.calls.get(name) == "issued":
            disk.calls[name] = "unknown"
            yield
        if name not in disk.calls:
            disk.calls[name] = "issued"
            yield
            self.events.append(Effect(self.number, 0, "mail", "send", call["args"], None, applied=True))
            yield
            disk.calls[name] = "completed"
            yield
            self.ack("finished", **facts)
        elif disk.calls[name] == "unknown":
            self.ack("surfaced", **facts)
        disk.messages.append(["tool", disk.calls[name], None])
        yield


def texts(messages: list[list[Any]]) -> Iterator[str]:
    for role, content, calls in messages:
        if content or role == "tool":
            yield content
        for call in json.loads(calls or "[]"):
            yield call["name"] + json.dumps(call["args"])


def history(work: Work, crashes: Sequence[int]) -> list[Event]:
    """`crashes`: for each life, how many steps it takes before it is killed; the last one is not."""
    disk = Disk()
    effects = [["mail", "send", args] for args in meant(work)]
    events: list[Event] = [Probe(0, 0, "meant", {"effects": effects})]
    for number, steps in enumerate((*crashes, None)):
        life = Life(disk, events, number, work).live()
        taken = 0
        for _ in life:
            taken += 1
            if taken == steps:
                break
        else:
            events.append(Ended(number, "completed"))
            return events
        events += [Crashed(number, taken, KILL), Ended(number, "crashed")]
    raise AssertionError("the last life is not killed")


def meant(work: Work) -> Iterator[dict[str, str]]:
    turn = 0
    for turns in work:
        for calls in (*turns, 0):
            turn += 1
            yield from ({"to": f"{turn}/{n}"} for n in range(calls))
