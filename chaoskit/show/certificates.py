"""A certificate on the terminal: the table, each finding, the facts, the headline."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from chaoskit.certify.certificate import UNDISTURBED, Certificate
from chaoskit.search.result import Coverage
from chaoskit.show import pages
from chaoskit.show.findings import of_certified
from chaoskit.show.terminal import STYLE, Terminal

SIGNS = {"holds": "green", "VIOLATED": "bold red", "hazard": "yellow", "unknown": "bold yellow"}


def show(c: Certificate, terminal: Terminal, *, verbose: bool = False) -> None:
    measured = [tier for tier in c.columns if tier == UNDISTURBED or c.coverage[tier].states]
    # Long names break at the hyphen, so that eight tiers fit in 80 columns.
    heads = [tier.replace("-", "-\n") for tier in measured]
    table = Table("claim", *heads, box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for claim in c.measured():
        signs = [c.sign(claim, tier) for tier in measured]
        table.add_row(claim, *(Text(sign, SIGNS.get(sign, "dim")) for sign in signs))
    parts = [c.coverage.get(tier) for tier in measured]
    covered = [_covered(part) for part in parts]
    table.add_row("crashes", *covered, style="dim")
    if any(part and part.extra for part in parts):
        table.add_row("long run", *(str(part.extra or "") if part else "" for part in parts), style="dim")
    terminal.console.print(table)
    left_out = [f"{tier} ({c.coverage[tier].why})" for tier in c.tiers if tier not in measured]
    unmeasured = [claim for claim in c.claims if claim not in c.measured()]
    for what, names in (
        ("tiers in which no crash was judged", left_out),
        ("claims not measured", unmeasured),
    ):
        if names:
            terminal.show(f"{what}: {', '.join(names)}")
    terminal.findings(map(of_certified, c.findings), verbose=verbose)
    for reason in c.reasons():
        terminal.show(f"unknown: {reason}")
    if c.suite:
        terminal.show(f"- the vendor's own suite, {c.suite['name']}: {c.suite['verdict']}")
    for line in pages.facts(c):
        terminal.show(line)
    verdict, rest = c.verdict.value, c.headline().removeprefix(c.verdict.value)
    terminal.show(Text.assemble("\nverdict: ", (verdict, STYLE[c.verdict]), rest))


def _covered(part: Coverage | None) -> str:
    """`480 all`, `52/480`, or the size of a sample."""
    if part is None:
        return ""
    if part.complete:
        return f"{part.states} all"
    return f"{part.states}/{part.possible}" if part.possible else str(part.states)
