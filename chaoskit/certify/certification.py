"""Certification: tests one target in every requested tier, and makes its Certificate.

A certificate is a set of campaigns, one for each variant of the workload, with the plans of the tiers. All
of them share one time budget and add up to one Partial. Agents are tested twice: with a model that repeats
its calls exactly, and with one that words them differently after every restart.
"""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from chaoskit import __version__, registry
from chaoskit.adapter import Adapter, BadAdapter, Promise
from chaoskit.certify import suite
from chaoskit.certify.certificate import (
    UNDISTURBED,
    Certificate,
    CertifiedFinding,
    covers,
    promises_of,
    properties_of,
)
from chaoskit.model import Ack, Event, Fail, Invoke, Probe, Verdict, last, select
from chaoskit.recording import Recording, labels
from chaoskit.run import environment
from chaoskit.search.baseline import ViolatedUndisturbed
from chaoskit.search.budget import Budget
from chaoskit.search.campaign import Ready, Search, prepared, prepared_variant, share_of, with_workload
from chaoskit.search.outcome import Outcome
from chaoskit.search.plan import Plan, Watch
from chaoskit.search.progress import Progress, SoFar, silent
from chaoskit.search.result import Coverage, Witness
from chaoskit.search.rig import CannotTest, NotSeen
from chaoskit.search.tiers import Scope, Tier, Watched, chosen, default_tiers, kill_schedules, tier_of, tiers
from chaoskit.settings import Settings
from chaoskit.story import tell


def settings_for(target: str, **options: Any) -> Settings:
    """`target`: a known name, module:Class or file.py:Class; `@requirement` selects other versions."""
    return Settings(scenario=f"{registry.TARGET}{target}", points="syscalls", **options)


def certify(
    settings: Settings,
    wanted: Sequence[str] = (),
    progress: Progress = silent,
    say: environment.Say = lambda _text: None,
) -> Certificate:
    """Certifies in these tiers, by default in the default tiers.

    Raises CannotTest, NoEnvironment or BadAdapter, each with a message that says what to do.
    """
    started = time.monotonic()
    target = settings.scenario.removeprefix(registry.TARGET)
    adapter = registry.adapter(target)
    progress(SoFar(phase="installing"))
    python = environment.interpreter(adapter.requires, say)
    installed = time.monotonic() - started
    names = chosen(wanted or default_tiers())
    examination = _Examination(settings, adapter, [tiers()[name] for name in names], progress)
    examination.run()
    progress(SoFar(phase="running the vendor's own suite", seconds=time.monotonic() - started))
    return examination.certificate(
        suite.run(adapter, say),
        {**environment.versions(python, adapter.requires), "python": platform.python_version()},
        time.monotonic() - started,
        installed,
    )


class _Examination:
    def __init__(
        self, settings: Settings, adapter: Adapter, wanted: Sequence[Tier], progress: Progress
    ) -> None:
        self._settings = settings
        self._adapter = adapter
        self._wanted = wanted
        self._scope = Scope(
            seed=settings.seed, states=settings.power_states, hurried=settings.seconds is not None
        )
        self._plans = {
            tier.name: [make(self._scope) for make in (tier.plan, tier.also) if make] for tier in wanted
        }
        self._variants = ("", "#fickle") if adapter.subject == "agent" else ("",)
        self._watches = [(tier, each) for tier in wanted for each in tier.watches if self._applies(each)]
        plans = [*self._crashing_plans() * len(self._variants), *self._long_plans()]
        shares = sum(map(share_of, plans)) + len(self._watches)
        self._search = Search(Budget(settings.seconds, shares), progress)
        self._recording: Recording | None = None
        self._operations = 0
        self._possible: Counter[str] = Counter()  # kill states per tier, where time may run out

    def _applies(self, watched: Watched) -> bool:
        return watched.subject == self._adapter.subject and set(watched.needs) <= set(self._adapter.methods)

    def _crashing_plans(self) -> list[Plan]:
        return _distinct(plan for plans in self._plans.values() for plan in plans)

    def _long_plans(self) -> list[Plan]:
        scope = msgspec.structs.replace(self._scope, long=True)
        has_long = self._adapter.subject == "store"
        return _distinct(tier.plan(scope) for tier in self._wanted if tier.plan and tier.on_long and has_long)

    def _tiers_of(self, plan: Plan) -> list[str]:
        return [name for name, plans in self._plans.items() if plan in plans]

    # --- the work

    def run(self) -> None:
        for variant in self._variants:
            try:
                self._crash(variant)
            except ViolatedUndisturbed as violated:
                raise CannotTest(f"without any crash: {violated}") from None

    def _resolved(self, variant: str, **changes: Any) -> registry.Resolved:
        settings = msgspec.structs.replace(
            self._settings, scenario=f"{self._settings.scenario}{variant}", **changes
        )
        return registry.resolve(settings)

    def _crash(self, variant: str) -> None:
        """All tiers with crashes: one recording, then plan by plan."""
        with prepared(self._resolved(variant), self._search, record=True, needs_points=False) as ready:
            recording, baseline = ready.recording, ready.baseline
            assert recording is not None
            assert baseline is not None
            _check_that_it_is_as_read(self._adapter, recording.events)
            _check(recording, baseline)
            if self._adapter.subject == "store":
                _check_that_it_is_there(ready, recording)
            long = self._prepared_long(ready)
            assign = tier_of(recording.events)
            if self._recording is None:
                self._recording = recording
                self._operations = len({firing.point for firing in ready.firings})
                self._watch_all(ready)
            if self._settings.seconds is not None:
                self._possible.update(map(assign, kill_schedules(recording)))
            self._search.go_through(ready, self._crashing_plans(), assign, self._tiers_of)
            if long and long.recording:
                assign = tier_of(long.recording.events)
                self._search.go_through(long, self._long_plans(), assign, extra=True)

    def _prepared_long(self, ready: Ready) -> Ready | None:
        """The long workload; it must work without faults, before anything is crashed."""
        if not self._long_plans():
            return None
        long = prepared_variant(ready, self._resolved("#long", jobs=1), self._search)
        assert long.recording is not None
        assert long.baseline is not None
        _check(long.recording, long.baseline)
        return long

    def _watch_all(self, ready: Ready) -> None:
        """Before the crashes: a few runs, which must not be what a time limit leaves out."""
        for tier, watched in self._watches:
            plan = Watch(tier=tier.name, claim=watched.claim, runs=watched.runs)
            resolved = self._resolved(f"#{watched.variant}", jobs=1)
            self._search.go_through(with_workload(ready, resolved), [plan])

    # --- the certificate

    def certificate(
        self, vendors: dict[str, Any] | None, versions: dict[str, str], seconds: float, installed: float
    ) -> Certificate:
        adapter, recording, found = self._adapter, self._recording, self._search.found
        assert recording is not None
        promises = promises_of(adapter)
        claims = self._claims()
        end = last(select(recording.events, Probe, "end"))
        order = {name: number for number, name in enumerate(registry.claims())}
        witnesses = sorted(
            (w for w in found.witnesses.values() if w.tier in self._shown_tiers),
            key=lambda w: (order.get(w.finding.invariant, len(order)), w.order),
        )
        made = Certificate(
            target=self._settings.scenario.removeprefix(registry.TARGET),
            summary=adapter.summary,
            kind=adapter.subject,
            style=adapter.style,
            unit=adapter.unit,
            verdict=Verdict.UNKNOWN,
            seed=self._settings.seed,
            date=datetime.now(UTC).date().isoformat(),
            chaoskit=__version__,
            versions=versions,
            settings=end.data.get("settings", {}) if end else {},
            files=tuple(sorted({label.split(" ", 1)[1] for label in labels(recording.trace)} - {"."})),
            saves=sum(1 for _ in select(recording.events, Invoke)) or 1,
            operations=self._operations,
            claims=claims,
            coverage={tier.name: self._coverage(tier.name) for tier in self._wanted},
            promises=promises,
            declares_promises=adapter.promises is not None,
            accepts_incomplete=self._settings.accept_incomplete,
            properties=properties_of(claims),
            findings=tuple(certified(witness, promises) for witness in witnesses),
            unknown=tuple(str(doubt) for _, doubt in sorted(found.doubts.values())),
            suite=vendors,
            seconds=seconds,
            environment_seconds=installed,
            starting_seconds=self._search.starting,
        )
        return msgspec.structs.replace(made, verdict=made.decide())

    @property
    def _shown_tiers(self) -> set[str]:
        """The requested tiers, and runs without faults; tiers that share a plan with these run, too."""
        return {UNDISTURBED, *(tier.name for tier in self._wanted)}

    def _claims(self) -> dict[str, dict[str, Verdict]]:
        return {
            name: {tier: verdict for tier, verdict in verdicts.items() if tier in self._shown_tiers}
            for name, verdicts in self._search.found.claims.items()
        }

    def _coverage(self, tier: str) -> Coverage:
        """A tier without any run is never complete."""
        covered = self._search.found.coverage(tier)
        return msgspec.structs.replace(
            covered,
            complete=covered.complete and bool(self._plans[tier]),
            possible=self._possible.get(tier),
            why="" if covered.states else self._why_empty(tier, covered),
        )

    def _why_empty(self, tier: str, covered: Coverage) -> str:
        if covered.cut_short:
            return "no time"
        if self._plans[tier] or any(watching.name == tier for watching, _ in self._watches):
            return "nothing to crash"
        return f"not for {self._adapter.subject}s, or a method is missing"


def certified(witness: Witness, promises: dict[str, Promise]) -> CertifiedFinding:
    claim, kind = witness.finding.invariant, witness.finding.kind
    known = registry.claims().get(claim)
    promise = promises.get(claim)
    if (known and kind in known.unpromised) or not covers(promise, witness.tier):
        promise = None
    faults = witness.schedule.faults
    return CertifiedFinding(
        claim=claim,
        kind=kind,
        tier=witness.tier,
        fault=", then ".join(fault.name for fault in faults) or "none",
        point=", then ".join(str(fault.point) for fault in faults) or "no point",
        message=witness.finding.message,
        promise=promise.words if promise else None,
        where=promise.where if promise else None,
        repro=witness.token,
        times=witness.times,
        story=tell(witness.events),
        hint=tuple(str(witness.hint).splitlines()) if witness.hint else (),
    )


def _check_that_it_is_as_read(adapter: Adapter, events: Sequence[Event]) -> None:
    """The source was read, not run: what it inherits from another file would be missed silently."""
    seen = next(select(events, Probe, "adapter")).data
    missed = sorted(set(seen["methods"]) - set(adapter.methods))
    if missed:
        raise BadAdapter(
            f"{adapter.reference} has {', '.join(missed)}, but not in its own file: add"
            f" `{missed[0]} = Base.{missed[0]}` to the class, so that it can be read without running the file"
        )
    if set(seen["promises"] or ()) != set(adapter.promises or ()):
        raise BadAdapter(
            f"promises of {adapter.reference}: its file declares {sorted(adapter.promises or ())}, but Python"
            f" sees {sorted(seen['promises'] or ())}: write one plain dictionary in the class body"
        )


def _distinct(plans: Iterable[Plan]) -> list[Plan]:
    """Tiers may share a plan, which is then executed once."""
    found: list[Plan] = []
    for plan in plans:
        if plan not in found:
            found.append(plan)
    return found


def _check(recording: Recording, baseline: Outcome) -> None:
    """Raises CannotTest or NotSeen if the target gives nothing to crash."""
    _check_that_it_works(recording.events, baseline)
    _check_that_it_was_seen(recording)


def _check_that_it_works(events: Sequence[Event], baseline: Outcome) -> None:
    """Save, close, load in a new process, without any crash: what fails there says nothing about crashes."""
    refused = next((p for p in select(events, Probe, "recovered") if "trouble" in p.data), None)
    if refused:
        raise CannotTest(f"open failed without any fault: {refused.data['trouble']}")
    failed = next(select(events, Fail), None)
    if failed:
        what = next(e.args for e in select(events, Invoke) if e.op == failed.op)
        raise CannotTest(f"{what['do']} {what.get('n', '')} failed without any fault: {failed.error}")
    if baseline.judgement.findings:
        finding = baseline.judgement.findings[0]
        when = "without any crash, after a clean restart in a new process, with its directory moved"
        raise CannotTest(f"{finding.signature} {when}: {finding.message}")


def _check_that_it_was_seen(recording: Recording) -> None:
    """A store that acknowledges changes while its directory stays as it is persists nothing there."""
    acknowledged = sum(1 for _ in select(recording.events, Ack))
    if acknowledged and not recording.trace.ops:
        end = last(select(recording.events, Probe, "end"))
        elsewhere = end.data.get("elsewhere", []) if end else []
        hint = (
            f"it opened {', '.join(elsewhere)}"
            if elsewhere
            else "it may use a server, or write in a way that cannot be traced"
        )
        raise NotSeen(
            f"{acknowledged} changes were acknowledged, but no operation on the directory was seen: {hint}."
            " Write everything below the directory that open() or start() receives"
        )


def _check_that_it_is_there(ready: Ready, recording: Recording) -> None:
    """A store that finds its saves in an empty directory keeps them elsewhere: no crash state has them."""
    looks = ready.rig.start_afresh(recording, ready.workload).history.of(Probe, "recovered")
    probe = next((look for look in looks if look.life == 1), None)
    for session, look in (probe.data.get("sessions", {}) if probe else {}).items():
        found = [look.get("load"), *(look.get("items") or ()), *(look.get("history") or ())]
        saves = [each for each in found if isinstance(each, list)]
        if saves:
            raise NotSeen(
                f"a process that starts in an empty directory finds save {saves[0][0]} of session {session}:"
                f" it is kept elsewhere ({'; '.join(recording.unseen) or 'by a server?'})."
                " Keep everything below the directory that open() gets"
            )
