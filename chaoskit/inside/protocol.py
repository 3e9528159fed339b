"""The spec that a supervisor sends to a life: one JSON object, the same type on both sides.

Standard library only: this is imported into the target's process.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class NamedKill:
    """Die the nth time that this point is announced in this phase."""

    name: str
    nth: int
    when: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeSpec:
    entry: str  # module:function or file.py:function
    patch: str | None  # of a mutant, called before the entry
    directory: str  # the state that must survive
    trace: str | None  # the file for named points; None: they are not recorded
    control: str | None  # the interposer's control file; None: the disk is not watched
    buffered: bool  # no fault is planned for this life: its reports may be sent all at once
    life: int
    seed: int
    store: str | None
    workload: Any
    interrupted: list[dict[str, Any]]  # operations that the previous life did not complete
    kill: NamedKill | None
    final: bool = False  # an extra life that only looks
    clock: float = 0  # where the wall clock starts, in seconds; 0: the real clock

    @property
    def reuses_process(self) -> bool:
        """A process whose points are not traced checks several rebuilt states in sequence."""
        return self.trace is None


def decode(line: bytes) -> LifeSpec:
    fields = json.loads(line)
    kill = fields.pop("kill")
    return LifeSpec(**fields, kill=NamedKill(**kill) if kill else None)


# Everything that chaoskit calls on an adapter, of a store and of an agent.
ADAPTER_METHODS = frozenset(
    {"open", "close", "save", "load", "append", "items", "history", "delete", "records", "settle", "settings"}
    | {"start", "resume", "validate", "park", "approve", "fork"}
)
