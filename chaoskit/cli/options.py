"""What several commands of the command line share: exit codes, and the types of options."""

from __future__ import annotations

import re
import secrets
from typing import Any

import rich_click as click

from chaoskit.disk import interposer
from chaoskit.model import Verdict

EXIT = {Verdict.HOLDS: 0, Verdict.VIOLATED: 1, Verdict.UNKNOWN: 3, Verdict.NOT_MEASURED: 3}


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
