"""Writes docs/registry.md from the registries; a test checks that it is up to date."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from chaoskit import registry
from chaoskit.faults.kind import kinds
from chaoskit.model import Claim
from chaoskit.search.tiers import tiers

PAGE = Path(__file__).parent.parent / "docs" / "registry.md"


def table(title: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield from ("", f"## {title}", "")
    for row in (head, ("---",) * len(head), *rows):
        yield f"| {' | '.join(row)} |"


def page() -> str:
    scenarios = list(registry.scenarios().values())
    invariants = [i for i in registry.invariants().values() if not isinstance(i, Claim)]
    mutants = [
        (s.name, m.name, m.breaks, m.summary)
        for s in scenarios
        for m in s.mutants
        if not m.stores or set(m.stores) & set(s.stores)
    ]
    lines = ["# Registry", "", "Generated from the registries by `python ci/tables.py`."]
    lines += table(
        "Scenarios",
        ("name", "what it does", "stores"),
        [(s.name, s.summary, ", ".join(s.stores)) for s in scenarios],
    )
    lines += table("Invariants", ("name", "what must hold"), [(i.name, i.summary) for i in invariants])
    claims = registry.claims().values()
    lines += table(
        "Claims",
        ("name", "what must hold", "for", "property", "applies without a promise"),
        [(c.name, c.summary, f"{c.subject}s", c.aspect, "yes" if c.basic else "no") for c in claims],
    )
    lines += table(
        "Tiers",
        ("name", "what is done", "in a certificate"),
        [(t.name, t.summary, "yes" if t.default else "on request") for t in tiers().values()],
    )
    adapters = [registry.adapter(name) for name in registry.targets()]
    lines += table(
        "Targets",
        ("name", "what it is", "kind", "needs"),
        [(a.name, a.summary.strip(), a.subject, ", ".join(a.requires) or "nothing") for a in adapters],
    )
    lines += table(
        "Faults", ("name", "what it leaves behind"), [(k.name, k.summary) for k in kinds().values()]
    )
    lines += table("Mutants", ("scenario", "name", "caught by", "its bug"), mutants)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
