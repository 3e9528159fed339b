"""Certificate: the verdict on a target for each claim in each tier, with its coverage.

Plain data and its JSON (schema 1, docs/certificate.md; fields may be added, never changed or removed).

One rule decides cell, headline, exit code, badge and JUnit: **a finding counts if it breaks a promise**.
Any other finding is a hazard: shown, and counted only with `--fail-on hazard`. An adapter that declares no
promises at all is held to the basic claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from chaoskit import registry
from chaoskit.adapter import Adapter, Promise
from chaoskit.model import Verdict
from chaoskit.search.result import Coverage
from chaoskit.search.tiers import is_of_power, tiers as known_tiers

SCHEMA = 1
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
    properties: dict[str, tuple[str, ...]]
    findings: tuple[CertifiedFinding, ...] = ()
    unknown: tuple[str, ...] = ()
    suite: dict[str, Any] | None = None  # result of the vendor's own conformance suite on the same target
    seconds: float = 0.0

    @property
    def tiers(self) -> list[str]:
        """The requested tiers, in the order of the columns; tiers unknown to this release come last."""
        known = [tier for tier in known_tiers() if tier in self.coverage]
        return [*known, *(tier for tier in self.coverage if tier not in known)]

    @property
    def broken(self) -> list[CertifiedFinding]:
        """Findings that break a promise."""
        return [finding for finding in self.findings if finding.promise]

    @property
    def hazards(self) -> list[CertifiedFinding]:
        return [finding for finding in self.findings if not finding.promise]

    def cell(self, claim: str, tier: str) -> Verdict:
        return self.claims.get(claim, {}).get(tier, Verdict.NOT_MEASURED)

    def sign(self, claim: str, tier: str) -> Sign:
        """The text of the cell: a violation of something that is not promised is a hazard."""
        verdict = self.cell(claim, tier)
        if verdict is Verdict.VIOLATED:
            return "VIOLATED" if self._breaks_a_promise(claim, tier) else "hazard"
        signs: dict[Verdict, Sign] = {Verdict.HOLDS: "holds", Verdict.UNKNOWN: "unknown"}
        return signs.get(verdict, "-")

    def _breaks_a_promise(self, claim: str, tier: str) -> bool:
        found = [f for f in self.findings if (f.claim, f.tier) == (claim, tier)]
        return any(f.promise for f in found) if found else covers(self.promises.get(claim), tier)

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
            for tier in (*self.tiers, UNDISTURBED):
                yield self.sign(claim, tier)

    def decide(self) -> Verdict:
        """The verdict, by the one rule; UNKNOWN if nothing was measured or there are doubts."""
        if self.fails():
            return Verdict.VIOLATED
        nothing_ran = not any(part.states for part in self.coverage.values())
        # A target that promises nothing breaks no promise, but must not pass if it has hazards.
        says_nothing = not self.promises and self.fails("hazard")
        if self.unknown or nothing_ran or says_nothing or not self.measured():
            return Verdict.UNKNOWN
        return Verdict.UNKNOWN if "unknown" in self._signs() else Verdict.HOLDS

    def headline(self) -> str:
        """One line for a table or the end of the output; it begins with the verdict."""
        parts = [self._about_promises()]
        if self.hazards:
            names = _names(self.hazards)
            parts.append(f"{len(names)} hazard{'s' * (len(names) != 1)}: {', '.join(names)}")
        return "; ".join(parts)

    def _about_promises(self) -> str:
        count = len(self.promises)
        promises = f"{count} promise{'s' * (count != 1)}"
        if self.verdict is Verdict.VIOLATED:
            names = _names(self.broken)
            return f"VIOLATED: breaks {', '.join(names)} ({len(names)} of its {promises})"
        unmeasured = sorted(self.promises.keys() - self.measured().keys())
        missing = f" ({', '.join(unmeasured)} not measured)" if unmeasured else ""
        if self.verdict is Verdict.HOLDS:
            if not count:
                return "HOLDS: promises nothing, and no measured claim is violated"
            return f"HOLDS its {promises}{missing}"
        reason = "it promises nothing" if not count else "see the reasons"
        return f"UNKNOWN: {reason}{missing}"


def covers(promise: Promise | None, tier: str) -> bool:
    """A promise about crashes, restarts or failures does not cover power loss."""
    return promise is not None and (promise.power or not is_of_power(tier))


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
    return msgspec.json.format(msgspec.json.encode(certificate)).decode() + "\n"


def load(path: Path) -> Certificate:
    """Raises ValueError with the reason. The verdict is recomputed by the rule of this release."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Certificate)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a certificate: {error}") from None
    if found.schema != SCHEMA:
        raise ValueError(f"{path} has schema {found.schema}, but this release reads {SCHEMA}")
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
        for tier in dict.fromkeys([*before.tiers, *after.tiers]):
            old, new = before.sign(claim, tier), after.sign(claim, tier)
            if old != new:
                yield Change(claim, tier, old, new)
