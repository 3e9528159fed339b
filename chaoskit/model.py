"""Every noun of the engine as plain typed data, in the order in which the data flow.

    Scenario -> Plan -> Schedule -> (supervisor) -> History -> (oracle) -> Finding, Verdict -> Repro

Nothing here does anything: no clock, no I/O, no randomness. Invariants import this module only.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Literal, TypeVar

import msgspec

Json = Any  # what json.loads returns; payloads belong to the scenario, not to the engine


class Verdict(enum.Enum):
    """HOLDS < UNKNOWN < VIOLATED, merged by maximum. NOT_MEASURED is for a claim nobody looked at."""

    NOT_MEASURED = "NOT_MEASURED"
    HOLDS = "HOLDS"
    UNKNOWN = "UNKNOWN"
    VIOLATED = "VIOLATED"

    @property
    def rank(self) -> int:
        return list(Verdict).index(self)

    @staticmethod
    def merge(verdicts: Iterable[Verdict]) -> Verdict:
        """The worst of them; of nothing at all, NOT_MEASURED (never HOLDS)."""
        return max(verdicts, key=lambda v: v.rank, default=Verdict.NOT_MEASURED)


# --- what is tested ----------------------------------------------------------------------------


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The program under test: `entry` is `module:function`, called with a `chaoskit.inside.Life`."""

    entry: str
    preload: tuple[str, ...] = ()  # modules that the zygote imports once, before it forks
    deadline: float = 10.0  # seconds that one life may take before it counts as hung
    requires: tuple[str, ...] = ()  # packages, in an environment of their own where need be


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One thing in the World that the target acts upon, and how helpful it is to a retrying caller."""

    name: str
    honours_keys: bool = False  # a second act with the same key is answered, not done again
    verifiable: bool = False  # answers "did this happen?"


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """A deliberately broken agent; `patch` is `module:function`, called in each life before the entry."""

    name: str
    summary: str
    breaks: str  # the invariant that must catch it
    patch: str
    stores: tuple[str, ...] = ()  # those in which it is broken; none named: any


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Target + seeded workload + the world it acts on + the invariants that must hold."""

    name: str
    summary: str
    target: Target
    workload: Callable[[int], Json]  # seed -> plain data, handed to the target
    workload_for: Callable[[int, int], Json] | None = None  # seed, agents -> the same with so many agents
    invariants: tuple[str, ...]  # registered names or module:name references
    services: tuple[Service, ...] = ()
    mutants: tuple[Mutant, ...] = ()
    stores: tuple[str, ...] = ()  # kinds of store that the target can be told to use, the default first


# --- what is done to it ------------------------------------------------------------------------

When = Literal["before", "after", "half"]


class PersistPoint(msgspec.Struct, frozen=True, order=True):
    """A place where durable state may change.

    A *named* point is the nth time that a life announces `name`. A *syscall* point has `op`, its
    number among the life's operations on the watched directory (from 0); its name says what the
    operation was, as `write sessions.db-wal`.
    """

    name: str
    nth: int  # from 1
    op: int | None = None

    def __str__(self) -> str:
        return f"{self.name}#{self.nth}"


class Fault:
    """One thing that is done to one life, as plain data: the base of what `chaoskit.faults` declares.

    Open on purpose: a fault of another package is a Struct with a tag of its own that derives from this.
    """

    __slots__ = ()
    point: PersistPoint

    @property
    def name(self) -> str:
        """What is done, without where: a column of the table of points."""
        raise NotImplementedError

    @property
    def tier(self) -> str:
        """The tier that a run with this fault alone belongs to."""
        raise NotImplementedError


class Schedule(msgspec.Struct, frozen=True):
    """The fault of each life in turn; the life after the last one runs undisturbed."""

    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        return ", then ".join(map(str, self.faults)) or "no fault"

    @property
    def tier(self) -> str:
        """What it puts to the test; a second crash is a test of recovery, whatever it is."""
        if len(self.faults) > 1:
            return "recovery"
        return self.faults[0].tier if self.faults else "undisturbed"


class Firing(msgspec.Struct, frozen=True):
    """A persist point that was passed, as the child side saw it."""

    point: PersistPoint
    when: When


# --- what was seen -----------------------------------------------------------------------------
# `at` is the position in the life's trace: how many named points it had announced, or, when its disk
# is watched, how many operations it had made.


class Born(msgspec.Struct, frozen=True, tag="born"):
    life: int


class Invoke(msgspec.Struct, frozen=True, tag="invoke"):
    """An operation asked of the target. It ends in Ok, Fail, or Info: may or may not have happened."""

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
    """The target said that something is durable: from here on, losing it is a violation."""

    life: int
    at: int
    name: str
    data: dict[str, Json]


class Effect(msgspec.Struct, frozen=True, tag="effect"):
    """A line of the Ledger. `applied` is false when the service recognised the key and did nothing."""

    life: int
    at: int
    service: str
    action: str
    args: dict[str, Json]
    key: str | None
    applied: bool


class Probe(msgspec.Struct, frozen=True, tag="probe"):
    """What was found on looking: `recovered` right after a recovery, `end` when all was done."""

    life: int
    at: int
    name: str
    data: dict[str, Json]


class Crashed(msgspec.Struct, frozen=True, tag="crashed"):
    """A planned fault fired, and the process is dead of it."""

    life: int
    at: int
    fault: Fault


class Struck(msgspec.Struct, frozen=True, tag="struck"):
    """A planned fault fired, and the process lived on."""

    life: int
    fault: Fault


How = Literal["completed", "crashed", "failed", "hung", "died"]


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """How a life ended. `died` is a death that the harness did not cause."""

    life: int
    how: How
    detail: str = ""


Event = Born | Invoke | Ok | Fail | Info | Ack | Effect | Probe | Crashed | Struck | Ended
Placed = Invoke | Ok | Fail | Ack | Effect | Probe  # those that have a position
E = TypeVar("E", bound=Event)
D = TypeVar("D")


class History(msgspec.Struct, frozen=True, dict=True):
    """All that the oracle gets to see. `baseline` are the events of the same workload without faults."""

    events: tuple[Event, ...]
    baseline: tuple[Event, ...] = ()

    def of(self, kind: type[E], name: str | None = None) -> Iterator[E]:
        return select(self._events.get(kind, ()), kind, name)

    def expected(self, kind: type[E], name: str | None = None) -> Iterator[E]:
        return select(self._baseline.get(kind, ()), kind, name)

    def once(self, derive: Callable[[History], D]) -> D:
        """What several invariants derive from one history is derived once, and changed by none of them."""
        if derive not in self._derived:
            self._derived[derive] = derive(self)
        found: D = self._derived[derive]
        return found

    @cached_property
    def _derived(self) -> dict[object, Any]:
        return {}

    # Every invariant looks for some kind of event, several times: sort them once.

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
    """The last of them, if there is one."""
    found = None
    for found in events:  # noqa: B007 - only the last one matters
        pass
    return found


def select(events: Iterable[Event], kind: type[E], name: str | None = None) -> Iterator[E]:
    for event in events:
        if isinstance(event, kind) and (name is None or getattr(event, "name", None) == name):
            yield event


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What the target is asked to do. The seed decides all that is random, also its ids and times."""

    seed: int
    content: Json
    undisturbed: tuple[Event, ...] = ()  # what is seen of it without faults, once that is known


DoubtKind = Literal[
    "missed-fault",  # planned, and did not fire
    "foreign-death",  # the process died, and chaoskit did not kill it
    "blind-spot",  # something was done to the disk that the interposer cannot see
    "strayed",  # before its crash the run did something else than without one
    "broken-invariant",  # an invariant raised an error
    "nothing-judged",  # no invariant found anything to look at
    "contradiction",  # a rebuilt state holds, and the real crash does not
    "unconfirmed",  # found on a rebuilt state, and not in a real crash
    "not-measured",  # nothing that happened put a claim to the test
    "nothing-ran",
]


class Doubt(msgspec.Struct, frozen=True, order=True):
    """Why something proves nothing."""

    kind: DoubtKind
    detail: str

    def __str__(self) -> str:
        return DOUBTS[self.kind].format(self.detail)


DOUBTS: dict[DoubtKind, str] = {
    "missed-fault": "the planned fault did not fire: {}",
    "foreign-death": "{}, but chaoskit did not kill it",
    "blind-spot": "not seen: {}",
    "strayed": "{}",
    "broken-invariant": "invariant {}",
    "nothing-judged": "no invariant found anything to judge{}",
    "contradiction": "the harness contradicts itself: the rebuilt state holds, the real one does not: {}",
    "unconfirmed": "found on a rebuilt state, not reproduced by a real crash: {}",
    "not-measured": "nothing that happened put {} to the test",
    "nothing-ran": "no schedule was run{}",
}


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule carried out."""

    schedule: Schedule
    history: History
    traces: tuple[tuple[Firing, ...], ...]  # what each life passed, where a fault could strike
    fired: int  # planned faults that really happened
    doubts: tuple[Doubt, ...] = ()  # reasons why this run proves nothing


# --- what was judged ---------------------------------------------------------------------------


class Violation(msgspec.Struct, frozen=True):
    """`kind` says in a word what went wrong and does not change with the data; `message` has the facts."""

    kind: str
    message: str


class NothingToJudge(Exception):
    """Raised by an invariant on a history that has nothing for it to look at."""


class Invariant(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    summary: str
    check: Callable[[History], Iterable[Violation]]
    aliases: tuple[str, ...] = ()  # former names, still accepted wherever an invariant is named


Subject = Literal["store", "agent"]


class Claim(Invariant, frozen=True, kw_only=True):
    """An invariant of a certificate: what is examined of every adapter of this subject."""

    subject: Subject
    aspect: str  # the property of "Resume Means Resume" (arXiv 2608.03836) that it stands for; or none
    # Whether persistence is for this: an adapter that declares no promises at all is held to it.
    basic: bool = True
    unpromised: tuple[str, ...] = ()  # kinds of violations that no promise about this claim covers


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    invariant: str
    kind: str
    message: str

    @property
    def signature(self) -> str:
        """What stays the same when a bug is reproduced or its witness is shrunk."""
        return f"{self.invariant}/{self.kind}"


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The oracle's answer for one run."""

    verdict: Verdict
    claims: dict[str, Verdict]  # per invariant
    findings: tuple[Finding, ...] = ()
    doubts: tuple[Doubt, ...] = ()


class Repro(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that is needed to meet the same failure again."""

    version: str
    scenario: str
    mutant: str | None
    seed: int  # of the workload
    schedule: Schedule
    signature: str  # of the finding that was met; empty when there was none
    store: str | None = None  # None: the scenario's default, also in tokens from before there were any
    agents: int | None = None  # in the workload; None: as many as the scenario has by itself
