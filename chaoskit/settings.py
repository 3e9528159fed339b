"""Settings: everything that decides what a campaign does. Printed before it starts."""

from __future__ import annotations

import shlex
from typing import Literal

import msgspec

from chaoskit.disk.ops import Profile
from chaoskit.model import Kill, Repro

SAMPLE_RUNS = 100
POWER_STATES = 1000


class Settings(msgspec.Struct, frozen=True, kw_only=True):
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
    shard: tuple[int, int] = (0, 1)  # this one of so many equal parts of the schedules
    keep: str | None = None  # where runs that did not hold are saved

    @property
    def watches_disk(self) -> bool:
        """Whether points are operations on the disk; one campaign has either these or names."""
        return self.points == "syscalls" or bool({"power", "disk"} & set(self.faults))

    @property
    def fuzzes(self) -> bool:
        """Whether every few runs have a fresh workload; a loss of power has one for all its states."""
        drawn = self.plan == "sample" and self.agents is not None
        return drawn and self.faults != ("power",)

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
        return self.runs or POWER_STATES

    def words(self) -> str:
        """The options of the command line that say the same."""
        words = [
            self.scenario,
            "--fault",
            ",".join(self.faults),
            "--points",
            self.points,
            "--plan",
            self.plan,
            "--seed",
            str(self.seed),
            "--jobs",
            str(self.jobs),
        ]
        if "power" in self.faults:
            words += ["--profile", self.profile]
        if self.agents is not None:
            words += ["--agents", str(self.agents)]
        if self.fuzzes:
            words += ["--bias", self.bias or "rare"]
            words += ["--runs", str(self.fuzz_runs)] if self.fuzz_runs is not None else []
        elif self.plan == "sample":
            words += ["--runs", str(self.sample_runs)]
        elif "power" in self.faults:
            words += ["--runs", str(self.power_states)]
        if self.seconds is not None:
            words += ["--for", f"{self.seconds:g}s"]
        if self.until_violation:
            words.append("--until-violation")
        if self.store:
            words += ["--store", self.store]
        if self.mutant:
            words += ["--mutant", self.mutant]
        if self.cold:
            words.append("--cold")
        if self.deadline is not None:
            words += ["--deadline", f"{self.deadline:g}"]
        return shlex.join(words)


def settings_of(wanted: Repro, *, cold: bool = False) -> Settings:
    """What a replay needs; the disk is watched only where these faults strike it."""
    faults = wanted.schedule.faults
    named = all(isinstance(fault, Kill) and fault.point.op is None for fault in faults)
    return Settings(
        scenario=wanted.scenario,
        seed=wanted.seed,
        agents=wanted.agents,
        store=wanted.store,
        mutant=wanted.mutant,
        cold=cold,
        points="named" if named else "syscalls",
    )
