"""Every noun of the engine as plain typed data, in the order in which data flows.

    Scenario -> Plan -> Schedule -> (supervisor) -> History -> (oracle) -> Finding, Verdict -> Repro

Pure data: no clock, no I/O, no randomness. Invariants import only this module.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar

import msgspec

Json = Any  # what json.loads returns; payloads belong to the scenario, not to the engine


class Verdict(enum.Enum):
    """HOLDS < UNKNOWN < VIOLATED, merged by maximum. NOT_MEASURED: no run tested the claim."""

    NOT_MEASURED = "NOT_MEASURED"
    HOLDS = "HOLDS"
    UNKNOWN = "UNKNOWN"
    VIOLATED = "VIOLATED"

    @property
    def rank(self) -> int:
        return list(Verdict).index(self)

    @staticmethod
    def merge(verdicts: Iterable[Verdict]) -> Verdict:
        """The worst verdict; NOT_MEASURED (never HOLDS) if there are none."""
        return max(verdicts, key=lambda v: v.rank, default=Verdict.NOT_MEASURED)


# --- scenarios ---------------------------------------------------------------------------------


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The program under test: `entry` is `module:function`, called with a `chaoskit.inside.Life`."""

    entry: str
    preload: tuple[str, ...] = ()  # modules that the zygote imports once, before it forks
    deadline: float = 10.0  # seconds after which a life counts as hung
    looks_again: bool = False  # an extra life in a new process looks at what the last one left
    requires: tuple[str, ...] = ()  # packages; installed into a separate environment if missing here
    seeded_clock: bool = False  # the wall clock follows the life, not the world


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A service of the World that the target calls, and what it offers to a caller that retries."""

    name: str
    honours_keys: bool = False  # a second request with the same key gets the first receipt, without effect
    verifiable: bool = False  # answers "did this happen?"


class Drill(msgspec.Struct, frozen=True, kw_only=True):
    """The campaign that finds a mutant: options of `chaoskit run`."""

    scenario: str
    faults: tuple[str, ...] = ("kill",)
    plan: Literal["sweep", "sample"] = "sweep"
    points: Literal["named", "syscalls"] = "named"
    profile: Literal["ext4", "posix"] = "ext4"
    store: str | None = None
    agents: int | None = None

    def command(self, mutant: str) -> str:
        default = Drill(scenario=self.scenario)
        wanted = {
            "--fault": ",".join(self.faults) if self.faults != default.faults else None,
            "--plan": self.plan if self.plan != default.plan else None,
            "--points": self.points if self.points != default.points else None,
            "--profile": self.profile if self.profile != default.profile else None,
            "--store": self.store,
            "--agents": self.agents,
        }
        options = [f" {name} {value}" for name, value in wanted.items() if value]
        if self.plan == "sample":
            options.append(" --until-violation --for 15m")
        return f"chaoskit run {self.scenario} --mutant {mutant}{''.join(options)}"


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """A deliberately broken agent; `patch` is `module:function`, called in each life before the entry."""

    name: str
    summary: str
    breaks: str  # the invariant that must catch it
    patch: str
    violates: tuple[str, ...] = ()  # the requirements of the agent that its bug violates
    drill: Drill | None = None
    stores: tuple[str, ...] = ()  # stores on which it is broken; empty: all


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Target + seeded workload + the world it acts on + the invariants that must hold."""

    name: str
    summary: str
    target: Target
    workload: Callable[[int], Json]  # seed -> plain data, handed to the target
    workload_for: Callable[[int, int], Json] | None = None  # seed, number of agents -> workload
    generated: bool = False  # each seed draws another workload, so a sample fuzzes it
    variants: dict[str, Callable[[int], Json]] = {}  # other workloads, named `scenario#variant`
    invariants: tuple[str, ...]  # registered names or module:name references
    services: tuple[Service, ...] = ()
    mutants: tuple[Mutant, ...] = ()
    stores: tuple[str, ...] = ()  # kinds of store that the target supports, the default first
    world_faults: bool = False  # its target is to survive services that fail, and replies that are lost
    # Facts of which a fuzz must see each at least once, such as `ack:surfaced`, `probe:degraded`,
    # `invoke:resume`, `effect:bank.pay`, `fail:resume`, `struck:disk`; one that did not is UNKNOWN.
    must_reach: tuple[str, ...] = ()


# --- faults and schedules ----------------------------------------------------------------------

When = Literal["before", "after", "half", "call"]  # `call`: the point is a call of a service


class PersistPoint(msgspec.Struct, frozen=True, order=True):
    """A place where durable state may change.

    A *named* point is the nth time that a life announces `name`. A *syscall* point has `op`, its
    number among the life's operations on the watched directory (from 0); its name describes the
    operation, such as `write sessions.db-wal`.
    """

    name: str
    nth: int  # from 1
    op: int | None = None

    def __str__(self) -> str:
        return f"{self.name}#{self.nth}"


class Fault:
    """A fault injected into one life, as plain data: the base class of the faults in `chaoskit.faults`.

    Other packages may derive their own faults from it: a Struct with its own tag.
    """

    __slots__ = ()
    point: PersistPoint
    decides_tier: ClassVar[bool] = False  # a run with this fault is of its tier, whatever else happens

    @property
    def name(self) -> str:
        """The fault without its point: a column of the table of points."""
        raise NotImplementedError

    @property
    def tier(self) -> str:
        """The tier of a run with this fault only."""
        raise NotImplementedError

    @property
    def parts(self) -> tuple[Fault, ...]:
        """What it consists of, if it is several faults; only the last one may end the life."""
        return (self,)


class Schedule(msgspec.Struct, frozen=True):
    """The fault of each life, in order; the last life runs without a fault."""

    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        return ", then ".join(map(str, self.faults)) or "no fault"

    @property
    def tier(self) -> str:
        """What the schedule tests; any second crash is a test of recovery."""
        decisive = next((fault.tier for fault in self.faults if fault.decides_tier), None)
        if decisive:
            return decisive
        if len(self.faults) > 1:
            return "recovery"
        return self.faults[0].tier if self.faults else "undisturbed"


class Firing(msgspec.Struct, frozen=True):
    """A persist point that the target's process passed."""

    point: PersistPoint
    when: When


# --- history -----------------------------------------------------------------------------------
# `at` is the position in the life's trace: the number of named points announced so far, or of disk
# operations if the disk is watched.


class Born(msgspec.Struct, frozen=True, tag="born"):
    life: int


class Invoke(msgspec.Struct, frozen=True, tag="invoke"):
    """An operation requested of the target. It ends in Ok, Fail or Info (outcome unknown)."""

    life: int
    at: int
    op: int
    name: str
    args: dict[str, Json]


class Ok(msgspec.Struct, frozen=True, tag="ok"):
    life: int
    at: int
    op: int
    result: Json = None


class Fail(msgspec.Struct, frozen=True, tag="fail"):
    life: int
    at: int
    op: int
    error: str


class Info(msgspec.Struct, frozen=True, tag="info"):
    life: int
    op: int


class Ack(msgspec.Struct, frozen=True, tag="ack"):
    """The target acknowledged that something is durable: losing it from here on is a violation."""

    life: int
    at: int
    name: str
    data: dict[str, Json]


class Effect(msgspec.Struct, frozen=True, tag="effect"):
    """An entry of the ledger. `applied` is false if the service recognised the key and did nothing."""

    life: int
    at: int
    service: str
    action: str
    args: dict[str, Json]
    key: str | None
    applied: bool


class Probe(msgspec.Struct, frozen=True, tag="probe"):
    """What the target found in its store: `recovered` right after recovery, `end` when its work is done."""

    life: int
    at: int
    name: str
    data: dict[str, Json]


class Crashed(msgspec.Struct, frozen=True, tag="crashed"):
    """A planned fault fired and killed the process."""

    life: int
    at: int
    fault: Fault
    passed: tuple[str, ...] = ()  # the last points before it, for the story; empty where none are known


class Struck(msgspec.Struct, frozen=True, tag="struck"):
    """A planned fault fired and the process survived it."""

    life: int
    fault: Fault


How = Literal["completed", "crashed", "failed", "hung", "died"]


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """How a life ended. `died`: the process died, but the harness did not kill it."""

    life: int
    how: How
    detail: str = ""


Event = Born | Invoke | Ok | Fail | Info | Ack | Effect | Probe | Crashed | Struck | Ended
Placed = Invoke | Ok | Fail | Ack | Effect | Probe  # those that have a position
E = TypeVar("E", bound=Event)
D = TypeVar("D")


class History(msgspec.Struct, frozen=True, dict=True):
    """The oracle's only input. `baseline` has the events of the same workload without faults."""

    events: tuple[Event, ...]
    baseline: tuple[Event, ...] = ()

    def of(self, kind: type[E], name: str | None = None) -> Iterator[E]:
        return select(self._events.get(kind, ()), kind, name)

    def expected(self, kind: type[E], name: str | None = None) -> Iterator[E]:
        return select(self._baseline.get(kind, ()), kind, name)

    def once(self, derive: Callable[[History], D]) -> D:
        """Cached `derive(self)`, shared by all invariants; they must not modify it."""
        if derive not in self._derived:
            self._derived[derive] = derive(self)
        found: D = self._derived[derive]
        return found

    @cached_property
    def _derived(self) -> dict[object, Any]:
        return {}

    # Invariants select events by kind, several times each: group them once.

    @cached_property
    def _events(self) -> dict[type, list[Event]]:
        return _by_kind(self.events)

    @cached_property
    def _baseline(self) -> dict[type, list[Event]]:
        return _by_kind(self.baseline)


def _by_kind(events: Iterable[Event]) -> dict[type, list[Event]]:
    found: dict[type, list[Event]] = {}
    for event in events:
        found.setdefault(type(event), []).append(event)
    return found


def last(events: Iterable[E]) -> E | None:
    """The last event, or None."""
    found = None
    for found in events:  # noqa: B007 - only the last one matters
        pass
    return found


def select(events: Iterable[Event], kind: type[E], name: str | None = None) -> Iterator[E]:
    for event in events:
        if isinstance(event, kind) and (name is None or getattr(event, "name", None) == name):
            yield event


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What the target is asked to do. The seed decides everything random, including ids and times."""

    seed: int
    content: Json
    undisturbed: tuple[Event, ...] = ()  # the events of the run without faults, once it has been run


DoubtKind = Literal[
    "missed-fault",  # a planned fault did not fire
    "foreign-death",  # the process died, but chaoskit did not kill it
    "blind-spot",  # a disk operation that the interposer cannot see
    "strayed",  # before its crash the run differed from the run without faults
    "broken-invariant",  # an invariant raised an error
    "nothing-judged",  # no invariant found anything to judge
    "contradiction",  # the rebuilt state holds, the real crash does not
    "remembers",  # a reused process sees something else than a fresh one
    "unconfirmed",  # found on a rebuilt state, not reproduced by a real crash
    "no-time",  # found on a rebuilt state, and no time was left for a real crash
    "not-measured",  # no run tested the claim
    "not-reached",  # what the scenario requires of every campaign did not occur
    "nothing-ran",
    "cut-short",  # a sweep did not reach its end
]


class Doubt(msgspec.Struct, frozen=True, order=True):
    """A reason why a run proves nothing."""

    kind: DoubtKind
    detail: str

    def __str__(self) -> str:
        return DOUBTS[self.kind].format(self.detail)


DOUBTS: dict[DoubtKind, str] = {
    "missed-fault": "the planned fault did not fire: {}",
    "foreign-death": "{}, but chaoskit did not kill it",
    "blind-spot": "not visible to the interposer: {}",
    "strayed": "{}",
    "broken-invariant": "invariant {}",
    "nothing-judged": "no invariant found anything to judge{}",
    "contradiction": "the rebuilt state holds, but the real crash does not: {}",
    "remembers": "{}",
    "unconfirmed": "found on a rebuilt state, but a real crash did not reproduce it: {}",
    "no-time": "found on a rebuilt state, but time ran out before it was confirmed (allow more time): {}",
    "not-measured": "no run tested {}",
    "not-reached": "required of every campaign, and not reached in {}",
    "nothing-ran": "no schedule was run{}",
    "cut-short": "stopped after {}: the sweep is incomplete"
    " (allow more time or runs, or use --accept-incomplete)",
}


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One executed schedule."""

    schedule: Schedule
    history: History
    traces: tuple[tuple[Firing, ...], ...]  # the points that each life passed, where a fault could strike
    fired: int  # planned faults that fired
    doubts: tuple[Doubt, ...] = ()  # reasons why this run proves nothing
    origin: str = ""  # identifies the content of the directory from which the last life recovered


# --- judgement ---------------------------------------------------------------------------------


class Violation(msgspec.Struct, frozen=True):
    """`kind` names what went wrong and does not depend on the data; `message` has the details."""

    kind: str
    message: str


class NothingToJudge(Exception):
    """Raised by an invariant if a history has nothing for it to judge."""


class Invariant(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    summary: str
    check: Callable[[History], Iterable[Violation]]
    aliases: tuple[str, ...] = ()  # former names, still accepted wherever an invariant is named


Subject = Literal["store", "agent"]


class Claim(Invariant, frozen=True, kw_only=True):
    """An invariant of a certificate, examined for every adapter of this subject."""

    subject: Subject
    aspect: str  # the corresponding property in "Resume Means Resume" (arXiv 2608.03836), or none
    # An adapter that declares no promises at all is still held to the basic claims.
    basic: bool = True
    unpromised: tuple[str, ...] = ()  # kinds of violations that a promise of this claim does not cover


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    invariant: str
    kind: str
    message: str

    @property
    def signature(self) -> str:
        """Stays the same when the bug is reproduced or its witness is shrunk."""
        return f"{self.invariant}/{self.kind}"


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The oracle's result for one run."""

    verdict: Verdict
    claims: dict[str, Verdict]  # per invariant
    findings: tuple[Finding, ...] = ()
    doubts: tuple[Doubt, ...] = ()


class Repro(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything needed to reproduce a failure."""

    version: str
    scenario: str
    mutant: str | None
    seed: int  # of the workload
    schedule: Schedule
    signature: str  # of the finding; empty if there was none
    store: str | None = None  # None: the scenario's default; older tokens have no store
    agents: int | None = None  # in the workload; None: the scenario's default
    deadline: float | None = None  # seconds until a life counts as hung; None: the target's own
    cold: bool = False  # each life was a fresh interpreter
    watched: bool = False  # the disk was watched although no fault strikes a disk operation
    adapter: str = ""  # of a target: a digest of the adapter's file, and the versions of its requirements
    versions: dict[str, str] = {}
