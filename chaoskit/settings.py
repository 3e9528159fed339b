"""Settings: everything that decides what a campaign does. Printed before it starts."""

from __future__ import annotations

import shlex
from typing import Literal

import msgspec

from chaoskit.disk.ops import Profile
from chaoskit.faults.kind import FaultKind, kind
from chaoskit.faults.power import MOST_STATES
from chaoskit.model import Repro

SAMPLE_RUNS = 100


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """As asked for. `registry.resolve` checks the names and fills in what depends on the scenario."""

    scenario: str
    seed: int = 0
    faults: tuple[str, ...] = ("kill",)
    points: Literal["named", "syscalls"] = "named"
    profile: Profile = "ext4"
    plan: Literal["sweep", "sample"] = "sweep"
    agents: int | None = None  # in the workload; None: as many as the scenario has by itself
    bias: Literal["uniform", "rare"] | None = None  # of a fuzz; None: rare
    runs: int | None = None  # of a sample; states of a power loss
    until_violation: bool = False  # stop at the first one
    seconds: float | None = None
    jobs: int = 1
    store: str | None = None  # None: the scenario's default, if it has any
    mutant: str | None = None
    cold: bool = False
    deadline: float | None = None
    shard: tuple[int, int] = (0, 1)  # this one of so many parts; together they are the whole campaign
    keep: str | None = None  # where runs that did not hold are saved

    @property
    def kinds(self) -> tuple[FaultKind, ...]:
        return tuple(map(kind, self.faults))

    @property
    def watches_disk(self) -> bool:
        """Whether points are operations on the disk; one campaign has either these or names."""
        return self.points == "syscalls" or any(kind.watches_disk for kind in self.kinds)

    @property
    def rebuilds(self) -> bool:
        """Whether crash states are rebuilt from a recording, by all the faults asked for."""
        return all(kind.rebuilt for kind in self.kinds)

    @property
    def fuzzes(self) -> bool:
        """Whether every few runs have a fresh workload; rebuilt states all come from one."""
        return self.plan == "sample" and self.agents is not None and not self.rebuilds

    @property
    def sample_runs(self) -> int:
        return self.runs or SAMPLE_RUNS

    @property
    def fuzz_runs(self) -> int | None:
        """None: until the time is over, or a violation is found."""
        endless = self.seconds is not None or self.until_violation
        return None if self.runs is None and endless else self.sample_runs

    @property
    def power_states(self) -> int:
        return self.runs or MOST_STATES

    def command_line(self) -> str:
        """The options of the command line that ask for the same."""
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
            "--for": f"{self.seconds:g}s" if self.seconds is not None else None,
            "--until-violation": self.until_violation,
            "--store": self.store,
            "--mutant": self.mutant,
            "--cold": self.cold,
            "--deadline": f"{self.deadline:g}" if self.deadline is not None else None,
        }
        for option, value in options.items():
            if value is True:
                words.append(option)
            elif value not in (None, False):
                words += [option, str(value)]
        return shlex.join(words)

    def _runs_in_force(self, power: bool) -> int | None:
        if self.fuzzes:
            return self.fuzz_runs
        if self.plan == "sample":
            return self.sample_runs
        return self.power_states if power else None


def settings_of(wanted: Repro, *, cold: bool = False) -> Settings:
    """What a replay needs; the disk is watched only where these faults strike it."""
    named = all(fault.point.op is None for fault in wanted.schedule.faults)
    return Settings(
        scenario=wanted.scenario,
        seed=wanted.seed,
        agents=wanted.agents,
        store=wanted.store,
        mutant=wanted.mutant,
        cold=cold,
        points="named" if named else "syscalls",
    )
