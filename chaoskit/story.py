"""The story of a run, in a few lines that a person can follow. Pure: events -> text.

Per life: what was acknowledged, what was done to the World, how it ended, what was found.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from chaoskit.model import Ack, Born, Crashed, Effect, Ended, Event, Fail, Invoke, Ok, Probe, Struck, select

WIDTH = 88


def tell(events: Sequence[Event]) -> tuple[str, ...]:
    lives = [event.life for event in select(events, Born)]
    lines = []
    for life in lives:
        lines.append(f"life {life}: " + ("starts" if life == 0 else "starts again and recovers"))
        lines += [f"  {line}" for line in _life([e for e in events if e.life == life])]
    return tuple(lines)


def until_last_crash(events: Sequence[Event]) -> Sequence[Event]:
    """Up to the last crash: the life after it does the same again."""
    crashes = [number for number, event in enumerate(events, 1) if isinstance(event, Crashed | Struck)]
    return events[: crashes[-1]] if crashes else events


def operations(events: Sequence[Event]) -> tuple[str, ...]:
    """What was asked, in order, and how it was answered; with the crashes in their places."""
    answers: dict[tuple[int, int], str] = {}
    for event in events:
        if isinstance(event, Ok | Fail):
            answers[event.life, event.op] = event.error if isinstance(event, Fail) else "ok"
    lines = []
    for event in events:
        if isinstance(event, Invoke):
            answer = answers.get((event.life, event.op), "not answered")
            lines.append(_short(f"life {event.life}: {event.name} {_facts(event.args)}: {answer}"))
        elif isinstance(event, Crashed):
            lines.append(f"life {event.life}: {event.fault}")
    return tuple(lines)


def _life(events: list[Event]) -> Iterator[str]:
    for probe in select(events, Probe, "recovered"):
        yield _short(f"found after recovery: {_sizes(probe.data)}")
    yield from _acknowledged(list(select(events, Ack)))
    yield from _effects(select(events, Effect))
    for crash in select(events, Crashed):
        what = "firing" if crash.fault.point.op is None else "operation"
        yield f"dies: {crash.fault} ({what} {crash.at} of this life)"
    for struck in select(events, Struck):
        yield f"suffers: {struck.fault}"
    for probe in select(events, Probe, "end"):
        yield _short(f"found at the end: {_sizes(probe.data)}")
    for end in select(events, Ended):
        if end.how != "crashed":
            reason = end.detail.strip().splitlines()[-1:]
            yield _short(": ".join([f"ends: {end.how}", *reason]))


def _acknowledged(acks: list[Ack]) -> Iterator[str]:
    if acks:
        counts = ", ".join(f"{name} x{n}" for name, n in Counter(a.name for a in acks).items())
        last = acks[-1]
        yield _short(f"acknowledged: {counts}; the last: {last.name} {_facts(last.data)}")


def _effects(effects: Iterable[Effect]) -> Iterator[str]:
    for effect in effects:
        if effect.action == "ask":
            continue
        done = "done" if effect.applied else "recognised by its key, not done again"
        yield _short(f"{effect.service}.{effect.action} {_facts(effect.args)}: {done}")


def _facts(data: dict[str, Any]) -> str:
    return " ".join(f"{name}={json.dumps(value)}" for name, value in data.items())


def _sizes(data: dict[str, Any]) -> str:
    return ", ".join(
        f"{len(value)} {name}" if isinstance(value, list | dict) else f"{name}={value}"
        for name, value in data.items()
    )


def _short(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."
