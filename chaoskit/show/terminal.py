"""Results on the terminal: progress, a table, findings with their story, the command that reproduces them.

Colours and the progress bar appear only on a terminal; otherwise the same text is printed as plain lines.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from chaoskit.model import Verdict
from chaoskit.search.progress import Progress as OnProgress, SoFar
from chaoskit.search.result import Result, Tally
from chaoskit.search.tiers import tiers
from chaoskit.settings import Settings
from chaoskit.show.findings import MOST, Entry, Shown, grouped, lines, of_witness, where
from chaoskit.show.wrapping import INDENT, command, harmless, wrapped

STYLE = {
    Verdict.HOLDS: "bold green",
    Verdict.UNKNOWN: "bold yellow",
    Verdict.VIOLATED: "bold red",
    Verdict.NOT_MEASURED: "dim",
}
PLAIN_INTERVAL = 10.0  # seconds between progress lines without a progress bar
RAREST = 20
WIDTH = 80  # if the width of the terminal is unknown


class Terminal:
    def __init__(self, *, to_stderr: bool = False) -> None:
        """`to_stderr`: leave standard output to the JSON result."""
        self._out = sys.stderr if to_stderr else sys.stdout
        interactive = self._out.isatty()
        self.console = Console(
            file=self._out, width=None if interactive else WIDTH, highlight=False, emoji=False
        )

    def show(self, text: Text | str, hang: str = INDENT) -> None:
        """Prints text without markup, wrapped at spaces to the width of the terminal."""
        rest = _harmless(Text(text) if isinstance(text, str) else text)
        for line in wrapped(rest.plain, self.console.width, hang):
            words = line.lstrip()
            start = rest.plain.index(words)
            indent = line[: len(line) - len(words)]
            self.console.print(Text.assemble(indent, rest[start : start + len(words)]), soft_wrap=True)
            rest = rest[start + len(words) :]

    def whole(self, text: str) -> None:
        """Prints a line that must not be broken, such as a token."""
        self.console.print(harmless(text), soft_wrap=True, markup=False)

    def command(self, text: str) -> None:
        """Prints a command, in a form that can be pasted."""
        for line in command(harmless(text), self.console.width):
            self.console.print(Text(line, "bold"), soft_wrap=True)

    def header(self, settings: Settings) -> None:
        """Prints the seed and all options in force, before anything else."""
        self.command(f"chaoskit run {settings.command_line()}")

    @contextmanager
    def progress(self, label: str) -> Iterator[OnProgress]:
        """A bar on a terminal, elsewhere a line every ten seconds: in every phase, whatever it waits for."""
        if not self.console.is_terminal:
            with _heartbeat(lambda so_far: self.show(f"{label}: {progress_line(so_far)}")) as on_progress:
                yield on_progress
            return
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[said]}", markup=False),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task(harmless(label), total=None, said="")
            yield lambda so_far: bar.update(
                task, completed=so_far.runs, total=so_far.planned, said=progress_line(so_far)
            )

    def result(self, result: Result, *, verbose: bool = False) -> None:
        if verbose:
            self.console.print(_table(result))
        for line in (*_points(result), *_claims(result), *(_rarest(result) if verbose else ())):
            self.show(line)
        fuzz = result.settings.generated or result.settings.agents is not None
        self.findings((of_witness(w, with_operations=fuzz) for w in result.witnesses), verbose=verbose)
        for doubt in result.doubts:
            self.show(Text(f"unknown: {doubt}", "yellow"))
        for line in _summary(result):
            self.show(line)

    def findings(self, entries: Iterable[Entry], *, verbose: bool) -> None:
        """Prints broken promises first; at most MOST findings unless `verbose`."""
        every = grouped(entries)
        shown = every if verbose else every[:MOST]
        for each in shown:
            entry = each.entry
            style = "yellow" if entry.label == "hazard" else "bold red"
            label = f" {entry.label}" if entry.label else ""
            self.console.print()
            self.show(Text.assemble((entry.signature, style), f" {where(each)}{label}"))
            note = _note(each)
            message, *rest = lines(each)
            for line in (*([f"  {note}"] if note else []), message):
                self.show(line, hang="")  # the story is indented
            for line in rest:
                self.show(line)
        if len(every) > len(shown):
            more = len(every) - len(shown)
            self.show(f"\n... and {more} more findings: -v shows them all, --json has every detail")

    def reproduce(self, results: Sequence[Result]) -> None:
        """Prints the reproduce line last, unwrapped, identical on a terminal and in a file."""
        token = next((w.token for result in results for w in result.witnesses), None)
        if token:
            self.whole(f"reproduce: chaoskit replay {token}")


def _harmless(text: Text) -> Text:
    safe = harmless(text.plain)
    return text if safe == text.plain else Text(safe)  # styles belong to positions, which have moved


def _note(shown: Shown) -> str:
    """What a finding means that only one tier has; elsewhere it would be wrong."""
    (tier, *others) = shown.tiers
    return tiers()[tier].note if not others and tier in tiers() else ""


@contextmanager
def _heartbeat(show: OnProgress) -> Iterator[OnProgress]:
    """Show the latest state at intervals, even while nothing new is reported."""
    latest: list[SoFar] = []
    over = threading.Event()

    def beat() -> None:
        while not over.wait(PLAIN_INTERVAL):
            for so_far in latest[-1:]:
                show(so_far)

    def on_progress(so_far: SoFar) -> None:
        latest[:] = [so_far]

    beating = threading.Thread(target=beat, daemon=True)
    beating.start()
    try:
        yield on_progress
    finally:
        over.set()
        beating.join()


def progress_line(so_far: SoFar) -> str:
    """`crashing: 412 of 2094 runs, 140/s, 2 findings, 12 s left`"""
    parts = []
    if so_far.runs:
        planned = f" of {so_far.planned}" if so_far.planned is not None else ""
        parts += [f"{so_far.runs}{planned} runs", f"{so_far.rate:.0f}/s"]
        parts.append(f"{so_far.findings} finding{'s' * (so_far.findings != 1)}")
    if so_far.left is not None and so_far.runs:
        parts.append(f"{_duration(so_far.left)} left")
    return f"{so_far.phase}: {', '.join(parts)}" if parts else so_far.phase


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _table(result: Result) -> Table:
    faults = sorted({fault for row in result.found.table.values() for fault in row}, reverse=True)
    table = Table("persist point", *(escape(harmless(fault)) for fault in faults))
    for name, row in sorted(result.found.table.items()):
        table.add_row(Text(harmless(name)), *(_cell(row.get(fault)) for fault in faults))
    return table


def _lately(growth: Sequence[tuple[int, int]]) -> str:
    """How much of that is new: `, 12 of them in the second half`."""
    if len(growth) < 2:
        return ""
    runs, places = growth[-1]
    earlier = max(count for at, count in growth if at <= max(runs / 2, growth[0][0]))
    return f", {places - earlier} of them first in the second half"


def _rarest(result: Result) -> Iterator[Text]:
    """Of a fuzz: the places where faults fired least often."""
    times = sorted(result.found.times.items(), key=lambda item: (item[1], item[0]))
    if times:
        yield Text(f"rarest places, of {len(times)}:")
    for place, count in times[:RAREST]:
        yield Text(f"  {count:>5}  {place}")


def _points(result: Result) -> Iterator[Text]:
    """The points that do not hold, one per line; if all hold, one line."""
    table = result.found.table
    faults = sorted({fault for row in table.values() for fault in row}, reverse=True)
    bad = {
        (name, fault): tally
        for name, row in sorted(table.items())
        for fault, tally in row.items()
        if tally.verdict is not Verdict.HOLDS
    }
    points = f"{len(table)} kind{'s' * (len(table) != 1)} of points"
    total = f"{points} x {', '.join(faults)}" if faults else "no point was crashed"
    if not bad:
        yield Text(f"{total}: all hold" if faults else total)
        return
    wrong = sum(tally.times for tally in bad.values())
    yield Text(f"{total}: {wrong} of {result.found.runs} runs do not hold")
    width = max(len(name) for name, _ in bad)
    for (name, fault), tally in bad.items():
        cell = (tally.verdict.value, STYLE[tally.verdict])
        yield Text.assemble(f"  {name:<{width}}  {fault}: {tally.times} of {tally.runs} ", cell)


def _claims(result: Result) -> Iterator[Text]:
    """Each claim that does not hold, tier by tier; the claims that hold share one line."""
    holding = []
    for name, verdicts in result.claims.items():
        worst = Verdict.merge(verdicts.values())
        if worst is Verdict.HOLDS:
            holding.append(name)
            continue
        cells = [Text.assemble((verdict.value, STYLE[verdict]), f" [{t}]") for t, verdict in verdicts.items()]
        yield Text.assemble(f"  {name:<20} ", Text("  ").join(cells or [Text("NOT_MEASURED", "dim")]))
    if holding:
        where_held = sorted({tier for name in holding for tier in result.claims[name]})
        yield Text(f"holds in {', '.join(where_held)}: {', '.join(holding)}")


def _cell(tally: Tally | None) -> Text:
    if tally is None:
        return Text("-", "dim")
    all_alike = tally.times == tally.runs
    count = str(tally.runs) if all_alike else f"{tally.times} of {tally.runs}"
    return Text.assemble(f"{count:>8}  ", (tally.verdict.value, STYLE[tally.verdict]))


def _summary(result: Result) -> Iterator[Text]:
    found = result.found
    speed = found.runs / result.seconds if result.seconds else 0
    fired = "every fault fired" if not found.missed else f"{found.missed} planned faults did not fire"
    runs = f"{found.runs} runs" if found.runs != 1 else "1 run"
    counts = f"{runs} at {len(found.points)} points, {fired}, {result.seconds:.1f} s ({speed:.0f} runs/s)"
    yield Text.assemble("\nverdict: ", (result.verdict.value, STYLE[result.verdict]), f"   {counts}")
    if result.settings.fuzzes:
        # A fuzz has many workloads, so its places differ from the points counted above.
        yield Text(f"  {len(found.places)} distinct places crashed{_lately(result.growth)}")
        if result.unreached:
            yield Text(f"  not reached yet: {', '.join(result.unreached)}")
    if found.states:
        yield Text(
            f"  {found.states} states rebuilt from a recording, {found.confirmed} confirmed by real crashes"
        )
