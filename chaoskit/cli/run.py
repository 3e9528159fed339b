"""The commands about campaigns: run, replay, report."""

from __future__ import annotations

import re
import struct
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec
import rich_click as click

from chaoskit import registry, repro, trust
from chaoskit.cli.options import (
    EXIT,
    Duration,
    Faults,
    Place,
    Seconds,
    Seed,
    accept_incomplete_option,
    check_disk,
    jobs_option,
    json_option,
    pass_env_option,
    state_directory,
    verbose_option,
    write_json,
)
from chaoskit.cli.recent import remember, token_of
from chaoskit.disk.mounts import file_system_of
from chaoskit.disk.ops import Profile
from chaoskit.model import Repro, Verdict
from chaoskit.registry import Resolved
from chaoskit.search import campaign
from chaoskit.search.origin import changes, origin_of
from chaoskit.search.result import Result
from chaoskit.settings import Settings, settings_of
from chaoskit.show import report
from chaoskit.show.terminal import Terminal
from chaoskit.wrong_use import WrongUse

# What a schedule raises that none of our plans makes: its numbers and names fit no point.
NOT_A_SCHEDULE = (
    msgspec.MsgspecError,
    AssertionError,
    ArithmeticError,
    LookupError,
    ValueError,
    struct.error,
)


def _profile(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    return file_system_of(Path.cwd()).profile if value == "auto" else value


@click.command()
@click.argument("scenarios", nargs=-1, required=True, metavar="SCENARIO...")
@click.option(
    "--fault",
    type=Faults(),
    default="kill",
    show_default=True,
    help="The faults to inject (`chaoskit list faults`).",
)
@click.option(
    "--points",
    type=click.Choice(["named", "syscalls"]),
    default="named",
    show_default=True,
    help="Where to kill. **named**: at points that the target announces. **syscalls**: at every "
    "operation on its files, and halfway through each write.",
)
@click.option(
    "--profile",
    type=click.Choice(["auto", *get_args(Profile)]),
    default="ext4",
    show_default=True,
    callback=_profile,
    help="What a power loss may destroy. **auto**: as the file system under the current directory "
    "(`chaoskit doctor .` names it). **ext4**, **xfs**, **btrfs**: as measured on these file systems; a "
    "finding is a bug there. **posix**: everything that POSIX allows; a finding under posix only is a "
    "warning about other file systems.",
)
@click.option(
    "--plan",
    type=click.Choice(["sweep", "sample"]),
    default="sweep",
    show_default=True,
    help="**sweep**: crash before and after every point. **sample**: random schedules of one to "
    "three crashes, some during recovery; with **--agents**, or if the scenario generates its workload, "
    "fuzzing with new workloads.",
)
@click.option(
    "--agents",
    type=click.IntRange(min=1),
    metavar="N",
    show_default="the scenario's own number",
    help="Number of agents in the workload, for scenarios that support it (tree). With **--plan sample** "
    "this is fuzzing: every few runs get a new workload, drawn from the seed. Limit it with --runs, --for "
    "or --until-violation.",
)
@click.option(
    "--bias",
    type=click.Choice(["uniform", "rare"]),
    show_default="rare",
    help="Where the fuzzer crashes the target. **uniform**: every persist operation is equally likely. "
    "**rare**: prefers recovery, and the places that were crashed least so far.",
)
@click.option(
    "--seed",
    type=Seed(),
    default="0",
    show_default=True,
    help="Determines the workload, the schedules, and every id and timestamp.",
)
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    show_default="100 schedules of a sample, 1000 power-loss states, a whole sweep",
    help="Maximum number of schedules in a sample, of power-loss states, or of runs in a sweep; a sweep that "
    "the limit cuts short is incomplete. Fuzzing with --for or --until-violation has no limit by default.",
)
@click.option(
    "--depth",
    type=click.IntRange(min=1, max=2),
    show_default="2 where a recovery can be crashed",
    help="Number of crashes in one run of a sweep. **1**: only the first life is crashed, so the recovery "
    "tier is not tested.",
)
@click.option("--for", "seconds", type=Duration(), help="Time limit, e.g. 60s or 10m.")
@accept_incomplete_option
@click.option("--until-violation", is_flag=True, help="Stop at the first violation.")
@jobs_option
@click.option(
    "--store",
    metavar="KIND",
    show_default="the scenario's first",
    help="The kind of store, for scenarios that support several (`chaoskit list scenarios`).",
)
@click.option("--mutant", metavar="NAME", help="Run a deliberately broken agent (`chaoskit list mutants`).")
@click.option("--cold", is_flag=True, help="Start a fresh interpreter for each life: slower, same verdicts.")
@click.option(
    "--deadline",
    type=Seconds(),
    help="Time after which a life counts as hung. Importing the target may take a minute, or this if longer.",
)
@click.option(
    "--dir",
    "directory",
    type=Place(),
    default=Path(".chaoskit"),
    show_default=True,
    help="Directory for results and for runs that do not hold.",
)
@pass_env_option
@json_option
@verbose_option
def run(
    scenarios: tuple[str, ...],
    fault: tuple[str, ...],
    directory: Path,
    json_file: str | None,
    verbose: bool,
    **options: Any,
) -> None:
    """Run SCENARIO under faults and judge every run.

    SCENARIO is a name (`chaoskit list scenarios`), `module:name` or `file.py:name`.

    Examples: `chaoskit run payments --fault power`, `chaoskit run ./mine.py:SCENARIO --points syscalls`,
    `chaoskit run tree --plan sample --agents 50 --for 10m` (fuzzing).

    Exit codes: 0 HOLDS, 1 VIOLATED, 2 usage error or a target that cannot be tested, 3 UNKNOWN.
    """
    terminal = Terminal(to_stderr=json_file == "-")
    # All of them: a wrong name is an error before anything is run or written.
    wanted = [Settings(scenario=name, faults=fault, **options) for name in scenarios]
    named = [registry.resolve(settings) for settings in wanted]
    if any(each.settings.watches_disk for each in named):
        check_disk()
    # A default does not appear in the name of a directory; the kinds of faults that `all` means do.
    places = [
        directory / _name_of(msgspec.structs.replace(each.settings, store=asked.store))
        for each, asked in zip(named, wanted, strict=True)
    ]
    resolved = [
        msgspec.structs.replace(
            each, settings=msgspec.structs.replace(each.settings, keep=str(place / "runs"))
        )
        for each, place in zip(named, places, strict=True)
    ]
    state_directory(directory)
    results = [
        _campaign(each, terminal, place, verbose) for each, place in zip(resolved, places, strict=True)
    ]
    verdict = Verdict.merge(result.verdict for result in results)
    remember(w.token for result in results for w in result.witnesses)
    if json_file:
        write_json(report.as_json(results), json_file)
    terminal.reproduce(results)
    sys.exit(EXIT[verdict])


def _campaign(resolved: Resolved, terminal: Terminal, place: Path, verbose: bool) -> Result:
    terminal.header(resolved.settings)
    with terminal.progress(resolved.settings.scenario) as progress:
        result = campaign.run_campaign(resolved, progress)
    terminal.result(result, verbose=verbose)
    report.save(result, place)
    return result


def _name_of(settings: Settings) -> str:
    """Where its result is kept: campaigns that ask different questions do not overwrite one another."""
    power = any(kind.rebuilt for kind in settings.kinds)
    words = [settings.scenario, settings.store, settings.mutant]
    words += settings.faults if settings.faults != ("kill",) else ()
    words += ["syscalls"] if settings.points == "syscalls" else []
    words += [settings.profile] if power and settings.profile != "ext4" else []
    words += ["sample"] if settings.plan == "sample" else []
    words += [f"{settings.agents}-agents"] if settings.agents else []
    return _slug(*words)


def _slug(*words: str | None) -> str:
    return re.sub(r"[^\w.-]+", "-", "-".join(filter(None, words))).strip("-.")


@click.command()
@click.argument("token", metavar="REPRO")
@click.option("--cold", is_flag=True, help="Start a fresh interpreter for each life.")
@click.option(
    "--trust",
    "trusted",
    is_flag=True,
    help="Import, install and connect to whatever the token names. Without it, a token that no run of yours "
    "made may name registered scenarios and targets only.",
)
@pass_env_option
@json_option
def replay(token: str, cold: bool, trusted: bool, pass_env: tuple[str, ...], json_file: str | None) -> None:
    """Reproduce one failure: the same crash, the same finding.

    REPRO is the token from a `reproduce:` line, the short id of a finding from this directory, or `last`.

    Examples: `chaoskit replay last`, `chaoskit replay ck1-eNoNzL2R...`

    A token from somebody else may name code of theirs: chaoskit says what it would import or install, and
    does so only with `--trust`.

    Exit codes: 1 a violation was reproduced, 0 it holds now, 2 usage error or not trusted, 3 unknown.
    """
    token = token_of(token)
    wanted = repro.decode(token)
    trust.check(token, wanted, trusted=trusted)
    terminal = Terminal(to_stderr=json_file == "-")
    for act in trust.foreign(wanted):
        terminal.show(f"trusted: {act}")
    settings = msgspec.structs.replace(settings_of(wanted, cold=cold), pass_env=pass_env)
    resolved = registry.resolve(settings)
    for change in changes(wanted, origin_of(wanted.scenario)):
        terminal.show(f"warning: {change}")
    try:
        terminal.show(_replay_header(wanted))
        result = campaign.replay(resolved, wanted.schedule)
    except NOT_A_SCHEDULE as error:
        raise WrongUse(f"the token's schedule cannot be carried out: {error}") from error
    terminal.result(result, verbose=True)
    if json_file:
        write_json(report.as_json([result]), json_file)
    signature = registry.current_signature(wanted.signature)
    reproduced = any(w.finding.signature == signature for w in result.witnesses)
    terminal.show(f"{signature}: {'reproduced' if reproduced else 'not reproduced'}")
    sys.exit(EXIT[result.verdict])


def _replay_header(wanted: Repro) -> str:
    store = f" --store {wanted.store}" if wanted.store else ""
    mutant = f" --mutant {wanted.mutant}" if wanted.mutant else ""
    agents = f" --agents {wanted.agents}" if wanted.agents else ""
    cold = " --cold" if wanted.cold else ""
    deadline = f" --deadline {wanted.deadline:g}" if wanted.deadline else ""
    options = f"{store}{mutant}{agents}{cold}{deadline}"
    return f"{wanted.scenario}{options} --seed {wanted.seed}: {wanted.schedule}"


@click.command("report")
@click.argument("directory", metavar="DIR", type=Place())
@json_option
@verbose_option
def report_(directory: Path, json_file: str | None, verbose: bool) -> None:
    """Show a saved result again. DIR is a directory below `.chaoskit`.

    Examples: `chaoskit report .chaoskit/payments`, `chaoskit report .chaoskit/payments -v`

    Exit code: that of the saved run.
    """
    try:
        result = report.load(directory)
    except OSError:
        raise WrongUse(
            f"expected a saved result in {directory}, found no {report.RESULT_FILE} that can be read"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WrongUse(f"{directory / report.RESULT_FILE} is not a saved result: {error}") from None
    terminal = Terminal(to_stderr=json_file == "-")
    terminal.header(result.settings)
    terminal.result(result, verbose=verbose)
    if json_file:
        write_json(report.as_json([result]), json_file)
    terminal.reproduce([result])
    sys.exit(EXIT[result.verdict])
