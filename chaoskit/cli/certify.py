"""The commands about certificates: certify, compare, scoreboard."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rich_click as click

from chaoskit import registry
from chaoskit.certify import certificate as certificates
from chaoskit.certify.certificate import Certificate, FailOn
from chaoskit.certify.certification import certify as examine, settings_for
from chaoskit.cli.options import (
    EXIT,
    VIOLATED,
    Duration,
    Place,
    Seed,
    Tiers,
    accept_incomplete_option,
    check_disk,
    jobs_option,
    json_option,
    pass_env_option,
    state_directory,
    verbose_option,
    write_text,
)
from chaoskit.cli.recent import remember
from chaoskit.entry_points import CannotLoad
from chaoskit.faults.power import MOST_STATES
from chaoskit.run.environment import NoEnvironment
from chaoskit.search.rig import CannotTest, NotSeen
from chaoskit.search.tiers import default_tiers, tiers
from chaoskit.settings import Settings
from chaoskit.show import pages
from chaoskit.show.certificates import show
from chaoskit.show.formats import FORMATS
from chaoskit.show.terminal import Terminal
from chaoskit.show.wrapping import brief
from chaoskit.wrong_use import WrongUse

Command = Callable[..., None]


def _options(command: Command) -> Command:
    """The options that certify and scoreboard share."""
    options = (
        click.option(
            "--tiers",
            "wanted",
            type=Tiers(),
            default=",".join(default_tiers()),
            show_default=f"all but {', '.join(set(tiers()) - set(default_tiers()))}",
            help=f"Comma-separated, from: {', '.join(tiers())} (`chaoskit list tiers`).",
        ),
        click.option(
            "--seed", type=Seed(), default="0", show_default=True, help="Determines everything random."
        ),
        click.option(
            "--runs",
            type=click.IntRange(min=1),
            default=MOST_STATES,
            show_default=True,
            help="Maximum number of power-loss states, per profile.",
        ),
        click.option(
            "--for", "seconds", type=Duration(), help="Time limit; unfinished tiers are marked incomplete."
        ),
        accept_incomplete_option,
        jobs_option,
        pass_env_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def _formats(command: Command) -> Command:
    for each in reversed(FORMATS):
        command = click.option(f"--{each.name}", type=Place(), metavar="FILE", help=each.summary)(command)
    return command


_fail_on = click.option(
    "--fail-on",
    type=click.Choice(["promise", "hazard"]),
    default="promise",
    show_default=True,
    help="Exit with code 1 only on a broken **promise**, or also on a **hazard**.",
)


@click.command()
@click.argument("target")
@click.option(
    "--with",
    "instead",
    multiple=True,
    metavar="REQUIREMENT",
    help="Replace one of the adapter's requirements, e.g. strands-agents==1.60.0.",
)
@_options
@_fail_on
@json_option
@_formats
@verbose_option
def certify(
    target: str,
    instead: tuple[str, ...],
    wanted: tuple[str, ...],
    fail_on: FailOn,
    json_file: str | None,
    verbose: bool,
    **options: Any,
) -> None:
    """Crash a checkpointer or agent in every tier, and print its certificate.

    TARGET is a known name (`chaoskit list targets`), `module:Class` or `file.py:Class` of an adapter
    (docs/adapters.md). chaoskit installs its requirements once, into a separate environment.

    The verdict covers the library's promises; a violation of anything else is listed as a hazard.

    Examples: `chaoskit certify langgraph-sqlite`, `chaoskit certify ./my_store.py:MyStore --for 60s`

    Exit codes: 0 every promise holds, 1 a broken promise (or a hazard, with --fail-on hazard), 2 usage error
    or a target that cannot be tested, 3 unknown.
    """
    check_disk()
    files = {each: options.pop(each.name) for each in FORMATS}
    terminal = Terminal(to_stderr=json_file == "-")
    name = f"{target}@{','.join(instead)}" if instead else target
    registry.adapter(name)  # a wrong name is an error before anything is printed
    made = _examined(settings_for(name, **options), wanted, terminal)
    show(made, terminal, verbose=verbose)
    remember(finding.repro for finding in (*made.broken, *made.hazards))
    for each, path in files.items():
        if path:
            write_text(path, each.render(made, path))
    if json_file == "-":
        sys.stdout.write(certificates.encode(made))
    elif json_file:
        write_text(Path(json_file), certificates.encode(made))
    counted = [*made.broken, *made.hazards]
    if counted and made.fails(fail_on):  # each hazard has its own line above
        terminal.whole(f"reproduce: chaoskit replay {counted[0].repro}")
    sys.exit(VIOLATED if made.fails(fail_on) else EXIT[made.verdict])


@click.command()
@click.argument("before", type=Place(), metavar="A.json")
@click.argument("after", type=Place(), metavar="B.json")
@_fail_on
def compare(before: Path, after: Path, fail_on: FailOn) -> None:
    """Show what changed between two certificates.

    Examples: `chaoskit compare old.json new.json`, `chaoskit compare old.json new.json --fail-on hazard`

    Exit code 1 if a promise is newly broken; with --fail-on hazard, also if a hazard is new.
    """
    terminal = Terminal()
    old, new = certificates.load(before), certificates.load(after)
    terminal.show(f"{_identity(old)}  ->  {_identity(new)}")
    changes = list(certificates.compare(old, new))
    for change in changes:
        cell = f"{change.claim} [{change.tier}]"
        terminal.show(f"{change.summary:<8} {cell:<28} {change.before} -> {change.after}")
    if old.verdict is not new.verdict:
        terminal.show(f"verdict: {old.verdict.value} -> {new.verdict.value}")
    elif not changes:
        terminal.show("no verdict changed")
    if any(change.fails(fail_on) for change in changes):
        sys.exit(VIOLATED)
    sys.exit(EXIT[new.verdict] if new.verdict.rank > old.verdict.rank else 0)


@click.command()
@click.argument("targets", nargs=-1)
@_options
@click.option(
    "--dir",
    "directory",
    type=Place(),
    default=Path("scoreboard"),
    show_default=True,
    help="Directory for the table (README.md, index.html) and one certificate per target.",
)
@click.option(
    "--render", is_flag=True, help="Only rebuild the tables and verdicts, from existing certificates."
)
def scoreboard(
    targets: tuple[str, ...], wanted: tuple[str, ...], directory: Path, render: bool, **options: Any
) -> None:
    """Certify every known target (or TARGETS), and write one table: Markdown, JSON, HTML.

    A target whose packages cannot be installed keeps its existing certificate and is listed at the end.

    Examples: `chaoskit scoreboard --for 75s`, `chaoskit scoreboard --dir docs/scoreboard --render`

    Exit codes: 0 written, 2 usage error.
    """
    terminal = Terminal()
    for name in targets:
        registry.adapter(name)  # a wrong name is an error before anything is written
    state_directory(directory)
    left_out = []
    if not render:
        check_disk()
        left_out = _certify_all(targets or tuple(registry.targets()), wanted, directory, terminal, options)
    known = [_by_today_s_rule(path) for path in sorted(directory.glob("*.json"))]
    if not known:
        raise WrongUse(f"expected certificates in {directory}, found none")
    write_text(directory / "README.md", pages.scoreboard_markdown(known))
    write_text(directory / "index.html", pages.scoreboard_html(known))
    for reason in left_out:
        terminal.show(f"not certified: {reason}")
    terminal.show(f"{len(known)} certificates: {directory / 'README.md'}")


def _by_today_s_rule(path: Path) -> Certificate:
    """A verdict that an older release gave by another rule must not contradict the table."""
    found = certificates.load(path)
    text = certificates.encode(found)
    if path.read_text() != text:
        write_text(path, text)
    return found


def _certify_all(
    names: tuple[str, ...],
    wanted: tuple[str, ...],
    directory: Path,
    terminal: Terminal,
    options: dict[str, Any],
) -> list[str]:
    """Writes the certificates; returns the targets that could not be certified, with the reasons."""
    left_out = []
    for name in names:
        try:
            made = _examined(settings_for(name, **options), wanted, terminal)
        except (CannotTest, NotSeen, NoEnvironment, CannotLoad) as error:
            left_out.append(f"{name}: {brief(str(error))}")
            continue
        write_text(directory / f"{name}.json", certificates.encode(made))
        terminal.show(f"{name}: {made.headline()} ({made.seconds:.0f} s)")
    return left_out


def _examined(settings: Settings, wanted: tuple[str, ...], terminal: Terminal) -> Certificate:
    target = settings.scenario.removeprefix(registry.TARGET)
    terminal.command(f"chaoskit certify {target} {_in_force(settings, wanted)}")
    with terminal.progress(target) as progress:
        return examine(settings, wanted, progress, terminal.show)


def _in_force(settings: Settings, wanted: tuple[str, ...]) -> str:
    """The equivalent options; the default tiers are too many for a line, and the table names them."""
    words = [f"--tiers {','.join(wanted)}"] if wanted != default_tiers() else []
    words += [f"--seed {settings.seed}", f"--runs {settings.power_states}", f"--jobs {settings.jobs}"]
    if settings.seconds is not None:
        words.append(f"--for {settings.seconds:g}s")
    if settings.accept_incomplete:
        words.append("--accept-incomplete")
    return " ".join(words)


def _identity(c: Certificate) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in c.versions.items())
    return f"{c.target} ({versions}; {c.date})"
