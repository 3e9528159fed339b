"""`chaoskit doctor`: what works on this machine, and what is missing."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import msgspec
import psutil
import rich_click as click

from chaoskit import registry
from chaoskit.cli.options import NOTHING_KNOWN
from chaoskit.disk import interposer
from chaoskit.disk.mounts import file_system_of
from chaoskit.model import Schedule
from chaoskit.run import environment
from chaoskit.run.workspace import MEMORY, base_directory
from chaoskit.search.rig import open_rig
from chaoskit.settings import Settings
from chaoskit.show.terminal import Terminal
from chaoskit.wrong_use import WrongUse


class Check(msgspec.Struct, frozen=True):
    name: str
    works: bool
    detail: str
    without_it: str  # the consequence if it does not work


def checks() -> Iterator[Check]:
    yield Check(
        "python",
        sys.version_info >= (3, 11),
        platform.python_version(),
        "chaoskit needs Python 3.11 or newer",
    )
    yield Check(
        "system",
        sys.platform == "linux",
        platform.platform(),
        "chaoskit needs Linux (pidfd, /proc, prctl): nothing runs",
    )
    yield Check(
        "pidfd",
        hasattr(os, "pidfd_open"),
        "os.pidfd_open",
        "chaoskit cannot wait for a process to end: nothing runs",
    )
    yield Check(
        "memory file system",
        os.access(MEMORY, os.W_OK),
        f"runs in {base_directory()}",
        "runs use the temporary directory: same verdicts, slower",
    )
    yield Check("cores", True, _machine(), "")
    yield Check("sqlite", True, sqlite3.sqlite_version, "")
    reason = interposer.available()
    yield Check(
        "interposer",
        reason is None,
        reason or "syscall points, power loss, disk errors",
        "named points still work; --points syscalls, --fault power and disk do not",
    )
    yield _attempt(
        "environments",
        environment.installer,
        "only targets whose packages are installed here can be certified",
    )
    yield _attempt("scenarios", _load_all, "scenarios cannot be run by name")
    yield _attempt("crash test", _kill_one, "no verdict is possible on this machine")


def _machine() -> str:
    memory = psutil.virtual_memory().available / 2**30
    return f"{psutil.cpu_count()} cores, {memory:.1f} GiB of memory free"


def _attempt(name: str, action: Callable[[], str], without_it: str) -> Check:
    try:
        return Check(name, True, action(), without_it)
    except Exception as error:  # noqa: BLE001 - any error is the result of the check
        return Check(name, False, f"{type(error).__name__}: {error}", without_it)


def _load_all() -> str:
    names = list(registry.scenarios())
    for name in names:
        registry.resolve(Settings(scenario=name))
    return f"{len(names)} scenarios load (chaoskit list scenarios)"


def _kill_one() -> str:
    """Runs one life of the first scenario in a real process, from start to end."""
    resolved = registry.resolve(Settings(scenario=next(iter(registry.scenarios()))))
    with open_rig(resolved) as (rig, _):
        started = time.monotonic()
        run, _ = rig.run(Schedule(), rig.workload())
        took = time.monotonic() - started
    return f"one life in {took * 1000:.0f} ms, {len(run.traces[0])} persist points passed"


def _file_system(directory: Path) -> Check:
    try:
        return Check("file system", True, file_system_of(directory).words(), "")
    except OSError as error:
        raise WrongUse(f"cannot look at {directory}: {error.strerror}") from None


def machine_is_fit(found: list[Check]) -> bool:
    """Whether everything needed for a verdict works."""
    dispensable = {"memory file system", "interposer", "environments"}
    return all(check.works for check in found if check.name not in dispensable)


@click.command()
@click.argument("directory", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
def doctor(directory: Path | None) -> None:
    """Report what works on this machine, and what is missing.

    With DIR, also which file system is under that directory, and which power-loss profile fits it (`chaoskit
    run --profile`).

    Examples: `chaoskit doctor`, `chaoskit doctor /var/lib/my-agent`,
    `CHAOSKIT_TMPDIR=/var/tmp chaoskit doctor`

    Exit codes: 0 everything needed for a verdict works, 2 no such directory, 3 something is missing.
    """
    found = []
    terminal = Terminal()
    for check in chain([_file_system(directory)] if directory else [], checks()):
        found.append(check)
        missing = "" if check.works else f" -> {check.without_it}"
        line = f"{'ok' if check.works else 'NO':<3} {check.name:<20} "
        terminal.show(f"{line}{check.detail}{missing}", hang=" " * len(line))
    sys.exit(0 if machine_is_fit(found) else NOTHING_KNOWN)
