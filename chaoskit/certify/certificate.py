"""Certificate: the verdict on a target for each claim in each tier, with its coverage.

Plain data and its JSON (schema 1, docs/certificate.md; fields may be added, never changed or removed).

One rule decides cell, headline, exit code, badge and JUnit: **a finding counts if it breaks a promise**.
Any other finding is a hazard: shown, and counted only with `--fail-on hazard`. An adapter that declares no
promises at all is held to the basic claims.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from chaoskit import registry
from chaoskit.adapter import Adapter, Promise
from chaoskit.model import Verdict
from chaoskit.search.result import Coverage
from chaoskit.search.tiers import is_of_power, tiers as known_tiers
from chaoskit.wrong_use import WrongUse

SCHEMA = 1
ENOUGH = 20  # crashes of a tier that ran out of time, below which it shows nothing
UNDISTURBED = "undisturbed"  # stands in for the tier of a violation without any fault, which also counts
Sign = Literal["VIOLATED", "unknown", "hazard", "holds", "-"]
FailOn = Literal["promise", "hazard"]
BY_DEFAULT = Promise(
    "acknowledged data survives the end of the process",
    "the adapter declares no promises, so it is held to the basic claims",
)


class CertifiedFinding(msgspec.Struct, frozen=True, kw_only=True):
    claim: str
    kind: str
    tier: str
    fault: str
    point: str
    message: str
    promise: str | None  # the library's promise; None: there is none, so this is a hazard
    where: str | None
    repro: str
    times: int = 1
    story: tuple[str, ...] = ()
    hint: tuple[str, ...] = ()


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    schema: int = SCHEMA
    target: str
    summary: str
    kind: str  # store or agent
    style: str
    unit: str
    verdict: Verdict
    seed: int
    date: str
    chaoskit: str
    versions: dict[str, str]  # of the required packages and of Python
    settings: dict[str, Any]  # in force, as read back by the adapter
    files: tuple[str, ...]
    saves: int
    operations: int  # on the disk, in the run without faults
    claims: dict[str, dict[str, Verdict]]
    coverage: dict[str, Coverage]
    promises: dict[str, Promise]
    declares_promises: bool = True  # else `promises` are the basic claims
    accepts_incomplete: bool = False  # tiers that ran out of time may hold
    properties: dict[str, tuple[str, ...]]
    findings: tuple[CertifiedFinding, ...] = ()
    unknown: tuple[str, ...] = ()
    suite: dict[str, Any] | None = None  # result of the vendor's own conformance suite on the same target
    seconds: float = 0.0  # in total
    environment_seconds: float = 0.0  # of these, until the required packages were installed
    starting_seconds: float = 0.0  # ... and until the target was imported

    @property
    def tiers(self) -> list[str]:
        """The requested tiers, in the order of the columns; tiers unknown to this release come last."""
        known = [tier for tier in known_tiers() if tier in self.coverage]
        return [*known, *(tier for tier in self.coverage if tier not in known)]

    @property
    def columns(self) -> list[str]:
        """The tiers, and `undisturbed` if a run without faults already violated something."""
        without_fault = any(UNDISTURBED in tiers for tiers in self.claims.values())
        return [*self.tiers, *([UNDISTURBED] if without_fault else [])]

    @property
    def broken(self) -> list[CertifiedFinding]:
        """Findings that break a promise."""
        return [finding for finding in self.findings if finding.promise is not None]

    @property
    def hazards(self) -> list[CertifiedFinding]:
        return [finding for finding in self.findings if finding.promise is None]

    def cell(self, claim: str, tier: str) -> Verdict:
        return self.claims.get(claim, {}).get(tier, Verdict.NOT_MEASURED)

    def sign(self, claim: str, tier: str) -> Sign:
        """The text of the cell: a violation of something that is not promised is a hazard."""
        verdict = self.cell(claim, tier)
        if verdict is Verdict.VIOLATED:
            return "VIOLATED" if self._breaks_a_promise(claim, tier) else "hazard"
        if verdict is Verdict.HOLDS and tier in self.incomplete():
            return "unknown"  # what was not tried might not hold
        signs: dict[Verdict, Sign] = {Verdict.HOLDS: "holds", Verdict.UNKNOWN: "unknown"}
        return signs.get(verdict, "-")

    def _breaks_a_promise(self, claim: str, tier: str) -> bool:
        found = [f for f in self.findings if (f.claim, f.tier) == (claim, tier)]
        return any(f.promise is not None for f in found) if found else covers(self.promises.get(claim), tier)

    def measured(self) -> dict[str, dict[str, Verdict]]:
        """The claims that at least one tier measured."""
        return {
            claim: tiers
            for claim, tiers in self.claims.items()
            if Verdict.merge(tiers.values()) is not Verdict.NOT_MEASURED
        }

    def fails(self, fail_on: FailOn = "promise") -> bool:
        """Whether the certificate has a violation that counts under `fail_on`."""
        counted = {"VIOLATED"} if fail_on == "promise" else {"VIOLATED", "hazard"}
        return any(sign in counted for sign in self._signs())

    def _signs(self) -> Iterator[Sign]:
        for claim in self.claims:
            for tier in self.columns:
                yield self.sign(claim, tier)

    def decide(self) -> Verdict:
        """The verdict, by the one rule; UNKNOWN if HOLDS was not earned."""
        if self.fails():
            return Verdict.VIOLATED
        return Verdict.UNKNOWN if self.reasons() else Verdict.HOLDS

    def reasons(self) -> list[str]:
        """Why HOLDS was not earned, each with a remedy if there is one."""
        found = list(self.unknown)
        found += [f"{tier}: {why}" for tier, why in self.incomplete().items()]
        if not any(part.states for part in self.coverage.values()) or not self.measured():
            return [*found, "no crash was judged in the requested tiers"]
        if not self.promises and self.fails("hazard"):
            found.append("it promises nothing, but has hazards (--fail-on hazard makes them count)")
        tested = self._tested_promises()
        if self.promises and not tested:
            found.append(f"no requested tier tests what it promises: {', '.join(sorted(self.promises))}")
        if self.declares_promises:
            found += [
                f"{claim} is promised, but was not measured: no crash tested it, or the adapter lacks the"
                " method that shows it (docs/adapters.md)"
                for claim in sorted(tested - self._measured_promises())
            ]
        if not self.unknown and "unknown" in self._signs():
            found.append("a cell is unknown")
        return found

    def incomplete(self) -> dict[str, str]:
        """Tiers in which too little was tried to conclude anything, each with the remedy. What is incomplete
        can be accepted; what is insufficient cannot."""
        found = {}
        for tier, part in self.coverage.items():
            missing = part.possible is None or part.states < part.possible
            if part.cut_short and missing and part.states < ENOUGH:
                found[tier] = (
                    f"time ran out after {part.states} crashes, which is insufficient (at least {ENOUGH}):"
                    " allow more time (--for)"
                )
            elif part.cut_short and missing and part.possible is not None and not self.accepts_incomplete:
                found[tier] = (
                    f"time ran out after {part.states} of {part.possible} crashes: allow more time (--for),"
                    " or --accept-incomplete"
                )
        return found

    def _tested_promises(self) -> set[str]:
        """The promises that a requested tier can test."""
        return {
            claim
            for claim, promise in self.promises.items()
            if any(covers(promise, tier) and tests(tier, claim) for tier in self.tiers)
        }

    def _measured_promises(self) -> set[str]:
        return {
            claim
            for claim, promise in self.promises.items()
            if any(
                covers(promise, tier) and self.cell(claim, tier) is not Verdict.NOT_MEASURED
                for tier in self.columns
            )
        }

    def headline(self) -> str:
        """One line for a table or the end of the output; it begins with the verdict."""
        parts = [self._about_promises()]
        if self.hazards:
            names = _names(self.hazards)
            parts.append(f"{len(names)} hazard{'s' * (len(names) != 1)}: {', '.join(names)}")
        return "; ".join(parts)

    def _about_promises(self) -> str:
        measured = self._measured_promises()
        missing = sorted(self.promises.keys() - measured) if self.declares_promises else []
        note = f" ({', '.join(missing)} not measured)" if missing else ""
        if self.verdict is Verdict.VIOLATED:
            names = _names(self.broken)
            return f"VIOLATED: breaks {', '.join(names)} ({len(names)} of {self._promised(measured)}){note}"
        if self.verdict is Verdict.UNKNOWN:
            return f"UNKNOWN: {'it promises nothing' if not self.promises else 'see the reasons'}{note}"
        if not self.promises:
            return "HOLDS: promises nothing, and no measured claim is violated"
        held = f"{len(measured)} of {self._promised(self.promises)}{note}"
        return f"HOLDS {held}" if missing else f"HOLDS {self._promised(measured)}"

    def _promised(self, claims: Collection[str]) -> str:
        """`its 2 promises`, or `5 basic claims` of an adapter that declares none."""
        count = len(claims)
        if self.declares_promises:
            return f"its {count} promise{'s' * (count != 1)}"
        return f"{count} basic claim{'s' * (count != 1)}"


def covers(promise: Promise | None, tier: str) -> bool:
    """A promise about crashes, restarts or failures does not cover power loss."""
    return promise is not None and (promise.power or not is_of_power(tier))


def tests(tier: str, claim: str) -> bool:
    """Whether runs of this tier can test the claim; a tier of another release may."""
    every = known_tiers()
    if tier not in every:
        return True
    watched = {each.claim for known in every.values() for each in known.watches}
    if claim in watched:
        return any(each.claim == claim for each in every[tier].watches)
    return every[tier].plan is not None


def promises_of(adapter: Adapter) -> dict[str, Promise]:
    """The promises that the adapter declares; without a declaration, the basic claims."""
    if adapter.promises is not None:
        return dict(adapter.promises)
    claims = registry.claims(adapter.subject).values()
    return {claim.name: BY_DEFAULT for claim in claims if claim.basic}


def properties_of(claims: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The claims for each property of "Resume Means Resume"."""
    found: dict[str, tuple[str, ...]] = {}
    for claim in registry.claims().values():
        if claim.aspect:
            here = (claim.name,) if claim.name in claims else ()
            found[claim.aspect] = (*found.get(claim.aspect, ()), *here)
    return found


def _names(findings: list[CertifiedFinding]) -> list[str]:
    return sorted({finding.claim for finding in findings})


def encode(certificate: Certificate) -> str:
    """With what follows from the rest, for readers that do not know the rule: headline, reasons, cells."""
    c = certificate
    derived = {
        "headline": c.headline(),
        "reasons": c.reasons() if c.verdict is Verdict.UNKNOWN else [],
        "cells": {claim: {tier: c.sign(claim, tier) for tier in c.columns} for claim in c.claims},
    }
    whole = {**msgspec.to_builtins(c), **derived}
    return msgspec.json.format(msgspec.json.encode(whole)).decode() + "\n"


def load(path: Path) -> Certificate:
    """Raises WrongUse with the reason. The verdict is recomputed by the rule of this release."""
    if path.exists() and not path.is_file():
        raise WrongUse(f"{path} is not a file")
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Certificate)
    except OSError as error:
        raise WrongUse(f"cannot read {path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WrongUse(f"{path} is not a certificate: {error}") from None
    if found.schema != SCHEMA:
        raise WrongUse(f"{path} has schema {found.schema}, but this release reads {SCHEMA}")
    return msgspec.structs.replace(found, verdict=found.decide())


class Change(msgspec.Struct, frozen=True):
    """A cell that differs between two certificates."""

    claim: str
    tier: str
    before: Sign
    after: Sign

    @property
    def summary(self) -> str:
        if self.after == "holds" and self.before in ("VIOLATED", "hazard"):
            return "fixed"
        if self.after in ("VIOLATED", "hazard"):
            return "broken" if self.before == "holds" else "found"
        return "changed"

    def fails(self, fail_on: FailOn) -> bool:
        return self.after == "VIOLATED" or (fail_on == "hazard" and self.after == "hazard")


def compare(before: Certificate, after: Certificate) -> Iterator[Change]:
    claims = dict.fromkeys([*before.claims, *after.claims])
    for claim in claims:
        for tier in dict.fromkeys([*before.columns, *after.columns]):
            old, new = before.sign(claim, tier), after.sign(claim, tier)
            if old != new:
                yield Change(claim, tier, old, new)
