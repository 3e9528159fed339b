"""What a supervisor tells a life before it begins: one JSON object, the same type on both sides.

Standard library only: this is imported into other people's processes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class NamedKill:
    """Die at the nth time that this point is announced in this phase."""

    name: str
    nth: int
    when: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeSpec:
    entry: str  # module:function or file.py:function
    patch: str | None  # of a mutant, called before the entry
    directory: str  # what must survive
    trace: str | None  # the file for named points; None: nobody wants to know them
    control: str | None  # the interposer's control file; None: the disk is not watched
    buffered: bool  # nothing will cut this life short: what it reports may be sent all at once
    life: int
    seed: int
    store: str | None
    workload: Any
    interrupted: list[dict[str, Any]]  # what the life before was asked for and did not complete
    kill: NamedKill | None

    @property
    def reuses_process(self) -> bool:
        """A process whose points are not traced checks rebuilt states, one after the other."""
        return self.trace is None


def decode(line: bytes) -> LifeSpec:
    fields = json.loads(line)
    kill = fields.pop("kill")
    return LifeSpec(**fields, kill=NamedKill(**kill) if kill else None)
