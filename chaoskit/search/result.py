"""Result: what a campaign found, added up from the outcomes of its runs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from chaoskit import __version__, repro
from chaoskit.model import Finding, PersistPoint, Repro, Schedule, Verdict
from chaoskit.search.rig import Outcome
from chaoskit.settings import Settings


class Witness(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with the run that shows it."""

    finding: Finding
    tier: str
    schedule: Schedule
    token: str
    story: tuple[str, ...]  # the run in a few lines
    kept: str | None
    seed: int = 0  # of the workload
    operations: tuple[str, ...] = ()  # what was asked, in order, and what came of it
    rebuilt: bool = False  # not yet confirmed by a real crash
    hint: tuple[str, ...] = ()  # which missing sync would have prevented it
    times: int = 1  # runs of this campaign that showed the same


class Tally(msgspec.Struct, kw_only=True):
    """What was done at one point by one fault, and what came of it."""

    runs: int = 0
    fired: int = 0
    verdict: Verdict = Verdict.NOT_MEASURED  # the worst
    times: int = 0  # that the worst was met

    def add(self, verdict: Verdict) -> None:
        if verdict.rank > self.verdict.rank:
            self.verdict, self.times = verdict, 0
        self.times += verdict is self.verdict


class Covered(msgspec.Struct, kw_only=True):
    """What was done in one tier."""

    runs: int = 0
    confirmed: int = 0
    missed: int = 0

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.confirmed += outcome.confirmed or not outcome.rebuilt
        self.missed += outcome.missed


Claims = dict[str, dict[str, Verdict]]  # invariant -> tier -> verdict


class Result(msgspec.Struct, frozen=True, kw_only=True):
    settings: Settings
    verdict: Verdict
    runs: int
    points: int
    states: int  # crash states that were rebuilt from a recording
    confirmed: int  # ... and also run into for real, with the same verdict
    covered: int = 0  # places at which a fault struck
    fired: int  # runs in which every planned fault happened
    missed: int  # planned faults that did not
    seconds: float
    claims: Claims
    witnesses: tuple[Witness, ...]
    doubts: tuple[str, ...]  # reasons for UNKNOWN
    table: dict[str, dict[str, Tally]]  # point name -> fault -> tally
    tiers: dict[str, Covered] = {}


class Counter:
    """Adds up outcomes to a Result."""

    def __init__(
        self,
        settings: Settings,
        invariants: Iterable[str],
        *,
        whole: bool = True,
        tier: Callable[[Schedule], str] = lambda schedule: schedule.tier,
    ) -> None:
        """`whole`: every claim has to be put to the test; a replay shows one run only."""
        self._tier = tier
        self._tiers: dict[str, Covered] = {}
        self._settings = settings
        self._whole = whole
        self._points: set[PersistPoint] = set()
        self._covered: set[str] = set()
        self._claims: Claims = {name: {} for name in invariants}
        self._witnesses: dict[tuple[str, str], Witness] = {}
        self._doubts: dict[str, None] = {}
        self._table: dict[str, dict[str, Tally]] = {}
        self._runs = self._fired = self._missed = self._states = self._confirmed = 0

    @property
    def runs(self) -> int:
        return self._runs

    @property
    def covered(self) -> int:
        return len(self._covered)

    @property
    def findings(self) -> int:
        return len(self._witnesses)

    def add(self, outcome: Outcome) -> None:
        if outcome.schedule.faults:
            self._add_crashed(outcome)
        else:
            self._add_undisturbed(outcome)
        self._note(outcome)

    def add_alone(self, outcome: Outcome, claim: str) -> None:
        """A run without a crash that puts one claim to the test, and no other."""
        self._tiers.setdefault(self._tier(outcome.schedule), Covered()).add(outcome)
        self._claim(claim, self._tier(outcome.schedule), outcome.judgement.claims[claim])
        mine = tuple(f for f in outcome.judgement.findings if f.invariant == claim)
        judgement = msgspec.structs.replace(outcome.judgement, findings=mine)
        self._note(msgspec.structs.replace(outcome, judgement=judgement))

    def _add_undisturbed(self, outcome: Outcome) -> None:
        """A run without faults can violate, but that it holds says nothing about crashes."""
        self._points |= {firing.point for firing in outcome.last_trace}
        for name, verdict in outcome.judgement.claims.items():
            if verdict.rank > Verdict.HOLDS.rank:
                self._claim(name, "undisturbed", verdict)

    def _add_crashed(self, outcome: Outcome) -> None:
        self._runs += 1
        self._states += outcome.rebuilt
        self._confirmed += outcome.confirmed
        self._fired += not outcome.missed
        self._missed += outcome.missed
        tier = self._tier(outcome.schedule)
        self._tiers.setdefault(tier, Covered()).add(outcome)
        for name, verdict in outcome.judgement.claims.items():
            self._claim(name, tier, verdict)
        self._count(outcome)

    def _claim(self, name: str, tier: str, verdict: Verdict) -> None:
        tiers = self._claims[name]
        tiers[tier] = Verdict.merge([tiers.get(tier, Verdict.NOT_MEASURED), verdict])

    def _count(self, outcome: Outcome) -> None:
        fault = outcome.schedule.faults[-1]
        row = self._table.setdefault(fault.point.name, {})
        tally = row.setdefault(fault.name, Tally())
        tally.runs += 1
        if not outcome.missed:
            tally.fired += 1
            self._covered.add(outcome.place or str(fault))
        tally.add(outcome.judgement.verdict)

    def _note(self, outcome: Outcome) -> None:
        judgement, schedule = outcome.judgement, outcome.schedule
        self._doubts |= dict.fromkeys(judgement.doubts)
        for finding in {f.signature: f for f in reversed(judgement.findings)}.values():
            tier = self._tier(schedule)
            key = (finding.signature, tier)
            known = self._witnesses.get(key)
            # The first witness of the fewest crashes is the one that is easiest to read.
            if known is None or len(schedule.faults) < len(known.schedule.faults):
                witness = Witness(
                    finding=finding,
                    tier=tier,
                    schedule=schedule,
                    seed=outcome.seed,
                    story=outcome.story,
                    operations=outcome.operations,
                    kept=outcome.kept,
                    token=self.token(finding, outcome),
                    rebuilt=outcome.rebuilt,
                    times=known.times if known else 0,
                )
            else:
                witness = known
            self._witnesses[key] = msgspec.structs.replace(witness, times=witness.times + 1)

    def unconfirmed(self) -> list[Witness]:
        return [witness for witness in self._witnesses.values() if witness.rebuilt]

    def confirm(self, witness: Witness, confirmed: Witness | None) -> None:
        """Put what was met for real in the place of what a rebuilt state had shown.

        A finding that cannot be met again accuses nobody but the harness.
        """
        key = (witness.finding.signature, witness.tier)
        if confirmed:
            self._witnesses[key] = confirmed
            self._confirmed += 1
            self._tiers[witness.tier].confirmed += 1
            return
        del self._witnesses[key]
        self._doubts[
            f"found on a rebuilt state, not met in a real crash: {witness.schedule}: "
            f"{witness.finding.message}"
        ] = None
        name = witness.finding.invariant
        if not any(w.finding.invariant == name and t == witness.tier for (_, t), w in self._items()):
            self._claims[name][witness.tier] = Verdict.UNKNOWN

    def _items(self) -> list[tuple[tuple[str, str], Witness]]:
        return list(self._witnesses.items())

    def token(self, finding: Finding, outcome: Outcome) -> str:
        return repro.encode(
            Repro(
                version=__version__,
                scenario=self._settings.scenario,
                mutant=self._settings.mutant,
                seed=outcome.seed,
                agents=self._settings.agents,
                schedule=outcome.schedule,
                signature=finding.signature,
                store=self._settings.store,
            )
        )

    def result(self, seconds: float) -> Result:
        self._add_what_was_not_done()
        every = [verdict for tiers in self._claims.values() for verdict in tiers.values()]
        floor = Verdict.UNKNOWN if self._doubts else Verdict.HOLDS
        return Result(
            settings=self._settings,
            verdict=Verdict.merge([floor, *every]),
            runs=self._runs,
            points=len(self._points),
            states=self._states,
            confirmed=self._confirmed,
            covered=len(self._covered),
            fired=self._fired,
            missed=self._missed,
            seconds=seconds,
            claims=self._claims,
            witnesses=tuple(sorted(self._witnesses.values(), key=self._importance)),
            doubts=tuple(self._doubts),
            table=self._table,
            tiers=self._tiers,
        )

    def _add_what_was_not_done(self) -> None:
        if not self._whole:
            return
        if not self._runs:
            self._doubts["no schedule was run"] = None
        for name, tiers in self._claims.items():
            if Verdict.merge(tiers.values()) is Verdict.NOT_MEASURED:
                self._doubts[f"nothing that happened put {name} to the test"] = None

    def _importance(self, witness: Witness) -> int:
        """In the order in which the scenario names its invariants."""
        return list(self._claims).index(witness.finding.invariant)
