"""Writes docs/registry.md from the registries, and the table of docs/power-loss.md from what was measured;
tests check that both are up to date."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from chaoskit import registry
from chaoskit.faults.kind import kinds
from chaoskit.model import Claim
from chaoskit.search.tiers import tiers

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "registry.md"
FIRE_DRILL = DOCS / "fire-drill.md"
NAMES = Path(__file__).parent / "requirement-names.txt"
# Requirements of the agent that no history can violate, and what proves them instead.
NOT_JUDGED = {
    "O6": "is a rule about imports: `ci/check`",
    "S5": "is how the scenario `tree` is swept",
    "S6": "is the list of its invariants",
    "S7": "is how it is fuzzed",
    "S8": "is how pytest runs it",
}
POWER_LOSS = DOCS / "power-loss.md"


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


def requirements() -> dict[str, str]:
    lines = [line for line in NAMES.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split(" ", 1) for line in lines)


def promises() -> dict[str, str]:
    """The requirements of the agent that a history can violate."""
    return {name: text for name, text in requirements().items() if name[0] != "C" and name not in NOT_JUDGED}


def fire_drill() -> str:
    mutants = {mutant.name: mutant for s in registry.scenarios().values() for mutant in s.mutants}
    rows = []
    for name, text in promises().items():
        bugs = [mutant for mutant in mutants.values() if name in mutant.violates and mutant.drill]
        judges = sorted({mutant.breaks for mutant in bugs})
        scenarios = sorted({mutant.drill.scenario for mutant in bugs if mutant.drill})
        faults = sorted({fault for mutant in bugs if mutant.drill for fault in mutant.drill.faults})
        rows.append(
            (
                f"{name} {text}",
                *(", ".join(each) for each in (judges, scenarios, faults)),
                ", ".join(mutant.name for mutant in bugs),
            )
        )
    head = ("requirement", "judged by", "in scenario", "under faults", "mutants that violate it")
    return "\n".join(list(table("Table", head, rows))[3:]) + "\n"


def drills() -> str:
    mutants = {mutant.name: mutant for s in registry.scenarios().values() for mutant in s.mutants}
    lines = [f"- `{m.drill.command(m.name)}`: {m.summary}" for m in mutants.values() if m.drill]
    return "\n".join(lines) + "\n"


def not_judged() -> str:
    return "\n".join(f"- {name}: {why}" for name, why in NOT_JUDGED.items()) + "\n"


def measured() -> str:
    """What is left after a save had returned, with counts; what may be found if it had not."""
    data = json.loads((DOCS / "power-loss.json").read_text())
    systems = list(data["systems"])
    lines = [f"| way | {' | '.join(systems)} |", f"|---|{'---|' * len(systems)}"]
    for name, title in data["ways"].items():
        cells = [_cell(data["systems"][system][name]) for system in systems]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    disks = sum(row["disks"] for rows in data["systems"].values() for row in rows.values())
    lines += ["", f"Linux {data['kernel']}, default options, {disks:,} disks mounted and read."]
    return "\n".join(lines) + "\n"


def stores() -> str:
    """What whole stores kept on real file systems."""
    data = json.loads((DOCS / "power-loss.json").read_text())["stores"]
    lines = [f"| store | {' | '.join(data)} |", f"|---|{'---|' * len(data)}"]
    for name in next(iter(data.values())):
        rows = [data[system][name] for system in data]
        agrees = [row["real"].keys() <= row["model"].keys() for row in rows]
        cells = [
            ", ".join(f"{_loud(verdict)} {times}" for verdict, times in row["real"].items())
            + ("" if fine else " (not in the model)")
            for row, fine in zip(rows, agrees, strict=True)
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _loud(verdict: str) -> str:
    return verdict if verdict == "holds" else f"**{verdict}**"


def _cell(row: dict) -> str:  # type: ignore[type-arg]
    """Bold: the save has returned, and neither the old nor the new content is there."""
    bad = {"damaged", "empty", "zeros", "missing"}
    found = {**dict.fromkeys(row["after_in_model"], 0), **row["after"]}
    order = sorted(found, key=lambda outcome: (outcome not in ("new", "old"), outcome))
    parts = [
        f"**{outcome}** {found[outcome]}" if outcome in bad else f"{outcome} {found[outcome]}"
        for outcome in order
    ]
    risky = [outcome for outcome in row["during_in_model"] if outcome in bad]
    return ", ".join(parts) + (f"; meanwhile: {', '.join(risky)}" if risky else "")


TABLES = {
    "measured": measured,
    "stores": stores,
    "requirements": fire_drill,
    "not judged": not_judged,
    "drills": drills,
}


def with_tables(text: str) -> str:
    for mark in re.findall("<!-- ([a-z ]+) -->", text):
        if mark not in TABLES:
            continue
        table = TABLES[mark]()
        parts = f"(?s)(<!-- {mark} -->\\n).*?(<!-- end -->\\n)"
        text = re.sub(parts, lambda m, table=table: f"{m[1]}\n{table}\n{m[2]}", text)
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
    for generated in (POWER_LOSS, FIRE_DRILL):
        generated.write_text(with_tables(generated.read_text()))
