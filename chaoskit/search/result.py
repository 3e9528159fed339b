"""Results: the sum of outcomes. Pure, but for the origin of a target that goes into its tokens.

A Partial holds the findings and counts of a part of a campaign: a worker, a shard, one of several
campaigns. Partials form a commutative monoid: `Partial()` is its zero, `merge` adds two of them, and
neither order nor grouping changes the sum. A choice among equals (the witness of a finding, the first of
several doubts) is therefore made by `order`, the place of the run in the plan, never by which run finished
first.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from chaoskit import __version__, repro
from chaoskit.disk.hint import Hint
from chaoskit.model import Doubt, DoubtKind, Event, Finding, PersistPoint, Repro, Schedule, Verdict
from chaoskit.search.facts import ENOUGH
from chaoskit.search.origin import Origin, origin_of
from chaoskit.search.outcome import Outcome
from chaoskit.settings import Settings, strikes_disk

K = TypeVar("K")
V = TypeVar("V")
Order = tuple[int, ...]  # campaign, plan, round, item, outcome
TierOf = Callable[[Schedule], str]
Claims = dict[str, dict[str, Verdict]]  # invariant -> tier -> verdict


class Witness(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with the run that shows it."""

    finding: Finding
    tier: str
    schedule: Schedule
    kept: str | None
    order: Order
    token: str = ""  # reproduces the run; the same run gives the same token
    seed: int = 0  # of the workload
    events: tuple[Event, ...] = ()  # of the run
    rebuilt: bool = False  # found on a rebuilt state...
    confirmed: bool = False  # ... and since reproduced by a real crash
    hint: Hint | None = None  # which missing sync would have prevented it
    times: int = 1  # runs with the same finding

    @property
    def key(self) -> str:
        return f"{self.finding.signature} [{self.tier}]"

    @property
    def rank(self) -> tuple[bool, int, Order, str]:
        """The witness that is easiest to read: fewest crashes first, then the order of the plan. A real
        crash comes before a rebuilt state, which may turn out not to be reproducible."""
        return self.rebuilt and not self.confirmed, len(self.schedule.faults), self.order, str(self.schedule)


class Tally(msgspec.Struct, kw_only=True):
    """The runs with one fault at one point, and their worst verdict."""

    runs: int = 0
    fired: int = 0
    verdict: Verdict = Verdict.NOT_MEASURED
    times: int = 0  # runs with this verdict

    def plus(self, other: Tally) -> Tally:
        worst = Verdict.merge([self.verdict, other.verdict])
        times = sum(each.times for each in (self, other) if each.verdict is worst)
        return Tally(runs=self.runs + other.runs, fired=self.fired + other.fired, verdict=worst, times=times)


class Coverage(msgspec.Struct, kw_only=True):
    """How much of one tier was tested."""

    states: int = 0  # crash states that were recovered and judged
    confirmed: int = 0  # of these, real crashes
    missed: int = 0  # planned faults that did not fire
    complete: bool = True  # exhaustive: neither sampled nor cut short
    cut_short: bool = False  # time ran out
    possible: int | None = None  # crash states that there are, where that is known
    extra: int = 0  # further states, of the long workload
    why: str = ""  # why there is no state

    def plus(self, other: Coverage) -> Coverage:
        return Coverage(
            states=self.states + other.states,
            confirmed=self.confirmed + other.confirmed,
            missed=self.missed + other.missed,
            complete=self.complete and other.complete,
            cut_short=self.cut_short or other.cut_short,
            possible=_sum(self.possible, other.possible),
            extra=self.extra + other.extra,
            why=self.why or other.why,
        )


class Partial(msgspec.Struct, kw_only=True):
    runs: int = 0
    fired: int = 0  # runs in which every planned fault fired
    missed: int = 0  # planned faults that did not fire
    states: int = 0  # crash states rebuilt from a recording
    sampled: int = 0  # ... that held, and were also tested with a real crash
    points: set[PersistPoint] = set()
    places: set[str] = set()  # where a fault fired
    times: dict[str, int] = {}  # in a fuzz: how often, at each of these places
    reached: set[str] = set()  # facts that the scenario requires of a campaign
    claims: Claims = {}
    witnesses: dict[str, Witness] = {}  # by key
    doubts: dict[str, tuple[Order, Doubt]] = {}  # by text, each with its first occurrence
    table: dict[str, dict[str, Tally]] = {}  # point name -> fault -> tally
    tiers: dict[str, Coverage] = {}

    def merge(self, other: Partial) -> Partial:
        """The sum of both; neither is modified."""
        claims: Claims = {name: dict(tiers) for name, tiers in self.claims.items()}
        for name, tiers in other.claims.items():
            mine = claims.setdefault(name, {})
            for tier, verdict in tiers.items():
                mine[tier] = Verdict.merge([mine.get(tier, Verdict.NOT_MEASURED), verdict])
        table = {name: dict(row) for name, row in self.table.items()}
        for name, row in other.table.items():
            mine_row = table.setdefault(name, {})
            for fault, tally in row.items():
                mine_row[fault] = mine_row.get(fault, Tally()).plus(tally)
        return Partial(
            runs=self.runs + other.runs,
            fired=self.fired + other.fired,
            missed=self.missed + other.missed,
            states=self.states + other.states,
            sampled=self.sampled + other.sampled,
            points=self.points | other.points,
            places=self.places | other.places,
            times=_union(self.times, other.times, operator.add),
            reached=self.reached | other.reached,
            claims=claims,
            witnesses=_union(self.witnesses, other.witnesses, _clearer),
            doubts=_union(self.doubts, other.doubts, min),
            table=table,
            tiers=_union(self.tiers, other.tiers, Coverage.plus),
        )

    @property
    def violated(self) -> bool:
        return bool(self.witnesses)

    def unconfirmed(self) -> list[Witness]:
        return [w for w in self.witnesses.values() if w.rebuilt and not w.confirmed]

    @property
    def confirmed(self) -> int:
        """Rebuilt states whose real crash had the same verdict: sampled states that held, and witnesses."""
        return self.sampled + sum(witness.confirmed for witness in self.witnesses.values())

    def coverage(self, tier: str) -> Coverage:
        """The coverage of a tier; its confirmed witnesses count as real crashes."""
        covered = self.tiers.get(tier, Coverage(complete=False))
        confirmed = sum(w.confirmed and w.tier == tier for w in self.witnesses.values())
        return msgspec.structs.replace(covered, confirmed=covered.confirmed + confirmed)

    def confirm(self, witness: Witness, confirmed: Witness | None, doubt: DoubtKind = "unconfirmed") -> None:
        """Replaces the witness on a rebuilt state by the one from a real crash.

        A finding that was not reproduced becomes a doubt, by default about the harness.
        """
        if confirmed:
            self.witnesses[witness.key] = msgspec.structs.replace(confirmed, confirmed=True)
            return
        del self.witnesses[witness.key]
        self.note(Doubt(doubt, f"{witness.schedule}: {witness.finding.message}"), witness.order)
        name = witness.finding.invariant
        if not any(w.finding.invariant == name and w.tier == witness.tier for w in self.witnesses.values()):
            self.claims[name][witness.tier] = Verdict.UNKNOWN

    def note(self, doubt: Doubt, order: Order) -> None:
        known = self.doubts.get(str(doubt), (order, doubt))
        self.doubts[str(doubt)] = min(known, (order, doubt))


def _union(mine: dict[K, V], others: dict[K, V], both: Callable[[V, V], V]) -> dict[K, V]:
    shared = {key: both(mine[key], others[key]) for key in mine.keys() & others.keys()}
    return {**mine, **others, **shared}


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


def _clearer(one: Witness, other: Witness) -> Witness:
    chosen = min(one, other, key=lambda witness: witness.rank)
    return msgspec.structs.replace(chosen, times=one.times + other.times)


# --- one outcome ---------------------------------------------------------------------------------


class Accumulator:
    """Adds the outcomes of one scenario to a Partial, in place."""

    def __init__(self, invariants: Iterable[str], tier_of: TierOf, *, extra: bool = False) -> None:
        self._tier_of = tier_of
        self._extra = extra
        self.partial = Partial(claims={name: {} for name in invariants})

    def add(self, outcome: Outcome, order: Order) -> None:
        if outcome.schedule.faults:
            self._add_crashed(outcome)
        else:
            self._add_undisturbed(outcome)
        self.partial.reached |= set(outcome.reached)
        self._note(outcome, order, self._tier_of(outcome.schedule))

    def add_alone(self, outcome: Outcome, order: Order, tier: str, claim: str) -> None:
        """A run without a crash that tests only this claim."""
        self._cover(tier, outcome)
        self._claim(claim, tier, outcome.judgement.claims[claim])
        mine = tuple(f for f in outcome.judgement.findings if f.invariant == claim)
        judgement = msgspec.structs.replace(outcome.judgement, findings=mine)
        self._note(msgspec.structs.replace(outcome, judgement=judgement), order, tier)

    def leave_out(self, tiers: Iterable[str], *, cut_short: bool) -> None:
        """Marks these tiers as incomplete."""
        for tier in tiers:
            covered = self.partial.tiers.setdefault(tier, Coverage())
            covered.complete = False
            covered.cut_short |= cut_short

    def _add_undisturbed(self, outcome: Outcome) -> None:
        """A run without faults can violate a claim, but if it holds, that says nothing about crashes."""
        self.partial.points |= {firing.point for firing in outcome.last_trace}
        for name, verdict in outcome.judgement.claims.items():
            if verdict.rank > Verdict.HOLDS.rank:
                self._claim(name, "undisturbed", verdict)

    def _add_crashed(self, outcome: Outcome) -> None:
        found = self.partial
        found.runs += 1
        found.states += outcome.rebuilt
        found.sampled += outcome.confirmed
        found.fired += not outcome.missed
        found.missed += outcome.missed
        tier = self._tier_of(outcome.schedule)
        self._cover(tier, outcome)
        for name, verdict in outcome.judgement.claims.items():
            self._claim(name, tier, verdict)
        self._count(outcome)

    def _cover(self, tier: str, outcome: Outcome) -> None:
        covered = self.partial.tiers.setdefault(tier, Coverage())
        covered.states += not self._extra
        covered.extra += self._extra
        covered.confirmed += outcome.confirmed or not outcome.rebuilt
        covered.missed += outcome.missed

    def _claim(self, name: str, tier: str, verdict: Verdict) -> None:
        tiers = self.partial.claims[name]
        tiers[tier] = Verdict.merge([tiers.get(tier, Verdict.NOT_MEASURED), verdict])

    def _count(self, outcome: Outcome) -> None:
        fault, verdict = outcome.schedule.faults[-1], outcome.judgement.verdict
        row = self.partial.table.setdefault(fault.point.name, {})
        once = Tally(runs=1, fired=int(not outcome.missed), verdict=verdict, times=1)
        row[fault.name] = row.get(fault.name, Tally()).plus(once)
        if not outcome.missed:
            self.partial.places.add(str(outcome.place or fault))
            if outcome.place:
                times = self.partial.times
                times[str(outcome.place)] = times.get(str(outcome.place), 0) + 1

    def _note(self, outcome: Outcome, order: Order, tier: str) -> None:
        for doubt in outcome.judgement.doubts:
            self.partial.note(doubt, order)
        for finding in {f.signature: f for f in reversed(outcome.judgement.findings)}.values():
            witness = Witness(
                finding=finding,
                tier=tier,
                schedule=outcome.schedule,
                seed=outcome.seed,
                events=outcome.events,
                kept=outcome.kept,
                order=order,
                rebuilt=outcome.rebuilt,
            )
            same = self.partial.witnesses.get(witness.key)
            self.partial.witnesses[witness.key] = _clearer(same, witness) if same else witness


def with_tokens(found: Partial, settings: Settings) -> Partial:
    """Fills in each witness' token, which depends on the settings of its scenario."""
    if not found.witnesses:
        return found
    origin = origin_of(settings.scenario)
    named = {key: _with_token(witness, settings, origin) for key, witness in found.witnesses.items()}
    return msgspec.structs.replace(found, witnesses=named)


def _with_token(witness: Witness, settings: Settings, origin: Origin) -> Witness:
    if witness.token:
        return witness
    wanted = Repro(
        version=__version__,
        scenario=settings.scenario,
        mutant=settings.mutant,
        seed=witness.seed,
        agents=settings.agents,
        schedule=witness.schedule,
        signature=witness.finding.signature,
        store=settings.store,
        deadline=settings.deadline,
        cold=settings.cold,
        watched=settings.watches_disk and not strikes_disk(witness.schedule),
        adapter=origin.adapter,
        versions=origin.versions,
    )
    return msgspec.structs.replace(witness, token=repro.encode(wanted))


# --- the result ----------------------------------------------------------------------------------


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A finished campaign, to be shown, saved and asserted on."""

    settings: Settings
    verdict: Verdict
    seconds: float
    found: Partial
    witnesses: tuple[Witness, ...]  # in the order in which the scenario names its invariants
    doubts: tuple[Doubt, ...]  # reasons for UNKNOWN
    growth: tuple[tuple[int, int], ...] = ()  # of a fuzz: runs, and places crashed by then
    unreached: tuple[str, ...] = ()  # facts that the scenario requires, of a fuzz

    @property
    def claims(self) -> Claims:
        return self.found.claims

    @property
    def runs(self) -> int:
        return self.found.runs


def result_of(
    found: Partial,
    settings: Settings,
    claims: Sequence[str],
    seconds: float,
    *,
    must_reach: Iterable[str] = (),
    growth: Iterable[tuple[int, int]] = (),
) -> Result:
    """The result of a campaign; a claim that no run tested makes it UNKNOWN, and so does a fact that a long
    fuzz did not reach."""
    missing = [Doubt("not-measured", what) for what in _untested(found, settings, claims)]
    if not found.runs:
        missing.insert(0, Doubt("nothing-ran", ""))
    unreached = tuple(sorted(set(must_reach) - found.reached)) if settings.fuzzes else ()
    if unreached and found.runs >= ENOUGH:
        missing.append(Doubt("not-reached", f"{found.runs} runs: {', '.join(unreached)}"))
    result = _result(found, settings, claims, seconds, missing)
    return msgspec.structs.replace(result, growth=tuple(growth), unreached=unreached)


def _untested(found: Partial, settings: Settings, claims: Sequence[str]) -> list[str]:
    """Claims that no run tested; of a complete sweep, also those that no run of some tier tested."""
    complete = settings.plan == "sweep" and not settings.accept_incomplete
    missing = []
    for name in claims:
        verdicts = found.claims.get(name, {})
        if Verdict.merge(verdicts.values()) is Verdict.NOT_MEASURED:
            missing.append(name)
        elif complete:
            tiers = [
                tier for tier, part in found.tiers.items() if part.states and not _is_violated(found, tier)
            ]
            unmeasured = [t for t in tiers if verdicts.get(t, Verdict.NOT_MEASURED) is Verdict.NOT_MEASURED]
            missing += [f"{name} in tier {tier}" for tier in unmeasured]
    return missing


def _is_violated(found: Partial, tier: str) -> bool:
    """Then there may have been nothing left for the other claims to judge."""
    return any(tiers.get(tier) is Verdict.VIOLATED for tiers in found.claims.values())


def result_of_replay(found: Partial, settings: Settings, claims: Sequence[str], seconds: float) -> Result:
    """The result of one run, which need not test every claim."""
    return _result(found, settings, claims, seconds, ())


def _result(
    found: Partial, settings: Settings, claims: Sequence[str], seconds: float, missing: Iterable[Doubt]
) -> Result:
    doubts = (*(doubt for _, doubt in sorted(found.doubts.values())), *missing)
    every = [verdict for tiers in found.claims.values() for verdict in tiers.values()]
    floor = Verdict.UNKNOWN if doubts else Verdict.HOLDS
    importance = {name: number for number, name in enumerate(claims)}
    return Result(
        settings=settings,
        verdict=Verdict.merge([floor, *every]),
        seconds=seconds,
        found=found,
        witnesses=tuple(
            sorted(found.witnesses.values(), key=lambda w: (importance[w.finding.invariant], w.order))
        ),
        doubts=doubts,
    )
