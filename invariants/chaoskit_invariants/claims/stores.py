"""Claims about stores: what a certificate of a checkpointer or a session store examines.

Each claim is judged on every look at the store (`looks`). The adapter's methods determine which claims can
be judged: without `history` or `items`, order cannot be judged. Data that cannot be read at all is left to
`loadable`; the other claims then have nothing to judge.

Smallest histories that break them: see each claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from chaoskit.model import Claim, Fail, History, Invoke, NothingToJudge, Probe, Struck, Violation
from chaoskit_invariants.claims.looks import Look, looks


def _on_every_look(
    judge: Callable[[Look], Iterator[Violation]], needs: str = ""
) -> Callable[[History], Iterator[Violation]]:
    """Judge each look that has the needed data; without any such look there is nothing to judge."""

    def check(history: History) -> Iterator[Violation]:
        relevant = [look for look in looks(history) if not needs or needs in look.found]
        if not relevant:
            raise NothingToJudge
        for look in relevant:
            for violation in judge(look):
                where = f"session {look.name}"
                yield Violation(violation.kind, f"{where}: {violation.message}")

    check.__doc__ = judge.__doc__  # what `chaoskit explain` shows
    return check


def durable(look: Look) -> Iterator[Violation]:
    """Acknowledged changes are present. Broken by: change acknowledged, crashed, a look without it."""
    session = look.session
    if session.may_be_deleted or "trouble" in look.found:
        return
    yield from _latest(look)
    if look.sequence() is not None:
        there = set(look.numbers())
        damaged = any(isinstance(found, str) for found in look.sequence() or ())
        missing = [n for n in session.acknowledged if n not in there]
        if missing and not damaged:  # a partial change is left to `atomic`
            yield Violation("lost", f"{_saves(missing)} acknowledged, but missing")


def _latest(look: Look) -> Iterator[Violation]:
    if "load" not in look.found or isinstance(look.found["load"], str):
        return
    found, last = look.found["load"], look.session.last
    if found is None and last is not None:
        yield Violation("lost", f"save {last} was acknowledged, but nothing is stored")
    elif found and found[0] in look.session.gone:
        yield Violation("returned", f"its deletion was acknowledged, but save {found[0]} is still stored")
    elif found and last is not None and look.session.is_older(found[0], last):
        yield Violation("lost", f"save {last} was acknowledged, but the latest stored is {found[0]}")


def atomic(look: Look) -> Iterator[Violation]:
    """Changes are all or nothing. Broken by: change interrupted, a look with half of it."""
    latest = look.found.get("load")
    if isinstance(latest, str) and not latest.startswith("of session"):
        yield Violation("half", f"the latest state is {latest}")
    kept = look.sequence()
    if "history" in look.found and kept and _is_damaged(kept[-1]):
        yield Violation("half", f"the latest version is {kept[-1]}")
    if "items" in look.found:
        yield from _whole_groups(look.found["items"])


def _whole_groups(items: Iterable[list[int] | str]) -> Iterator[Violation]:
    parts: Counter[tuple[int, int]] = Counter()
    for item in items:
        if isinstance(item, str):
            if _is_damaged(item):
                yield Violation("half", f"an item is {item}")
        else:
            parts[item[0], item[2]] += 1
    for (n, count), found in parts.items():
        if found % count:
            yield Violation(
                "half", f"append {n} is incomplete: {found % count} of its {count} items are stored"
            )


def _is_damaged(found: object) -> bool:
    return isinstance(found, str) and not found.startswith("of session")


def prefix(look: Look) -> Iterator[Violation]:
    """Changes appear in the order made, each once. Broken by: a look that finds 2 before 1."""
    numbers = look.numbers()
    if not _is_in_order(look, dict.fromkeys(numbers)):  # each once: duplicates are left to `idempotent`
        yield Violation("reordered", f"the saves are stored in the order {_short(numbers)}")
    for n, times in Counter(numbers).items():
        if times > 1 and n not in look.session.repeated:
            yield Violation("doubled", f"save {n} was made once and is stored {times} times")
    strangers = [n for n in numbers if n not in look.session.asked]
    if strangers:
        yield Violation("unasked", f"save {strangers[0]} is stored, but was never made")


def _is_in_order(look: Look, numbers: Iterable[int]) -> bool:
    here = -1
    for places in filter(None, map(look.session.places, numbers)):
        later = [place for place in places if place > here]
        if not later:
            return False
        here = later[0]
    return True


def immutable(look: Look) -> Iterator[Violation]:
    """Older versions never change. Broken by: a look at version 1 of 2 that reads differently."""
    for number, found in enumerate(look.found["history"][:-1], 1):
        if _is_damaged(found):
            yield Violation("changed", f"version {number} is {found}")


def isolated(look: Look) -> Iterator[Violation]:
    """Sessions do not affect each other. Broken by: a look at one that finds a save of another."""
    kept = look.sequence() or []
    for found in [look.found.get("load"), *kept]:
        if isinstance(found, str) and found.startswith("of session"):
            yield Violation("foreign", f"contains data {found}")


def consistent(look: Look) -> Iterator[Violation]:
    """Records that belong together agree. Broken by: records with different values."""
    values = list(look.found["records"].values())
    if any(value != values[0] for value in values):
        yield Violation("disagree", f"its records disagree: {look.found['records']}")


def loadable(history: History) -> Iterator[Violation]:
    """Opens and loads after any crash without manual repair. Broken by: crashed, recovered with trouble.

    A life whose disk was full or failing may refuse to open; the next one may not.
    """
    troubled = {event.life for event in history.of(Struck)}
    lives = [p for p in history.of(Probe) if p.life > 0 and "sessions" in p.data]
    probes = [p for p in lives if p.life not in troubled]
    if not probes:
        raise NothingToJudge
    for probe in probes:
        if "trouble" in probe.data:
            yield Violation("closed", f"cannot be opened after the crash: {probe.data['trouble']}")
        for name, found in probe.data["sessions"].items():
            if "trouble" in found:
                yield Violation("unloadable", f"session {name}: {found['trouble']}")


def continues(history: History) -> Iterator[Violation]:
    """New saves succeed after recovery. Broken by: crashed, recovered, change, fail."""
    troubled = {event.life for event in history.of(Struck)}
    asked = {(e.life, e.op): e for e in history.of(Invoke, "change") if e.life > 0}
    if not asked:
        raise NothingToJudge
    for fail in history.of(Fail):
        if (fail.life, fail.op) in asked and fail.life not in troubled:
            change = asked[fail.life, fail.op].args
            what = f"{change['do']} {change.get('n', '')}".strip()
            yield Violation(
                "refused", f"session {change['session']}: {what} failed after the crash: {fail.error}"
            )


def idempotent(history: History) -> Iterator[Violation]:
    """Repeating an interrupted change makes no duplicate. Broken by: change, crashed, change, two of it."""
    ends = [look for look in looks(history) if look.probe.name == "end" and look.session.repeated]
    relevant = [look for look in ends if look.sequence() is not None]
    if not relevant:
        raise NothingToJudge
    for look in relevant:
        counts = Counter(look.numbers())
        for n in look.session.repeated:
            if counts[n] > 1:
                yield Violation(
                    "doubled", f"session {look.name}: save {n} was repeated and is stored {counts[n]} times"
                )


def fenced(history: History) -> Iterator[Violation]:
    """A paused old process cannot overwrite newer state. Broken by: its late save is the latest."""
    met = list(history.of(Probe, "zombie"))
    if not met:
        raise NothingToJudge
    for probe in met:
        data = probe.data
        if "trouble" in data:
            continue  # no second process can open it beside the old one: there is no newer state
        kept = data.get("items")
        if kept is not None:
            if not any(isinstance(item, list) and item[0] == data["before"] for item in kept):
                yield Violation(
                    "overwritten", f"append {data['before']} is gone after a late append by the old process"
                )
        elif data.get("load") != [data["before"]]:
            yield Violation(
                "overwritten",
                f"save {data['before']} was acknowledged to the new process, then the old one, paused"
                f" since before it, saved {data['late']}: the latest is now {data.get('load')}",
            )


def _saves(numbers: list[int]) -> str:
    return f"save{'s' * (len(numbers) > 1)} {_short(numbers)} {'were' if len(numbers) > 1 else 'was'}"


def _short(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return f"{shown}... ({len(numbers)})" if len(numbers) > 8 else shown


def _on_acknowledged(history: History) -> Iterator[Violation]:
    # Without an acknowledgement nothing can be lost; unreadable data may or may not be present.
    if not any(
        (look.session.acknowledged or look.session.gone) and "trouble" not in look.found
        for look in looks(history)
    ):
        raise NothingToJudge
    yield from _on_every_look(durable)(history)


def _on_sequences(history: History) -> Iterator[Violation]:
    if not any(look.sequence() is not None for look in looks(history)):
        raise NothingToJudge
    yield from _on_every_look(prefix)(history)


_on_acknowledged.__doc__ = durable.__doc__
_on_sequences.__doc__ = prefix.__doc__
DURABLE = Claim(
    name="durable",
    summary="what was acknowledged is not lost",
    check=_on_acknowledged,
    subject="store",
    aspect="prefix continuation",
)
ATOMIC = Claim(
    name="atomic",
    summary="a save is stored whole or not at all",
    check=_on_every_look(atomic),
    subject="store",
    aspect="checkpoint validity",
)
PREFIX = Claim(
    name="prefix",
    summary="no gaps, no reordering, no duplicates",
    check=_on_sequences,
    subject="store",
    aspect="prefix continuation",
)
LOADABLE = Claim(
    name="loadable",
    summary="opens and loads after any crash, without manual repair",
    check=loadable,
    subject="store",
    aspect="checkpoint validity",
)
CONTINUES = Claim(
    name="continues",
    summary="new saves work after a crash",
    check=continues,
    subject="store",
    aspect="recovery determinism",
)
ISOLATED = Claim(
    name="isolated",
    summary="sessions do not affect each other",
    check=_on_every_look(isolated),
    subject="store",
    aspect="",
)
IMMUTABLE = Claim(
    name="immutable",
    summary="older versions do not change",
    check=_on_every_look(immutable, "history"),
    subject="store",
    aspect="",
)
CONSISTENT = Claim(
    name="consistent",
    summary="records that belong together agree",
    check=_on_every_look(consistent, "records"),
    subject="store",
    aspect="",
)
IDEMPOTENT = Claim(
    name="idempotent",
    summary="repeating an interrupted save creates no duplicate",
    check=idempotent,
    subject="store",
    aspect="",
    basic=False,
)
FENCED = Claim(
    name="fenced",
    summary="a paused old process cannot overwrite newer state",
    check=fenced,
    subject="store",
    aspect="",
    basic=False,
)
