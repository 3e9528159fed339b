"""Claims about stores: what a certificate of a checkpointer or a session store examines.

Each claim is judged on every look at the store (`looks`). The adapter's methods determine which claims can
be judged: without `history` or `items`, order cannot be judged. Data that cannot be read at all is left to
`loadable`; the other claims then have nothing to judge.

Smallest histories that break them: see each claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from chaoskit.model import Claim, Ended, Fail, History, Invoke, NothingToJudge, Probe, Struck, Violation
from chaoskit_invariants.claims.looks import Look, looks, numbers


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
    """Acknowledged changes are present. Broken by: change acknowledged, crashed, a look without it.

    Acknowledged data that cannot be read counts as lost.
    """
    session = look.session
    if "trouble" in look.found:
        if session.required and not look.struck:
            kept = f"{_saves(session.required)} acknowledged"
            yield Violation("unreadable", f"{kept}, but cannot be read: {look.found['trouble']}")
        return
    yield from _latest(look)
    yield from _lost_before_deletion(look)
    for sequence in look.sequences().values():
        there = numbers(sequence)
        missing = [n for n in session.required if n not in there]
        if missing:
            yield Violation("lost", f"{_saves(missing)} acknowledged, but {_is_or_are(missing)} missing")
        returned = [n for n in there if n in session.gone]
        if returned:
            still = f"save{'s' * (len(returned) > 1)} {_short(returned)} {_is_or_are(returned)} still stored"
            yield Violation("returned", f"the deletion was acknowledged, but {still}")


def _latest(look: Look) -> Iterator[Violation]:
    if "load" not in look.found:
        return
    found, last = look.latest, look.session.last
    if isinstance(found, str):
        if last is not None:
            yield Violation("lost", f"save {last} was acknowledged, but the latest stored is {found}")
    elif found is None:
        if last is not None:
            yield Violation("lost", f"save {last} was acknowledged, but nothing is stored")
    elif found[0] in look.session.gone:
        yield Violation("returned", f"the deletion was acknowledged, but save {found[0]} is still stored")
    elif last is not None and look.session.is_older(found[0], last):
        yield Violation("lost", f"save {last} was acknowledged, but the latest stored is {found[0]}")


def atomic(look: Look) -> Iterator[Violation]:
    """Each change is stored whole or not at all. Broken by: change interrupted, a look with half of it."""
    latest = look.found.get("load")
    if isinstance(latest, str) and not latest.startswith("of session"):
        yield Violation("half", f"the latest state is {latest}")
    history = look.sequences().get("history")
    if history and _is_damaged(history[-1]):
        yield Violation("half", f"the latest version is {history[-1]}")
    yield from _whole_groups(look.sequences().get("items", ()))
    yield from _half_deleted(look)


def _half_deleted(look: Look) -> Iterator[Violation]:
    """A deletion that was interrupted has happened or not: part of what it was to remove is neither."""
    for text, tail_is_missing in _left_behind(look):
        if not (look.lost_power and tail_is_missing):
            yield Violation("half-deleted", f"a deletion was interrupted, and {text}")


def _lost_before_deletion(look: Look) -> Iterator[Violation]:
    """After a power loss, the latest saves may be missing because they were lost, not because they were the
    first to be deleted. They were acknowledged, and no deletion was."""
    for text, tail_is_missing in _left_behind(look):
        if look.lost_power and tail_is_missing:
            yield Violation("lost", f"no deletion was completed, and {text}")


def _left_behind(look: Look) -> Iterator[tuple[str, bool]]:
    """What an open deletion left, if that is neither everything nor nothing; and whether only the latest of
    the acknowledged saves are missing."""
    session = look.session
    if not session.may_be_gone or look.is_empty or "trouble" in look.found:
        return
    before = [n for n in session.acknowledged if n in session.may_be_gone]
    shown = look.latest
    if before and isinstance(shown, list) and session.is_older(shown[0], before[-1]):
        yield f"save {shown[0]} is left as the latest of {_short(before)}", True
    for sequence in look.sequences().values():
        there = [n for n in before if n in numbers(sequence)]
        if there and there != before:
            yield f"{_short(there)} of saves {_short(before)} are left", there == before[: len(there)]


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
    """Changes appear once each, in the order they were made. Broken by: a look that finds 2 before 1."""
    for sequence in look.sequences().values():
        yield from _prefix_of(look, sequence)


def _prefix_of(look: Look, sequence: Sequence[list[int] | str]) -> Iterator[Violation]:
    there = numbers(sequence)
    if not _is_in_order(look, dict.fromkeys(there)):  # each once: duplicates are left to `idempotent`
        yield Violation("reordered", f"the saves are stored in the order {_short(there)}")
    for one, next_one in pairwise(sequence):
        if isinstance(one, list) and isinstance(next_one, list) and _is_swapped(one, next_one):
            yield Violation("reordered", f"in append {one[0]}, item {next_one[1]} follows item {one[1]}")
    for n, times in Counter(there).items():
        made = look.session.asked.count(n)
        if times > max(1, made) and n not in look.session.repeated:
            yield Violation("doubled", f"save {n} was made {_times(made)}, but is stored {_times(times)}")
    strangers = [n for n in there if n not in look.session.asked]
    if strangers:
        yield Violation("unasked", f"save {strangers[0]} is stored, but was never made")


def _is_swapped(one: list[int], other: list[int]) -> bool:
    """Two neighbours of one append whose parts do not follow each other; a repeat begins with part 0."""
    same_append = len(one) == len(other) == 3 and one[0] == other[0]
    return same_append and other[1] not in (0, one[1] + 1)


def _is_in_order(look: Look, numbers: Iterable[int]) -> bool:
    here = -1
    for places in filter(None, map(look.session.places, numbers)):
        later = [place for place in places if place > here]
        if not later:
            return False
        here = later[0]
    return True


def immutable(history: History) -> Iterator[Violation]:
    """Older versions never change. Broken by: a look at version 1 of 2 that reads differently; or by two
    looks of one life, of which the second has another version in the place of one that the first had."""
    relevant = [look for look in looks(history) if "history" in look.found]
    if not relevant:
        raise NothingToJudge
    earlier: dict[tuple[str, int], Look] = {}
    for look in relevant:
        for number, found in enumerate(look.found["history"][:-1], 1):
            if _is_damaged(found):
                yield Violation("changed", f"session {look.name}: version {number} is {found}")
        before = earlier.get((look.name, look.probe.life))
        if before and not look.struck:
            yield from _replaced(before, look)
        earlier[look.name, look.probe.life] = look


def _replaced(before: Look, after: Look) -> Iterator[Violation]:
    """What was the oldest may be pruned, and what was the latest may be lost: neither is a replacement."""
    first, second = (numbers(look.found["history"]) for look in (before, after))
    deleted = after.session.gone | after.session.may_be_gone
    kept = [n for n in first if n in second]
    newer = [n for n in second if n not in first]
    for n in first:
        between = kept and newer and first.index(n) > first.index(kept[0])
        if n not in second and n not in deleted and between:
            yield Violation(
                "replaced",
                f"session {after.name}: version {n} was in the history, and {newer[0]} is there instead",
            )


def isolated(look: Look) -> Iterator[Violation]:
    """Sessions do not affect each other. Broken by: a look at one that finds a save of another."""
    for found in [look.latest, *(each for sequence in look.sequences().values() for each in sequence)]:
        if isinstance(found, str) and found.startswith("of session"):
            yield Violation("foreign", f"contains data {found}")


def consistent(look: Look) -> Iterator[Violation]:
    """Records that belong together agree. Broken by: records with different values."""
    values = list(look.found["records"].values())
    if any(value != values[0] for value in values):
        yield Violation("disagree", f"its records disagree: {look.found['records']}")


def loadable(history: History) -> Iterator[Violation]:
    """Opens and loads after any crash without manual repair. Broken by: crashed, recovered with trouble.

    A life that hangs, exits or dies before it has loaded its sessions also breaks this claim, unless it had
    already begun a change. A life whose disk is full or failing may refuse to open the store; the next life
    may not.
    """
    judged = False
    changing = {event.life for event in history.of(Invoke, "change")}
    for life, ending in _restarts(history).items():
        probes = [p for p in history.of(Probe) if p.life == life and "sessions" in p.data]
        end = None if life in changing else ending
        judged = judged or bool(probes or end)
        for probe in probes:
            if "trouble" in probe.data:
                trouble = probe.data["trouble"]
                yield Violation("closed", f"the store cannot be opened after the crash: {trouble}")
            for name, found in probe.data["sessions"].items():
                if "trouble" in found:
                    yield Violation("unloadable", f"session {name}: {found['trouble']}")
        if not probes and end:
            yield Violation("closed", f"the store cannot be opened after the crash: the process {_how(end)}")
    if not judged:
        raise NothingToJudge


def continues(history: History) -> Iterator[Violation]:
    """New saves succeed after recovery. Broken by: crashed, recovered, change, fail.

    Any failure to continue is a violation: a store that cannot be opened, a process that hangs or exits, or
    an error in `close`.
    """
    lives = _restarts(history)
    asked = {(e.life, e.op): e for e in history.of(Invoke, "change") if e.life in lives}
    closed = [p for p in history.of(Probe) if p.life in lives and "trouble" in p.data]
    ended = {life: end for life, end in lives.items() if end}
    if not asked and not closed and not ended:
        raise NothingToJudge
    for probe in closed:
        yield Violation("refused", f"nothing can be saved after the crash: {probe.data['trouble']}")
    for fail in history.of(Fail):
        if (fail.life, fail.op) in asked:
            change = asked[fail.life, fail.op].args
            what = f"{change['do']} {change.get('n', '')}".strip()
            yield Violation(
                "refused", f"session {change['session']}: {what} failed after the crash: {fail.error}"
            )
    for end in ended.values():
        yield Violation("refused", f"after the crash the process {_how(end)}")


def _restarts(history: History) -> dict[int, Ended | None]:
    """Lives after a crash that no fault disturbed, and how each ended if it did not end well."""
    struck = {event.life for event in history.of(Struck)}
    ends = {end.life: end for end in history.of(Ended)}
    lives = {event.life for event in history.events if event.life > 0 and event.life not in struck}
    return {
        life: ends[life] if life in ends and ends[life].how in ("failed", "hung", "died") else None
        for life in sorted(lives)
    }


def _how(end: Ended) -> str:
    reason = end.detail.strip().splitlines()[-1:]
    return ": ".join([{"hung": "hangs", "died": "dies"}.get(end.how, "fails"), *reason])


def idempotent(history: History) -> Iterator[Violation]:
    """Repeating an interrupted change adds no duplicate. Broken by: change, crashed, change, two copies.

    A state that is saved again after newer ones replaces them: that is a version of its own."""
    repeated = [look for look in looks(history) if look.session.repeated.keys() - look.session.brought_back]
    relevant = [look for look in repeated if look.sequences() and look.probe.name == "end"]
    if not relevant:
        raise NothingToJudge
    for look in relevant:
        for sequence in look.sequences().values():
            counts = Counter(numbers(sequence))
            for n in sorted(look.session.repeated.keys() - look.session.brought_back):
                if counts[n] > look.session.made(n):
                    times = f"save {n} was repeated, and is now stored {counts[n]} times"
                    yield Violation("doubled", f"session {look.name}: {times}")


def fenced(history: History) -> Iterator[Violation]:
    """A paused old process cannot overwrite newer state. Broken by: its late save is the latest."""
    met = list(history.of(Probe, "zombie"))
    if not met:
        raise NothingToJudge
    for probe in met:
        data = probe.data
        if "refused" in data and data["refused"] is None:
            continue  # no second process can open it beside the old one: there is no newer state
        if "trouble" in data:
            yield Violation(
                "unreadable", f"after the old process's late save, nothing can be read: {data['trouble']}"
            )
            continue
        kept = data.get("items")
        if kept is not None:
            if not any(isinstance(item, list) and item[0] == data["before"] for item in kept):
                yield Violation(
                    "overwritten", f"append {data['before']} is gone after a late append by the old process"
                )
        elif data.get("load") != [data["before"]]:
            yield Violation(
                "overwritten",
                f"the new process's save {data['before']} was acknowledged, then the old process, paused"
                f" since before that, saved {data['late']}: the latest is now {data.get('load')}",
            )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _saves(numbers: list[int]) -> str:
    return f"save{'s' * (len(numbers) > 1)} {_short(numbers)} {'were' if len(numbers) > 1 else 'was'}"


def _is_or_are(numbers: list[int]) -> str:
    return "are" if len(numbers) > 1 else "is"


def _short(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return f"{shown}... ({len(numbers)})" if len(numbers) > 8 else shown


def _on_acknowledged(history: History) -> Iterator[Violation]:
    # Without an acknowledgement nothing can be lost.
    if not any(look.session.acknowledged or look.session.gone for look in looks(history) if not look.struck):
        raise NothingToJudge
    yield from _on_every_look(durable)(history)


def _on_sequences(history: History) -> Iterator[Violation]:
    if not any(look.sequences() for look in looks(history)):
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
    name="immutable", summary="older versions do not change", check=immutable, subject="store", aspect=""
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
