"""Exit codes and option types that several commands share."""

from __future__ import annotations

import errno
import math
import os
import re
import secrets
import sys
from pathlib import Path
from typing import Any

import msgspec
import rich_click as click

from chaoskit.disk import interposer
from chaoskit.entry_points import UnknownName, unknown
from chaoskit.faults.kind import kinds
from chaoskit.model import Verdict
from chaoskit.registry import ALL_FAULTS
from chaoskit.search.executors import can_share_work
from chaoskit.search.tiers import chosen
from chaoskit.settings import LARGEST, LONGEST
from chaoskit.wrong_use import WrongUse

VIOLATED, NOTHING_KNOWN = 1, 3
EXIT = {
    Verdict.HOLDS: 0,
    Verdict.VIOLATED: VIOLATED,
    Verdict.UNKNOWN: NOTHING_KNOWN,
    Verdict.NOT_MEASURED: NOTHING_KNOWN,
}


verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Show every point in a table, and every finding."
)


accept_incomplete_option = click.option(
    "--accept-incomplete",
    is_flag=True,
    help="Allow HOLDS even if time ran out; otherwise the verdict is UNKNOWN.",
)


def check_disk() -> None:
    """Raises WrongUse with the reason if disk operations cannot be traced on this machine."""
    reason = interposer.available()
    if reason:
        raise WrongUse(f"disk operations cannot be traced here: {reason} (see chaoskit doctor)")


class Seed(click.ParamType[int]):
    name = "N|random"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == "random":
            return secrets.randbelow(2**32)
        if not re.fullmatch(r"[0-9]{1,19}", str(value)) or int(value) > LARGEST:
            self.fail(f"expected an integer from 0 to {LARGEST} or 'random', got {value!r}", param, ctx)
        return int(value)


class Duration(click.ParamType[float]):
    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh]?)", str(value))
        if not match:
            self.fail(f"expected a duration such as 60s, 10m or 2h, got {value!r}", param, ctx)
        seconds = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]
        if not 0 < seconds <= LONGEST:
            self.fail(f"expected more than 0 seconds and at most ten years, got {value!r}", param, ctx)
        return seconds


class Seconds(click.ParamType[float]):
    name = "SECONDS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds <= LONGEST:  # nan is in no interval
            self.fail(f"expected a number of seconds greater than 0, got {value!r}", param, ctx)
        return seconds


class Place(click.Path):
    """A path; an empty one would mean the current directory."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value):
            self.fail("expected a path, got nothing", param, ctx)
        return super().convert(value, param, ctx)


class Output(click.ParamType[str]):
    name = "FILE|-"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("expected a file, or - for standard output, got nothing", param, ctx)
        place = Path(value)
        if value != "-" and (place.is_dir() or not place.parent.is_dir()):
            self.fail(f"cannot write {value}: it is a directory, or its directory is missing", param, ctx)
        return str(value)


class Variables(click.ParamType[tuple[str, ...]]):
    name = "NAME,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        names = value if isinstance(value, tuple) else tuple(filter(None, str(value).split(",")))
        for name in names:
            if name not in os.environ:
                self.fail(f"expected the name of a variable that is set, got {name!r}", param, ctx)
        return names


class Jobs(click.IntRange):
    """Workers share their queue through semaphores, which need a shared-memory file system."""

    def __init__(self) -> None:
        super().__init__(min=1, max=1024)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        jobs = super().convert(value, param, ctx)
        if jobs > 1 and not can_share_work():
            self.fail("several workers need a writable /dev/shm: use --jobs 1", param, ctx)
        return jobs


def default_jobs() -> int:
    return len(os.sched_getaffinity(0)) if can_share_work() else 1


class Faults(click.ParamType[tuple[str, ...]]):
    name = "LIST|all"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        wanted = value.split(",")
        for name in wanted:
            if name not in kinds() and value != ALL_FAULTS:
                self.fail(unknown("fault", name, sorted(kinds())), param, ctx)
        return tuple(wanted)


class Tiers(click.ParamType[tuple[str, ...]]):
    name = "LIST"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return chosen(value.split(","))
        except UnknownName as error:
            self.fail(str(error), param, ctx)


jobs_option = click.option(
    "--jobs", type=Jobs(), default=default_jobs, show_default="all cores", help="Number of worker processes."
)
json_option = click.option(
    "--json", "json_file", type=Output(), help="Write the result as JSON; - is standard output."
)
pass_env_option = click.option(
    "--pass-env",
    type=Variables(),
    default="",
    help="Environment variables that the target may see. By default it gets only PATH, the locale, and a "
    "HOME of its own.",
)


def write_json(value: Any, target: str) -> None:
    text = msgspec.json.format(msgspec.json.encode(value)).decode() + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        write_text(Path(target), text)


def write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        if error.errno == errno.ENOSPC:  # the path is right
            raise
        raise WrongUse(f"cannot write {path}: {error.strerror}") from None


def state_directory(path: Path) -> Path:
    """The directory for kept runs, created if missing; WrongUse if it is not writable."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise WrongUse(f"cannot write to the state directory {path}: {error.strerror}") from None
    return path
