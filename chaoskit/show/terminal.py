"""Results for people: progress while it runs, a table, findings with their story, the line to paste.

Colours and the moving bar appear on a terminal only; elsewhere the same words come as plain lines.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from chaoskit.model import Verdict
from chaoskit.search.campaign import Progress as OnProgress, SoFar
from chaoskit.search.result import Result, Tally, Witness
from chaoskit.settings import Settings
from chaoskit.story import operations, tell, until_last_crash

STYLE = {
    Verdict.HOLDS: "bold green",
    Verdict.UNKNOWN: "bold yellow",
    Verdict.VIOLATED: "bold red",
    Verdict.NOT_MEASURED: "dim",
}
PLAIN_INTERVAL = 10.0  # seconds between progress lines when nobody watches a bar
OPERATIONS = 30  # of a finding that are shown; the JSON has them all


class Terminal:
    def __init__(self, *, to_stderr: bool = False) -> None:
        """`to_stderr`: when the result itself goes to standard output as JSON."""
        self._out = sys.stderr if to_stderr else sys.stdout
        interactive = self._out.isatty()
        self.console = Console(
            file=self._out, width=None if interactive else 160, highlight=False, emoji=False
        )

    def plain(self, text: str) -> None:
        """A line as it is: no markup, no wrapping."""
        self.console.print(text, soft_wrap=True, markup=False)

    def header(self, settings: Settings) -> None:
        """The seed and every option in force, before anything else."""
        self.console.print(Text(f"chaoskit run {settings.command_line()}", "bold"), soft_wrap=True)

    @contextmanager
    def progress(self, label: str) -> Iterator[OnProgress]:
        if not self.console.is_terminal:
            yield self._plain_progress(label)
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[said]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task(label, total=None, said="")
            yield lambda so_far: bar.update(
                task, completed=so_far.runs, total=so_far.planned, said=progress_line(so_far)
            )

    def _plain_progress(self, label: str) -> OnProgress:
        last = time.monotonic()

        def on_progress(so_far: SoFar) -> None:
            nonlocal last
            if time.monotonic() - last > PLAIN_INTERVAL:
                last = time.monotonic()
                self.console.print(f"{label}: {progress_line(so_far)}")

        return on_progress

    def result(self, result: Result) -> None:
        self.console.print(_table(result))
        self.console.print(_claims(result))
        for witness in result.witnesses:
            self._finding(witness, with_operations=result.settings.agents is not None)
        for doubt in result.doubts:
            self.console.print(Text(f"unknown: {doubt}", "yellow"), soft_wrap=True)
        self.console.print(_summary(result), soft_wrap=True)

    def reproduce(self, results: Sequence[Result]) -> None:
        """Last of all, alone on its line, whole, and the same on a terminal and in a file."""
        token = next((w.token for result in results for w in result.witnesses), None)
        if token:
            self.console.print(f"reproduce: chaoskit replay {token}", soft_wrap=True, markup=False)

    def _finding(self, witness: Witness, *, with_operations: bool) -> None:
        times = f" ({witness.times} runs)" if witness.times > 1 else ""
        title = Text.assemble((witness.finding.signature, "bold red"), f" [{witness.tier}]", times)
        self.console.print()
        self.console.print(title)
        self.console.print(f"  {witness.finding.message}", soft_wrap=True, markup=False)
        for line in tell(witness.events):
            self.console.print(f"    {line}", style="dim", soft_wrap=True, markup=False)
        for line in _asked(witness) if with_operations else ():
            self.console.print(f"    {line}", style="dim", soft_wrap=True, markup=False)
        for line in str(witness.hint).splitlines() if witness.hint else ():
            self.console.print(f"    {line}", soft_wrap=True, markup=False)
        if witness.kept:
            self.console.print(f"  kept: {witness.kept}", soft_wrap=True, markup=False)
        self.console.print(f"  chaoskit replay {witness.token}", soft_wrap=True, markup=False)


def progress_line(so_far: SoFar) -> str:
    planned = f" of {so_far.planned}" if so_far.planned is not None else ""
    speed = so_far.runs / so_far.seconds if so_far.seconds else 0
    findings = f"{so_far.findings} finding{'s' * (so_far.findings != 1)}"
    covered = f"{so_far.covered} points covered"
    return f"{so_far.runs}{planned} runs, {speed:.0f}/s, {covered}, {findings}"


def _asked(witness: Witness) -> Iterator[str]:
    asked = operations(until_last_crash(witness.events))
    more = f", the last {OPERATIONS} of {len(asked)}" if len(asked) > OPERATIONS else ""
    yield f"operations (--seed {witness.seed}){more}:"
    yield from (f"  {line}" for line in asked[-OPERATIONS:])


def _table(result: Result) -> Table:
    faults = sorted({fault for row in result.found.table.values() for fault in row}, reverse=True)
    table = Table("persist point", *faults)
    for name, row in sorted(result.found.table.items()):
        table.add_row(name, *(_cell(row.get(fault)) for fault in faults))
    return table


def _claims(result: Result) -> Table:
    tiers = sorted({tier for tiers in result.claims.values() for tier in tiers})
    table = Table("claim", *tiers, box=None, padding=(0, 2, 0, 2))
    for name, verdicts in result.claims.items():
        found = (verdicts.get(tier, Verdict.NOT_MEASURED) for tier in tiers)
        table.add_row(name, *(Text(verdict.value, STYLE[verdict]) for verdict in found))
    return table


def _cell(tally: Tally | None) -> Text:
    if tally is None:
        return Text("-", "dim")
    all_alike = tally.times == tally.runs
    count = str(tally.runs) if all_alike else f"{tally.times} of {tally.runs}"
    return Text.assemble(f"{count:>8}  ", (tally.verdict.value, STYLE[tally.verdict]))


def _summary(result: Result) -> Text:
    found = result.found
    speed = found.runs / result.seconds if result.seconds else 0
    # The places of a fuzz are not points of one workload, so that their number says something new.
    covered = f", {len(found.places)} kinds of them crashed" if result.settings.fuzzes else ""
    rebuilt = ""
    if found.states:
        rebuilt = f", {found.states} states rebuilt, {found.confirmed} confirmed by a real crash"
    return Text.assemble(
        "\nverdict: ",
        (result.verdict.value, STYLE[result.verdict]),
        f"   {len(found.points)} persist points{covered}, {found.runs} runs, {found.fired} with every planned"
        f" fault fired, {found.missed} faults missed{rebuilt}, {result.seconds:.1f} s"
        f" ({speed:.0f} runs/s)",
    )
