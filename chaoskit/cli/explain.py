"""`chaoskit explain WORD`: explains a verdict, claim, invariant, tier, fault or scenario."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import rich_click as click

from chaoskit import registry
from chaoskit.entry_points import UnknownName, unknown
from chaoskit.faults.kind import kinds
from chaoskit.model import Claim
from chaoskit.search.tiers import tiers
from chaoskit.show.terminal import Terminal

VERDICTS = {
    "HOLDS": "Every run was judged, and none shows a violation. Exit code 0.",
    "VIOLATED": "A run shows a violation, and a real crash reproduces it. Exit code 1.",
    "UNKNOWN": "No verdict is possible: a planned fault did not fire, something could not be observed or"
    " judged, or nothing ran. UNKNOWN is never a pass. Exit code 3.",
    "NOT_MEASURED": "No run tested this claim.",
}


@click.command()
@click.argument("word")
def explain(word: str) -> None:
    """Explain WORD: a verdict, claim, invariant, tier, fault or scenario.

    Prints its definition, the smallest history that violates it, and what it cannot detect.

    Examples: `chaoskit explain durable`, `chaoskit explain power-posix`

    Exit codes: 0 explained, 2 no such word.
    """
    known = {**dict.fromkeys(VERDICTS, _verdict), **_known()}
    by_any_case = {name.lower(): name for name in known}
    name = by_any_case.get(registry.current_name(word.lower()))
    if name is None:
        raise UnknownName(unknown("word", word, sorted(known)))
    terminal = Terminal()
    for line in known[name](name):
        terminal.show(line, hang="")


Explained = Iterator[str]


def _known() -> dict[str, Callable[[str], Explained]]:
    return {
        **dict.fromkeys(registry.scenarios(), _scenario),
        **dict.fromkeys(registry.invariants(), _invariant),
        **dict.fromkeys(tiers(), _tier),
        **dict.fromkeys(kinds(), _fault),
    }


def _verdict(name: str) -> Explained:
    yield f"{name}, a verdict. HOLDS < UNKNOWN < VIOLATED; the worst of several verdicts counts."
    yield VERDICTS[name]


def _invariant(name: str) -> Explained:
    found = registry.invariant(name)
    if isinstance(found, Claim):
        yield f"{name}, a claim about {found.subject}s: {found.summary}."
        yield ""
        yield from _documentation(found.check)
        yield ""
        if found.basic:
            yield "Counts for an adapter that promises it, and for every adapter that declares no promises."
        else:
            yield "Counts only for an adapter that promises it."
    else:
        yield f"{name}, an invariant: {found.summary}."
        yield ""
        yield from _documentation(inspect.getmodule(found.check))


def _tier(name: str) -> Explained:
    tier = tiers()[name]
    yield f"{name}, a tier: {tier.summary}."
    if tier.note:
        yield f"Note on its findings: {tier.note}."
    if not tier.default:
        yield f"Tested only on request: chaoskit certify TARGET --tiers {name}"


def _fault(name: str) -> Explained:
    kind = kinds()[name]
    yield f"{name}, a fault: {kind.summary}."
    yield ""
    yield from _documentation(inspect.getmodule(kind.data))
    yield ""
    yield f"Try it: chaoskit run payments --fault {name}"


def _scenario(name: str) -> Explained:
    found = registry.scenario(name)
    yield f"{name}, a scenario: {found.summary}."
    yield f"Judged by: {', '.join(found.invariants)}"
    yield f"Try it: chaoskit run {name}"


def _documentation(thing: Any) -> Explained:
    """Paragraphs as one line each, to be wrapped; an indented or a listed line stays a line of its own."""
    text = inspect.getdoc(thing) or ""
    yield from re.sub(r"(?<=\S)\n(?=[^\s*-])", " ", text).split("\n")
