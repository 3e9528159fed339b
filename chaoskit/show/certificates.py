"""A certificate on the terminal: the table, each finding, the facts, the headline."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from chaoskit.certify.certificate import Certificate, CertifiedFinding
from chaoskit.search.tiers import tiers
from chaoskit.show import pages
from chaoskit.show.terminal import STYLE, Terminal

SIGNS = {"holds": "green", "VIOLATED": "bold red", "hazard": "yellow", "unknown": "bold yellow"}


def show(c: Certificate, terminal: Terminal) -> None:
    table = Table("claim", *c.tiers, title=None)
    for claim in c.claims:
        signs = [c.sign(claim, tier) for tier in c.tiers]
        table.add_row(claim, *(Text(sign, SIGNS.get(sign, "dim")) for sign in signs))
    covered = [f"{c.coverage[t].states}{' (all)' * c.coverage[t].complete}" for t in c.tiers]
    table.add_section()
    table.add_row("crashes", *covered, style="dim")
    terminal.console.print(table)
    for finding in c.findings:
        _show_finding(finding, terminal)
    for doubt in c.unknown:
        terminal.plain(f"unknown: {doubt}")
    if c.suite:
        terminal.plain(f"- beside it, {c.suite['name']}: {c.suite['verdict']}")
    for line in pages.facts(c):
        terminal.plain(line)
    verdict, rest = c.verdict.value, c.headline().removeprefix(c.verdict.value)
    terminal.console.print(Text.assemble("\nverdict: ", (verdict, STYLE[c.verdict]), rest), soft_wrap=True)


def _show_finding(finding: CertifiedFinding, terminal: Terminal) -> None:
    kind = "promise broken" if finding.promise else "hazard"
    title = (f"{finding.claim}/{finding.kind}", "bold red" if finding.promise else "yellow")
    terminal.console.print(Text.assemble("\n", title, f" [{finding.tier}] {kind}"))
    terminal.plain(f"  {finding.message}")
    if finding.promise:
        terminal.plain(f"  promised: {finding.promise} ({finding.where})")
    note = tiers()[finding.tier].note if finding.tier in tiers() else ""
    if note:
        terminal.plain(f"  {note}")
    for line in (*finding.story, *finding.hint):
        terminal.console.print(f"    {line}", style="dim", soft_wrap=True, markup=False)
    terminal.plain(f"  chaoskit replay {finding.repro}")
