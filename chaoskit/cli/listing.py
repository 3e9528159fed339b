"""`chaoskit list`: the contents of the registries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rich_click as click
from rich.table import Table
from rich.text import Text

from chaoskit import registry
from chaoskit.cli.options import Seed, json_option, write_json
from chaoskit.faults.kind import kinds
from chaoskit.model import Mutant, Scenario
from chaoskit.search import campaign
from chaoskit.search.tiers import tiers
from chaoskit.settings import Settings
from chaoskit.show.terminal import Terminal
from chaoskit.wrong_use import WrongUse

HEADS = {"mutants": "what is wrong with it", "points": "how often the run passes it"}
LISTS = ["scenarios", "targets", "invariants", "claims", "tiers", "faults", "mutants", "points"]


@click.command("list")
@click.argument("what", type=click.Choice(LISTS), metavar="WHAT")
@click.argument("scenario", required=False)
@click.option("--seed", type=Seed(), default="0", show_default=True, help="For points: the seed of the run.")
@click.option("--syscalls", is_flag=True, help="For points: every operation on the target's files.")
@click.option("--store", metavar="KIND", help="For points: the kind of store to use.")
@json_option
def list_(what: str, scenario: str | None, syscalls: bool, json_file: str | None, **options: Any) -> None:
    """List scenarios, targets, claims, tiers, faults..., or the points of a SCENARIO.

    WHAT is one of: scenarios, targets, invariants, claims, tiers, faults, mutants, points.

    `list points SCENARIO` runs the scenario once, without faults, and lists its persist points.

    Examples: `chaoskit list targets`, `chaoskit list points payments --syscalls`

    Exit codes: 0 listed, 2 usage error, 3 the scenario cannot be run.
    """
    rows = _rows(what, scenario, points="syscalls" if syscalls else "named", **options)
    if json_file:
        write_json([dict(zip(("name", "summary"), row, strict=True)) for row in rows], json_file)
        return
    console = Terminal().console
    if not console.is_terminal:  # a line each, for other programs
        width = max((len(name) for name, _ in rows), default=0)
        for name, summary in rows:
            click.echo(f"{name:<{width}}  {summary}")
        return
    table = Table("name", HEADS.get(what, "what it is"), box=None, pad_edge=False, header_style="bold")
    for name, summary in rows:
        table.add_row(Text(name), Text(summary))
    console.print(table)


def _rows(what: str, scenario: str | None, **options: Any) -> list[tuple[str, str]]:
    if what == "points":
        if not scenario:
            raise WrongUse("list points needs a scenario, e.g.: chaoskit list points payments")
        return _points(Settings(scenario=scenario, **options))
    if what == "mutants":
        return _mutants([scenario] if scenario else list(registry.scenarios()))
    return SUMMARIES[what]()


def _mutants(scenarios: list[str]) -> list[tuple[str, str]]:
    found = {m.name: m for name in scenarios for m in registry.scenario(name).mutants}
    return [
        (m.name, f"{m.summary} (caught by {m.breaks}{_stores(m, '; ')}){_drill(m)}") for m in found.values()
    ]


def _drill(mutant: Mutant) -> str:
    return f": {mutant.drill.command(mutant.name)}" if mutant.drill else ""


def _scenarios() -> list[tuple[str, str]]:
    every = registry.scenarios().values()
    return [(s.name, f"{s.summary}{_stores(s, ' (')}{')' * bool(s.stores)}") for s in every]


SUMMARIES: dict[str, Callable[[], list[tuple[str, str]]]] = {
    "scenarios": _scenarios,
    "targets": lambda: [(name, registry.adapter(name).summary) for name in registry.targets()],
    "invariants": lambda: [(name, each.summary) for name, each in registry.invariants().items()],
    "claims": lambda: [(c.name, f"{c.summary} ({c.subject}s)") for c in registry.claims().values()],
    "tiers": lambda: [(name, tier.summary) for name, tier in tiers().items()],
    "faults": lambda: [(name, kind.summary) for name, kind in kinds().items()],
}


def _stores(thing: Scenario | Mutant, before: str) -> str:
    """The kinds of store that it supports, if it names any."""
    return f"{before}store: {', '.join(thing.stores)}" if thing.stores else ""


def _points(settings: Settings) -> list[tuple[str, str]]:
    counts: dict[str, int] = {}
    for firing in campaign.points(registry.resolve(settings)):
        counts[firing.point.name] = max(counts.get(firing.point.name, 0), firing.point.nth)
    return [(name, f"{times} time{'s' * (times != 1)}") for name, times in counts.items()]
