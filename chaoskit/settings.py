"""Settings: everything that determines a campaign. Printed before it starts."""

from __future__ import annotations

import math
import shlex
from typing import Literal

import msgspec

from chaoskit.disk.ops import Profile
from chaoskit.faults.kind import FaultKind, kind
from chaoskit.faults.power import MOST_STATES
from chaoskit.model import Repro, Schedule
from chaoskit.wrong_use import WrongUse

SAMPLE_RUNS = 100
LARGEST = 2**63 - 1  # a token holds 64 bits
LONGEST = 10 * 365 * 24 * 3600.0  # seconds; the clocks of the kernel do not count further than some centuries


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """As requested. `registry.resolve` checks the names and fills in the scenario's defaults."""

    scenario: str
    seed: int = 0
    faults: tuple[str, ...] = ("kill",)
    points: Literal["named", "syscalls"] = "named"
    profile: Profile = "ext4"
    plan: Literal["sweep", "sample"] = "sweep"
    agents: int | None = None  # in the workload; None: the scenario's default
    generated: bool = False  # a fact about the scenario, which `registry.resolve` fills in
    bias: Literal["uniform", "rare"] | None = None  # of a fuzz; None: rare
    runs: int | None = None  # schedules of a sample, power-loss states, or the limit of a sweep
    depth: int | None = None  # crashes in one run of a sweep; None: as many as the kind of fault allows
    until_violation: bool = False  # stop at the first one
    accept_incomplete: bool = False  # a sweep that runs out of time may hold
    seconds: float | None = None
    jobs: int = 1
    store: str | None = None  # None: the scenario's default, if it has any
    mutant: str | None = None
    cold: bool = False
    deadline: float | None = None
    shard: tuple[int, int] = (0, 1)  # (index, number of shards); together they make up the campaign
    keep: str | None = None  # directory for runs that do not hold
    pass_env: tuple[str, ...] = ()  # variables that the target gets besides those it needs

    def __post_init__(self) -> None:
        """Numbers are checked here: they come from the command line, from tests, from tokens and files."""
        if not 0 <= self.seed <= LARGEST:
            raise WrongUse(f"expected a seed from 0 to {LARGEST}, got {self.seed}")
        for name in ("seconds", "deadline"):
            seconds = getattr(self, name)
            if seconds is not None and not (math.isfinite(seconds) and 0 < seconds <= LONGEST):
                raise WrongUse(f"expected more than 0 seconds, at most ten years, got {name}={seconds:g}")
        for name in ("runs", "agents", "depth", "jobs"):
            number = getattr(self, name)
            if number is not None and not 1 <= number <= LARGEST:
                raise WrongUse(f"expected {name} from 1 to {LARGEST}, got {number}")
        part, parts = self.shard
        if not 0 <= part < parts:
            raise WrongUse(f"expected a shard from 0 to {parts - 1}, got {part}")

    @property
    def kinds(self) -> tuple[FaultKind, ...]:
        return tuple(map(kind, self.faults))

    @property
    def parts(self) -> list[Settings]:
        """One campaign per kind of fault, one after the other; a fuzz mixes all kinds in one."""
        if self.fuzzes:
            return [self]
        return [msgspec.structs.replace(self, faults=(fault,)) for fault in self.faults]

    @property
    def watches_disk(self) -> bool:
        """Whether points are disk operations; a campaign uses either these or named points."""
        return self.points == "syscalls" or any(kind.watches_disk for kind in self.kinds)

    @property
    def rebuilds(self) -> bool:
        """Whether all requested faults rebuild crash states from a recording: all of one workload."""
        return not self.fuzzes and all(kind.rebuilt for kind in self.kinds)

    @property
    def fuzzes(self) -> bool:
        """Whether every few runs get a fresh workload."""
        return self.plan == "sample" and (self.generated or self.agents is not None)

    @property
    def sample_runs(self) -> int:
        return self.runs or SAMPLE_RUNS

    @property
    def fuzz_runs(self) -> int | None:
        """None: until the time limit or the first violation."""
        endless = self.seconds is not None or self.until_violation
        return None if self.runs is None and endless else self.sample_runs

    @property
    def power_states(self) -> int:
        return self.runs or MOST_STATES

    def command_line(self) -> str:
        """The equivalent options of `chaoskit run`."""
        words = [
            self.scenario,
            "--fault",
            ",".join(self.faults),
            "--points",
            self.points,
            "--plan",
            self.plan,
        ]
        words += ["--seed", str(self.seed), "--jobs", str(self.jobs)]
        power = any(kind.rebuilt for kind in self.kinds)
        options = {
            "--profile": self.profile if power else None,
            "--agents": self.agents,
            "--bias": (self.bias or "rare") if self.fuzzes else None,
            "--runs": self._runs_in_force(power),
            "--depth": self.depth,
            "--for": f"{self.seconds:g}s" if self.seconds is not None else None,
            "--until-violation": self.until_violation,
            "--accept-incomplete": self.accept_incomplete,
            "--store": self.store,
            "--mutant": self.mutant,
            "--cold": self.cold,
            "--deadline": f"{self.deadline:g}" if self.deadline is not None else None,
            "--pass-env": ",".join(self.pass_env),
        }
        for option, value in options.items():
            if value is True:
                words.append(option)
            elif value not in (None, False, ""):
                words += [option, str(value)]
        return shlex.join(words)

    def _runs_in_force(self, power: bool) -> int | None:
        if self.fuzzes:
            return self.fuzz_runs
        if self.plan == "sample":
            return self.sample_runs
        return self.power_states if power else self.runs


def strikes_disk(schedule: Schedule) -> bool:
    return any(fault.point.op is not None for fault in schedule.faults)


def settings_of(wanted: Repro, *, cold: bool = False) -> Settings:
    """The settings of a replay: everything that decides a verdict is in the token.

    The disk is watched only if it was, because a fault of the schedule needs it or without such a fault.
    """
    return Settings(
        scenario=wanted.scenario,
        seed=wanted.seed,
        agents=wanted.agents,
        store=wanted.store,
        mutant=wanted.mutant,
        cold=cold or wanted.cold,
        deadline=wanted.deadline,
        points="syscalls" if wanted.watched or strikes_disk(wanted.schedule) else "named",
    )
