"""Exit codes and option types that several commands share."""

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
    "-v", "--verbose", is_flag=True, help="Show every point in a table, and every finding."
)


accept_incomplete_option = click.option(
    "--accept-incomplete",
    is_flag=True,
    help="Allow HOLDS even if time ran out; otherwise the verdict is UNKNOWN.",
)


def check_disk() -> None:
    """Raises ValueError with the reason if disk operations cannot be traced on this machine."""
    reason = interposer.available()
    if reason:
        raise ValueError(f"disk operations cannot be traced here: {reason} (see chaoskit doctor)")


class Seed(click.ParamType[int]):
    name = "N|random"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == "random":
            return secrets.randbelow(2**32)
        try:
            return int(value)
        except ValueError:
            self.fail(f"expected an integer or 'random', got {value!r}", param, ctx)


class Duration(click.ParamType[float]):
    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", str(value))
        if not match:
            self.fail(f"expected a duration such as 60s, 10m or 2h, got {value!r}", param, ctx)
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
    """The directory for kept runs, created if missing; ValueError if it is not writable."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(f"cannot write to the state directory {path}: {error.strerror}") from None
    return path
