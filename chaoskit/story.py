"""The story of a run in a few lines. Pure: events -> text.

Per life: what it acknowledged, its effects on the World around the crash, how it ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from chaoskit.model import Ack, Born, Crashed, Effect, Ended, Event, Fail, Info, Invoke, Ok, Struck, select

WIDTH = 74  # an indented line fits in 80 columns
AROUND = 4  # effects shown on either side of a crash


def tell(events: Sequence[Event]) -> tuple[str, ...]:
    lives = [event.life for event in select(events, Born)]
    lines = []
    for life in lives:
        if life and _only_looked([e for e in events if e.life == life]):
            continue
        lines.append(f"life {life}: " + ("starts" if life == 0 else "restarts and recovers"))
        lines += [f"  {line}" for line in _life([e for e in events if e.life == life])]
    return tuple(lines)


def until_last_crash(events: Sequence[Event]) -> Sequence[Event]:
    """Up to the last crash; the life after it repeats the same operations."""
    crashes = [number for number, event in enumerate(events, 1) if isinstance(event, Crashed | Struck)]
    return events[: crashes[-1]] if crashes else events


def operations(events: Sequence[Event]) -> tuple[str, ...]:
    """The operations with their results, in order, and the crashes between them."""
    answers: dict[tuple[int, int], str] = {}
    for event in events:
        if isinstance(event, Ok | Fail):
            answers[event.life, event.op] = event.error if isinstance(event, Fail) else "ok"
    lines = []
    for event in events:
        if isinstance(event, Invoke):
            answer = answers.get((event.life, event.op), "no answer")
            lines.append(_short(f"life {event.life}: {event.name} {_facts(event.args)}", f": {answer}"))
        elif isinstance(event, Crashed):
            lines.append(f"life {event.life}: {event.fault}")
    return tuple(lines)


def _life(events: list[Event]) -> Iterator[str]:
    crashes = list(select(events, Crashed))
    yield from _acknowledged(list(select(events, Ack)))
    yield from _effects([e for e in select(events, Effect) if e.action != "ask"], crashed=bool(crashes))
    yield from _unfinished(events)
    for crash in crashes:
        yield from _crash(crash)
    for struck in select(events, Struck):
        yield f"fault injected: {struck.fault}"
    for end in select(events, Ended):
        if end.how != "crashed":
            reason = end.detail.strip().splitlines()[-1:]
            yield _short(": ".join([f"ends: {end.how}", *reason]))


def _only_looked(events: list[Event]) -> bool:
    """Whether a life did nothing but show what is there, and ended well."""
    acted = any(isinstance(event, Ack | Effect | Invoke | Crashed | Struck) for event in events)
    return not acted and all(end.how == "completed" for end in select(events, Ended))


def _unfinished(events: list[Event]) -> Iterator[str]:
    """Operations that failed or that the crash interrupted; of many, the first few."""
    asked = {event.op: event for event in select(events, Invoke)}
    ended = [event for event in events if isinstance(event, Info | Fail) and event.op in asked]
    for event in ended[:AROUND]:
        how = "interrupted" if isinstance(event, Info) else f"failed: {event.error}"
        request = asked[event.op]
        yield _short(f"{request.name} {_facts(request.args)}", f": {how}")
    if len(ended) > AROUND:
        yield f"... {len(ended) - AROUND} more operations failed or were interrupted"


def _crash(crash: Crashed) -> Iterator[str]:
    if crash.passed:
        yield _short(f"last points passed: {', '.join(crash.passed)}")
    what = "persist event" if crash.fault.point.op is None else "operation"
    yield f"dies: {crash.fault} ({what} {crash.at} of this life)"


def _acknowledged(acks: list[Ack]) -> Iterator[str]:
    if acks:
        last = acks[-1]
        times = f"{len(acks)} times, last" if len(acks) > 1 else "once"
        yield _short(f"acknowledges {times}: {last.name} {_facts(last.data)}")


def _effects(effects: list[Effect], *, crashed: bool) -> Iterator[str]:
    """The effects around the crash: the last ones before it, the first ones after it."""
    shown = effects[-AROUND:] if crashed else effects[:AROUND]
    left_out = len(effects) - len(shown)
    if crashed and left_out:
        yield f"... {left_out} earlier effect{'s' * (left_out != 1)}"
    for effect in shown:
        done = "done" if effect.applied else "recognised by its key, not repeated"
        yield _short(f"{effect.service}.{effect.action} {_facts(effect.args)}", f": {done}")
    if not crashed and left_out:
        yield f"... {left_out} later effect{'s' * (left_out != 1)}"


def _facts(data: dict[str, Any]) -> str:
    return " ".join(f"{name}={json.dumps(value)}" for name, value in data.items())


def _short(line: str, end: str = "") -> str:
    """Shortened to WIDTH. The end says how it went, so that the line gives way first."""
    head = _cut(line, max(WIDTH // 2, WIDTH - len(end)))
    return head + _cut(end, WIDTH - len(head))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
