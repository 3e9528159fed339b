"""saves: every acknowledged numbered save is present, and nothing is present that was not saved.

Verifies each read of a store that keeps all saves or only the latest. What is found reads exactly as it was
saved. The numbers have no gap. The last one is no older than the last acknowledged save. A store that was
ever seen with several saves, in this run or in the run without faults, keeps all of them: its numbers start
with the first. Cannot see a store that fails to open: `recovers` checks that. Nor that a store has lost
older saves, if it was never seen with more than one.

Smallest history that breaks it: invoke save 1, ack saved 1, crashed, recovered with nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaoskit.model import Ack, History, Invariant, Invoke, NothingToJudge, Probe, Violation

Found = list[tuple[int, str]]


def check(history: History) -> Iterator[Violation]:
    asked: dict[int, list[str]] = {}  # the texts that may be found: of the last acknowledged save, or later
    acknowledged: set[int] = set()
    keeps_all = _keeps_all(history)
    looks = 0
    for event in history.events:
        if isinstance(event, Invoke) and event.name == "save":
            asked.setdefault(event.args["n"], []).append(event.args["text"])
        elif isinstance(event, Ack) and event.name == "saved":
            acknowledged.add(event.data["n"])
            asked[event.data["n"]] = asked.get(event.data["n"], [])[-1:]
        elif isinstance(event, Probe) and "saves" in event.data:
            looks += 1
            found = event.data["saves"]
            yield from _whole(found, asked, first=min(asked, default=1) if keeps_all else None)
            yield from _kept([n for n, _ in found], acknowledged, keeps_all=keeps_all)
    if not looks:
        raise NothingToJudge


def _keeps_all(history: History) -> bool:
    probes = (*history.of(Probe), *history.expected(Probe))
    return any(len(probe.data.get("saves", ())) > 1 for probe in probes)


def _whole(found: Found, asked: dict[int, list[str]], first: int | None) -> Iterator[Violation]:
    numbers = [n for n, _ in found]
    for n, text in found:
        if text not in asked.get(n, ()):
            yield Violation("damaged", f"save {n} does not read back as written: {text[:40]!r}")
    start = numbers[0] if numbers and first is None else first
    if numbers and numbers != list(range(start or 0, numbers[-1] + 1)):
        yield Violation("gap", f"saves {', '.join(map(str, numbers))} are stored, with a gap")


def _kept(numbers: list[int], acknowledged: set[int], *, keeps_all: bool) -> Iterator[Violation]:
    last, newest = max(numbers, default=0), max(acknowledged, default=0)
    missing = sorted(acknowledged - set(numbers)) if keeps_all else []
    if last < newest:
        there = f"save {last} is the last one stored" if numbers else "nothing is stored"
        yield Violation("lost", f"save {newest} was acknowledged, but {there}")
    elif missing:
        yield Violation("lost", f"save {missing[0]} was acknowledged, but is not stored")


INVARIANT = Invariant(
    name="saves", summary="every acknowledged save is stored completely; nothing else is stored", check=check
)
