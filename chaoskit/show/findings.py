"""Findings for display: each once, with all its tiers; findings of the same crash are grouped. Pure.

One bug violates several invariants in several tiers, but should be shown once: the invariant that the
scenario names first is shown in full, and the other findings of the same crash are listed below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from chaoskit.certify.certificate import CertifiedFinding
from chaoskit.repro import short_id
from chaoskit.search.result import Witness
from chaoskit.show.systems import merged
from chaoskit.show.wrapping import shortened
from chaoskit.story import operations, tell, until_last_crash

MOST = 10  # findings shown by default
MOST_CHARACTERS = 400  # of a message
LONGEST_WORD = 70  # of a message
OPERATIONS = 30  # of a fuzz; the JSON has all of them


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One finding in one tier."""

    signature: str
    tier: str
    times: int
    message: str
    token: str
    crash: str  # the fault and its point
    story: tuple[str, ...] = ()
    hint: tuple[str, ...] = ()
    label: str = ""  # of a certificate: promise broken, or hazard
    promise: str = ""
    kept: str = ""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    entry: Entry  # of the first tier
    tiers: dict[str, int]  # tier -> number of runs that found it
    related: tuple[Entry, ...] = ()  # other findings of the same crash


def of_witness(witness: Witness, *, with_operations: bool) -> Entry:
    asked = _operations(witness) if with_operations else ()
    return Entry(
        signature=witness.finding.signature,
        tier=witness.tier,
        times=witness.times,
        message=witness.finding.message,
        token=witness.token,
        crash=str(witness.schedule),
        story=(*tell(witness.events), *asked),
        hint=tuple(str(witness.hint).splitlines()) if witness.hint else (),
        kept=witness.kept or "",
    )


def _operations(witness: Witness) -> tuple[str, ...]:
    asked = operations(until_last_crash(witness.events))
    more = f", the last {OPERATIONS} of {len(asked)}" if len(asked) > OPERATIONS else ""
    return (f"operations (--seed {witness.seed}){more}:", *(f"  {line}" for line in asked[-OPERATIONS:]))


def of_certified(finding: CertifiedFinding) -> Entry:
    return Entry(
        signature=f"{finding.claim}/{finding.kind}",
        tier=finding.tier,
        times=finding.times,
        message=finding.message,
        token=finding.repro,
        crash=f"{finding.fault} {finding.point}",
        story=finding.story,
        hint=finding.hint,
        label="promise broken" if finding.promise is not None else "hazard",
        promise=f"{finding.promise} ({finding.where})" if finding.promise is not None else "",
    )


def grouped(entries: Iterable[Entry]) -> list[Shown]:
    """Broken promises before hazards, else in the given order."""
    same: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        same.setdefault((entry.label, entry.signature), []).append(entry)
    explaining: dict[tuple[str, str], list[list[Entry]]] = {}
    for (label, _), tiers in sorted(same.items(), key=lambda item: item[0][0] == "hazard"):
        explaining.setdefault((label, tiers[0].crash), []).append(tiers)
    return [_shown(findings) for findings in explaining.values()]


def _shown(findings: Sequence[Sequence[Entry]]) -> Shown:
    (first, *others) = findings
    shortest = min(first, key=lambda entry: len(entry.story))  # the easiest to read
    tiers = {entry.tier: entry.times for entry in first}
    hint = merged(shortest.hint, (entry.hint for entry in first), tiers)
    return Shown(
        entry=msgspec.structs.replace(shortest, hint=hint),
        tiers=tiers,
        related=tuple(tiers[0] for tiers in others),
    )


def lines(shown: Shown) -> list[str]:
    """All lines below the title."""
    entry = shown.entry
    found = [f"  {middle(entry.message)}"]
    if entry.promise:
        found.append(f"  promised: {entry.promise}")
    found += [f"    {line}" for line in (*entry.story, *entry.hint)]
    found += [f"  also: {other.signature}: {middle(other.message)}" for other in shown.related]
    if entry.kept:
        found.append(f"  files of this run: {entry.kept}")
    return [*found, f"  chaoskit replay {short_id(entry.token)}"]


def where(shown: Shown) -> str:
    """`[process, torn] (12 runs)`"""
    runs = sum(shown.tiers.values())
    return f"[{', '.join(shown.tiers)}]" + (f" ({runs} runs)" if runs > 1 else "")


def middle(text: str, most: int = MOST_CHARACTERS) -> str:
    """Shortened in the middle, so that both ends can be read; and each word, so that it fits on a line."""
    if len(text) > most:
        half = most // 2
        text = f"{text[:half]}... ({len(text):,} characters) ...{text[-half:]}"
    return " ".join(shortened(word, LONGEST_WORD) for word in text.split(" "))
