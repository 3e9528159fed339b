"""Facts: what a run showed, as names that a scenario can require of a campaign (`Scenario.must_reach`).

A fuzz that never saw a wait resumed has not tested resuming, however many runs it had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from chaoskit.faults.kind import kind_of
from chaoskit.model import Ack, Crashed, Effect, Ended, Event, Fail, Info, Invoke, Ok, Probe, Struck

ENOUGH = 200  # runs, after which a fact that was not seen is no accident


def facts(events: Iterable[Event]) -> Iterator[str]:
    """`ack:NAME`, `probe:NAME`, `effect:SERVICE.ACTION`, `crashed:FAULT`, `struck:FAULT`, `ended:HOW`, and of
    operations `invoke:NAME` with `ok:NAME`, `fail:NAME` or `info:NAME` (interrupted)."""
    asked: dict[tuple[int, int], str] = {}
    for event in events:
        if isinstance(event, Invoke):
            asked[event.life, event.op] = event.name
            yield f"invoke:{event.name}"
        elif isinstance(event, Ok | Fail | Info):
            kind = type(event).__name__.lower()
            yield f"{kind}:{asked.get((event.life, event.op), '')}"
        elif isinstance(event, Ack | Probe):
            yield f"{type(event).__name__.lower()}:{event.name}"
        elif isinstance(event, Effect):
            yield f"effect:{event.service}.{event.action}"
        elif isinstance(event, Crashed | Struck):
            kind = "crashed" if isinstance(event, Crashed) else "struck"
            yield f"{kind}:{kind_of(event.fault).name}"
        elif isinstance(event, Ended):
            yield f"ended:{event.how}"


def reached(events: Iterable[Event], wanted: Iterable[str]) -> tuple[str, ...]:
    """Those of the wanted facts that these events show."""
    left = set(wanted)
    return tuple(sorted(left & set(facts(events)))) if left else ()
