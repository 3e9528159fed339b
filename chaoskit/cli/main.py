"""The command line. Translates words into calls, errors into one line and an exit code; no more.

Exit codes: 0 HOLDS, 1 VIOLATED, 2 wrong use, 3 UNKNOWN (also when nothing ran), 130 interrupted.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import rich_click as click
from click.exceptions import Abort, Exit

from chaoskit import __version__, faults, registry, repro
from chaoskit.cli import certify as cli_certificates, doctor as machine
from chaoskit.cli.options import EXIT, Duration, Seed, check_disk
from chaoskit.model import Mutant, Repro, Scenario, Verdict
from chaoskit.run.environment import NoEnvironment
from chaoskit.search import campaign
from chaoskit.search.result import Result
from chaoskit.search.rig import CannotTest
from chaoskit.settings import Settings, settings_of
from chaoskit.show import report
from chaoskit.show.terminal import Terminal

WRONG_USE, NOTHING_KNOWN, INTERRUPTED = 2, 3, 130
click.rich_click.TEXT_MARKUP = "markdown"
click.rich_click.SHOW_ARGUMENTS = True


class Faults(click.ParamType[tuple[str, ...]]):
    name = "LIST|all"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        wanted = list(faults.FAULTS) if value == "all" else value.split(",")
        for name in wanted:
            if name not in faults.FAULTS:
                self.fail(registry.unknown("fault", name, sorted(faults.FAULTS)), param, ctx)
        return tuple(wanted)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="chaoskit")
def cli() -> None:
    """Crash an agent wherever it persists, restart it, and judge what it lost, repeated or corrupted.

    Start with `chaoskit run payments`, then break it: `chaoskit run payments --mutant forgets-pending`.

    Exit codes: 0 HOLDS, 1 VIOLATED, 2 wrong use, 3 UNKNOWN.
    """


@cli.command()
@click.argument("scenarios", nargs=-1, required=True, metavar="SCENARIO...")
@click.option(
    "--fault",
    type=Faults(),
    default="kill",
    show_default=True,
    help="What is done to the target (`chaoskit list faults`).",
)
@click.option(
    "--points",
    type=click.Choice(["named", "syscalls"]),
    default="named",
    show_default=True,
    help="Where kills strike. **named**: points that the target announces. **syscalls**: every "
    "operation on its files, also half-way through a write.",
)
@click.option(
    "--profile",
    type=click.Choice(["ext4", "posix"]),
    default="ext4",
    show_default=True,
    help="What a loss of power may lose. A finding under **ext4** is a bug; one under **posix** alone "
    "is a warning about other file systems.",
)
@click.option(
    "--plan",
    type=click.Choice(["sweep", "sample"]),
    default="sweep",
    show_default=True,
    help="**sweep**: every point, before and after. **sample**: seeded schedules of one to "
    "three crashes, also during recovery; with **--agents** a fuzz: each of them on a fresh workload.",
)
@click.option(
    "--agents",
    type=click.IntRange(min=1),
    metavar="N",
    show_default="as many as the scenario has",
    help="How many agents the workload has, for scenarios that take it (tree). With **--plan sample** "
    "every few runs have a new workload, drawn from the seed: a fuzz. End it with --runs, --for or "
    "--until-violation.",
)
@click.option(
    "--bias",
    type=click.Choice(["uniform", "rare"]),
    show_default="rare",
    help="Where a fuzz crashes. **uniform**: any persist operation alike. **rare**: where it has crashed "
    "least so far, and often during recovery.",
)
@click.option(
    "--seed",
    type=Seed(),
    default="0",
    show_default=True,
    help="Decides the workload, the schedules, every id and time.",
)
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    show_default="100 of a sample, 1000 states of a power loss",
    help="How many schedules a sample has, or how many states of a power loss are examined. A fuzz with "
    "--for or --until-violation has no limit unless it is given here.",
)
@click.option("--for", "seconds", type=Duration(), help="Stop after this time, e.g. 60s or 10m.")
@click.option("--until-violation", is_flag=True, help="Stop at the first violation.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=len(os.sched_getaffinity(0)),
    show_default="all cores",
    help="Runs at the same time.",
)
@click.option(
    "--store",
    metavar="KIND",
    show_default="the scenario's first",
    help="The kind of store that the target uses, where it has a choice (`chaoskit list scenarios`).",
)
@click.option("--mutant", metavar="NAME", help="A broken agent instead (`chaoskit list mutants`).")
@click.option("--cold", is_flag=True, help="A fresh interpreter for each life: slow, same verdicts.")
@click.option(
    "--deadline",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="How long one life may take before it counts as hung.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=Path(".chaoskit"),
    show_default=True,
    help="Where results, and the runs that did not hold, are kept.",
)
@click.option("--json", "json_file", metavar="FILE|-", help="The result as JSON; - is standard output.")
def run(
    scenarios: tuple[str, ...], fault: tuple[str, ...], directory: Path, json_file: str | None, **options: Any
) -> None:
    """Run SCENARIO under faults and judge every run.

    SCENARIO is a name (`chaoskit list scenarios`), `module:name` or `file.py:name`.

    A fuzz: `chaoskit run tree --plan sample --agents 50 --for 10m`.
    """
    needs_disk = options["points"] == "syscalls" or fault != ("kill",)
    if needs_disk:
        check_disk()
    terminal = Terminal(to_stderr=json_file == "-")
    machine.state_directory(directory)
    results = []
    for name in scenarios:
        place = directory / _slug(name, options["store"], options["mutant"])
        settings = Settings(scenario=name, faults=fault, keep=str(place / "runs"), **options)
        settings = registry.resolved(settings)
        results.append(_campaign(settings, terminal, place))
    verdict = Verdict.merge(result.verdict for result in results)
    if json_file:
        _write_json(report.as_json(results), json_file)
    terminal.reproduce(results)
    sys.exit(EXIT[verdict])


def _campaign(settings: Settings, terminal: Terminal, place: Path) -> Result:
    terminal.header(settings)
    with terminal.progress(settings.scenario) as progress:
        result = campaign.run_campaign(settings, progress)
    terminal.result(result)
    report.save(result, place)
    return result


def _slug(*words: str | None) -> str:
    return re.sub(r"[^\w.-]+", "-", "-".join(filter(None, words))).strip("-.")


def _write_json(value: Any, target: str) -> None:
    text = msgspec.json.format(msgspec.json.encode(value)).decode() + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        Path(target).write_text(text)
    except OSError as error:
        raise ValueError(f"cannot write {target}: {error.strerror}") from None


@cli.command()
@click.argument("token", metavar="REPRO")
@click.option("--cold", is_flag=True, help="With a fresh interpreter for each life.")
@click.option("--json", "json_file", metavar="FILE|-", help="The result as JSON; - is standard output.")
def replay(token: str, cold: bool, json_file: str | None) -> None:
    """Meet one failure again: the same crash, the same finding.

    REPRO is the token from a `reproduce:` line.
    """
    wanted = repro.decode(token)
    settings = registry.resolved(settings_of(wanted, cold=cold))
    terminal = Terminal(to_stderr=json_file == "-")
    terminal.console.print(_replay_header(wanted), soft_wrap=True, markup=False)
    result = campaign.replay(settings, wanted.schedule)
    terminal.result(result)
    if json_file:
        _write_json(report.as_json([result]), json_file)
    met = any(w.finding.signature == wanted.signature for w in result.witnesses)
    terminal.console.print(f"{wanted.signature}: {'met again' if met else 'not met'}")
    sys.exit(EXIT[result.verdict])


def _replay_header(wanted: Repro) -> str:
    store = f" --store {wanted.store}" if wanted.store else ""
    mutant = f" --mutant {wanted.mutant}" if wanted.mutant else ""
    agents = f" --agents {wanted.agents}" if wanted.agents else ""
    return f"{wanted.scenario}{store}{mutant}{agents} --seed {wanted.seed}: {wanted.schedule}"


for command in (cli_certificates.certify, cli_certificates.compare, cli_certificates.scoreboard):
    cli.add_command(command)


@cli.command("list")
@click.argument(
    "what", type=click.Choice(["scenarios", "targets", "invariants", "faults", "mutants", "points"])
)
@click.argument("scenario", required=False)
@click.option("--seed", type=Seed(), default="0", show_default=True, help="For points.")
@click.option("--syscalls", is_flag=True, help="For points: every operation on the target's files.")
@click.option("--store", metavar="KIND", help="For points: with this kind of store.")
@click.option("--json", "json_file", metavar="FILE|-", help="As JSON; - is standard output.")
def list_(what: str, scenario: str | None, syscalls: bool, json_file: str | None, **options: Any) -> None:
    """Show what there is: scenarios, targets, invariants, faults, mutants, or the points of a SCENARIO.

    `list points SCENARIO` runs the scenario once, without faults, and shows where it persists.
    """
    rows = _rows(what, scenario, points="syscalls" if syscalls else "named", **options)
    if json_file:
        _write_json([dict(zip(("name", "summary"), row, strict=True)) for row in rows], json_file)
        return
    width = max((len(name) for name, _ in rows), default=0)
    for name, summary in rows:
        click.echo(f"{name:<{width}}  {summary}")


def _rows(what: str, scenario: str | None, **options: Any) -> list[tuple[str, str]]:
    if what == "points":
        if not scenario:
            raise ValueError("list points needs a scenario, e.g.: chaoskit list points payments")
        return _points(registry.resolved(Settings(scenario=scenario, **options)))
    if what == "faults":
        return list(faults.FAULTS.items())
    if what == "mutants":
        named = [scenario] if scenario else registry.names(registry.SCENARIOS)
        mutants = {m.name: m for name in named for m in registry.scenario(name).mutants}
        return [(m.name, f"{m.summary} (caught by {m.breaks}{_stores(m, '; ')})") for m in mutants.values()]
    if what == "targets":
        return [(name, registry.adapter(name).summary) for name in sorted(registry.targets())]
    if what == "scenarios":
        scenarios = map(registry.scenario, registry.names(registry.SCENARIOS))
        return [(s.name, f"{s.summary}{_stores(s, ' (')}{')' * bool(s.stores)}") for s in scenarios]
    return [(name, registry.invariant(name).summary) for name in registry.names(registry.INVARIANTS)]


def _stores(thing: Scenario | Mutant, before: str) -> str:
    """The kinds of store that it is for, if it names any."""
    return f"{before}store: {', '.join(thing.stores)}" if thing.stores else ""


def _points(settings: Settings) -> list[tuple[str, str]]:
    counts: dict[str, int] = {}
    for firing in campaign.points(settings):
        counts[firing.point.name] = max(counts.get(firing.point.name, 0), firing.point.nth)
    return [(name, f"{times} times") for name, times in counts.items()]


@cli.command("report")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--json", "json_file", metavar="FILE|-", help="As JSON; - is standard output.")
def report_(directory: Path, json_file: str | None) -> None:
    """Render a saved result again: DIR is one below `.chaoskit`, e.g. `.chaoskit/payments`."""
    if not (directory / report.RESULT_FILE).is_file():
        raise ValueError(f"expected a saved result in {directory}, found no {report.RESULT_FILE}")
    try:
        result = report.load(directory)
    except msgspec.DecodeError as error:
        raise ValueError(f"{directory / report.RESULT_FILE} is not a saved result: {error}") from None
    terminal = Terminal(to_stderr=json_file == "-")
    terminal.header(result.settings)
    terminal.result(result)
    if json_file:
        _write_json(report.as_json([result]), json_file)
    terminal.reproduce([result])
    sys.exit(EXIT[result.verdict])


@cli.command()
def doctor() -> None:
    """Say what works on this machine, and what is missing for the rest."""
    found = []
    for check in machine.checks():
        found.append(check)
        missing = "" if check.works else f"  -> {check.without_it}"
        click.echo(f"{'ok ' if check.works else 'NO '} {check.name:<20} {check.detail}{missing}")
    sys.exit(0 if machine.machine_is_fit(found) else NOTHING_KNOWN)


def main() -> None:
    """Every expected error becomes one line on standard error, and an exit code."""
    sys.path.insert(0, str(Path.cwd()))  # `module:name` may mean a module right here
    try:
        cli(standalone_mode=False)
    except Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        _fail(error.format_message(), WRONG_USE)
    except (ValueError, registry.UnknownName, repro.BadToken) as error:
        _fail(str(error), WRONG_USE)
    except (CannotTest, NoEnvironment, registry.CannotLoad) as error:
        _fail(f"verdict: UNKNOWN: {error}", NOTHING_KNOWN)
    except (KeyboardInterrupt, Abort):
        _fail("interrupted: every process was ended and every temporary file removed", INTERRUPTED)


def _fail(message: str, code: int) -> None:
    sys.stderr.write(f"chaoskit: {message}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
