"""What several commands of the command line share: exit codes, and the types of options."""

from __future__ import annotations

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
from chaoskit.search.tiers import chosen

VIOLATED, NOTHING_KNOWN = 1, 3
EXIT = {
    Verdict.HOLDS: 0,
    Verdict.VIOLATED: VIOLATED,
    Verdict.UNKNOWN: NOTHING_KNOWN,
    Verdict.NOT_MEASURED: NOTHING_KNOWN,
}


verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Every point in a table, and every finding."
)


def check_disk() -> None:
    """One clear line where the operations on the disk cannot be seen."""
    reason = interposer.available()
    if reason:
        raise ValueError(f"the disk cannot be watched here: {reason} (chaoskit doctor says more)")


class Seed(click.ParamType[int]):
    name = "N|random"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == "random":
            return secrets.randbelow(2**32)
        try:
            return int(value)
        except ValueError:
            self.fail(f"expected a whole number or 'random', got {value!r}", param, ctx)


class Duration(click.ParamType[float]):
    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", str(value))
        if not match:
            self.fail(f"expected a time such as 60s, 10m or 2h, got {value!r}", param, ctx)
        return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


class Faults(click.ParamType[tuple[str, ...]]):
    name = "LIST|all"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        wanted = list(kinds()) if value == "all" else value.split(",")
        for name in wanted:
            if name not in kinds():
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
        raise ValueError(f"cannot write {path}: {error.strerror}") from None


def state_directory(path: Path) -> Path:
    """The directory for kept runs, made if need be; a clear error if that cannot be done."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(f"cannot write to the state directory {path}: {error.strerror}") from None
    return path
