"""The commands about certificates: certify, compare, scoreboard. Words into calls, no more."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rich_click as click
from rich.table import Table
from rich.text import Text

from chaoskit import registry
from chaoskit.certify import certificate as certificates
from chaoskit.certify.certificate import TIERS, Certificate, CertifiedFinding
from chaoskit.certify.certification import POWER_STATES, Wanted, certify as examine
from chaoskit.cli.options import EXIT, Duration, Seed, check_disk
from chaoskit.model import Verdict
from chaoskit.run.environment import NoEnvironment
from chaoskit.search.rig import CannotTest
from chaoskit.show import pages
from chaoskit.show.terminal import STYLE, Terminal

Command = Callable[..., None]
SIGNS = {"holds": "green", "VIOLATED": "bold red", "hazard": "yellow", "unknown": "bold yellow"}


class Tiers(click.ParamType[tuple[str, ...]]):
    name = "LIST"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        wanted = value.split(",")
        for tier in wanted:
            if tier not in TIERS:
                self.fail(registry.unknown("tier", tier, list(TIERS)), param, ctx)
        return tuple(tier for tier in TIERS if tier in wanted)


OPTIONS = (
    click.option(
        "--tiers",
        type=Tiers(),
        default=",".join(TIERS),
        show_default="all",
        help=f"Some of: {', '.join(TIERS)}.",
    ),
    click.option("--seed", type=Seed(), default="0", show_default=True, help="Decides everything."),
    click.option(
        "--runs",
        "states",
        type=click.IntRange(min=1),
        default=POWER_STATES,
        show_default=True,
        help="States of a loss of power, per profile.",
    ),
    click.option("--for", "seconds", type=Duration(), help="Stop after this time; says so."),
    click.option(
        "--jobs",
        type=click.IntRange(min=1),
        default=len(os.sched_getaffinity(0)),
        show_default="all cores",
        help="Crashes at the same time.",
    ),
)


def _options(command: Command) -> Command:
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def _file(name: str, words: str) -> Callable[[Command], Command]:
    return click.option(f"--{name}", type=click.Path(path_type=Path), metavar="FILE", help=words)


@click.command()
@click.argument("target")
@click.option(
    "--with",
    "instead",
    multiple=True,
    metavar="REQUIREMENT",
    help="Another version of what the adapter requires, e.g. langgraph-checkpoint-sqlite==3.0.0.",
)
@_options
@click.option("--json", "json_file", metavar="FILE|-", help="The certificate; - is standard output.")
@_file("markdown", "As Markdown.")
@_file("html", "As one self-contained page.")
@_file("badge", "A badge: FILE.svg, else the JSON that shields.io reads from an address.")
@_file("junit", "A test case per claim and tier.")
def certify(
    target: str,
    instead: tuple[str, ...],
    json_file: str | None,
    markdown: Path | None,
    html: Path | None,
    badge: Path | None,
    junit: Path | None,
    **options: Any,
) -> None:
    """Crash somebody else's checkpointer or agent in every way, and print its certificate.

    TARGET is a known name (`chaoskit list targets`), `module:Class` or `file.py:Class` of an adapter
    (docs/adapters.md). What it needs is installed into an environment of its own, once.

    Exit codes: 0 holds, 1 a violation, 2 wrong use, 3 unknown.
    """
    check_disk()
    terminal = Terminal(to_stderr=json_file == "-")
    name = f"{target}@{','.join(instead)}" if instead else target
    made = _examined(Wanted(target=name, **options), terminal)
    _show(made, terminal)
    writers = {markdown: pages.markdown, html: pages.html, junit: pages.junit}
    if badge:
        writers[badge] = pages.badge_svg if badge.suffix == ".svg" else pages.badge_json
    for path, render in writers.items():
        if path:
            _write(path, render(made))
    if json_file == "-":
        sys.stdout.write(certificates.encode(made))
    elif json_file:
        _write(Path(json_file), certificates.encode(made))
    if made.findings:
        _plain(terminal, f"reproduce: chaoskit replay {made.findings[0].repro}")
    sys.exit(EXIT[made.verdict])


@click.command()
@click.argument("before", type=click.Path(path_type=Path), metavar="A.json")
@click.argument("after", type=click.Path(path_type=Path), metavar="B.json")
def compare(before: Path, after: Path) -> None:
    """Show what changed between two certificates.

    Exit code 1 when something that held is broken, or a violation is new.
    """
    old, new = certificates.load(before), certificates.load(after)
    click.echo(f"{_identity(old)}  ->  {_identity(new)}")
    changes = list(certificates.compare(old, new))
    for change in changes:
        cell = f"{change.claim} [{change.tier}]"
        click.echo(f"{change.words:<8} {cell:<28} {change.before.value} -> {change.after.value}")
    if not changes:
        click.echo("no verdict changed")
    sys.exit(1 if any(c.after is Verdict.VIOLATED for c in changes) else 0)


@click.command()
@click.argument("targets", nargs=-1)
@_options
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=Path("scoreboard"),
    show_default=True,
    help="Where the table (README.md, index.html) and one certificate per target are written.",
)
@click.option("--render", is_flag=True, help="Only make the tables again, from the certificates there.")
def scoreboard(targets: tuple[str, ...], directory: Path, render: bool, **options: Any) -> None:
    """Certify every known target (or TARGETS), and write one table: Markdown, JSON, HTML.

    A target whose packages cannot be had keeps the certificate it has, and is named at the end.
    """
    check_disk()
    terminal = Terminal()
    directory.mkdir(parents=True, exist_ok=True)
    left_out = []
    for name in () if render else targets or sorted(registry.targets()):
        try:
            made = _examined(Wanted(target=name, **options), terminal)
        except (CannotTest, NoEnvironment, registry.CannotLoad) as error:
            left_out.append(f"{name}: {error}")
            continue
        _write(directory / f"{name}.json", certificates.encode(made))
        _plain(terminal, f"{name}: {made.headline()} ({made.seconds:.0f} s)")
    known = [certificates.load(path) for path in sorted(directory.glob("*.json"))]
    if not known:
        raise ValueError(f"no certificate in {directory}: nothing to show")
    _write(directory / "README.md", pages.scoreboard_markdown(known))
    _write(directory / "index.html", pages.scoreboard_html(known))
    for words in left_out:
        _plain(terminal, f"left out: {words}")
    _plain(terminal, f"{len(known)} certificates: {directory / 'README.md'}")


def _examined(wanted: Wanted, terminal: Terminal) -> Certificate:
    words = f"chaoskit certify {wanted.target} --tiers {','.join(wanted.tiers)} --seed {wanted.seed}"
    _plain(terminal, f"{words} --runs {wanted.states} --jobs {wanted.jobs}")
    if terminal.console.is_terminal:
        with terminal.console.status(wanted.target) as status:
            return examine(wanted, status.update)
    return examine(wanted, _now_and_then(terminal))


def _now_and_then(terminal: Terminal) -> Callable[[str], None]:
    """Where nobody watches: a line every ten seconds."""
    last = time.monotonic()

    def say(words: str) -> None:
        nonlocal last
        if time.monotonic() - last > 10 or words.startswith("making"):
            last = time.monotonic()
            _plain(terminal, words)

    return say


def _show(c: Certificate, terminal: Terminal) -> None:
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
        _plain(terminal, f"unknown: {doubt}")
    if c.suite:
        _plain(terminal, f"- beside it, {c.suite['name']}: {c.suite['verdict']}")
    for line in pages.facts(c):
        _plain(terminal, line)
    words = Text.assemble("\nverdict: ", (c.verdict.value, STYLE[c.verdict]), f"   {c.headline()}")
    terminal.console.print(words, soft_wrap=True)


def _show_finding(finding: CertifiedFinding, terminal: Terminal) -> None:
    kind = "promise broken" if finding.promise else "hazard"
    title = (f"{finding.claim}/{finding.kind}", "bold red" if finding.promise else "yellow")
    terminal.console.print(Text.assemble("\n", title, f" [{finding.tier}] {kind}"))
    _plain(terminal, f"  {finding.message}")
    if finding.promise:
        _plain(terminal, f"  promised: {finding.promise} ({finding.where})")
    if finding.tier == "power-posix":
        _plain(terminal, "  under posix alone this is a warning about file systems other than ext4")
    for line in (*finding.story, *finding.hint):
        terminal.console.print(f"    {line}", style="dim", soft_wrap=True, markup=False)
    _plain(terminal, f"  chaoskit replay {finding.repro}")


def _plain(terminal: Terminal, words: str) -> None:
    terminal.console.print(words, soft_wrap=True, markup=False)


def _identity(c: Certificate) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in c.versions.items())
    return f"{c.target} ({versions}; {c.date})"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}") from None
