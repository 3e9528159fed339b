"""saves: every acknowledged numbered save is present, and nothing is present that was not saved.

Verifies each read of a store that keeps all saves or the latest: what is found reads exactly as it was
saved; the numbers have no gap; the last one is no older than the last acknowledged. Cannot see a store that
fails to open: `recovers` checks that.

Smallest history that breaks it: invoke save 1, ack saved 1, crashed, recovered with nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaoskit.model import Ack, History, Invariant, Invoke, NothingToJudge, Probe, Violation

Found = list[tuple[int, str]]


def check(history: History) -> Iterator[Violation]:
    asked: dict[int, str] = {}
    acknowledged = 0
    looks = 0
    for event in history.events:
        if isinstance(event, Invoke) and event.name == "save":
            asked[event.args["n"]] = event.args["text"]
        elif isinstance(event, Ack) and event.name == "saved":
            acknowledged = event.data["n"]
        elif isinstance(event, Probe) and "saves" in event.data:
            looks += 1
            yield from _judge(event.data["saves"], asked, acknowledged)
    if not looks:
        raise NothingToJudge


def _judge(found: Found, asked: dict[int, str], acknowledged: int) -> Iterator[Violation]:
    numbers = [n for n, _ in found]
    for n, text in found:
        if asked.get(n) != text:
            yield Violation("damaged", f"save {n} does not read back as written: {text[:40]!r}")
    if numbers and numbers != list(range(numbers[0], numbers[-1] + 1)):
        yield Violation("gap", f"saves {', '.join(map(str, numbers))} are stored: one is missing")
    last = max(numbers, default=0)
    if last < acknowledged:
        there = f"save {last} is the last one stored" if numbers else "nothing is stored"
        yield Violation("lost", f"save {acknowledged} was acknowledged, but {there}")


INVARIANT = Invariant(
    name="saves", summary="every acknowledged save is stored completely, and nothing else", check=check
)
