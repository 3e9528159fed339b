"""Certificate: what is known about a target, claim by claim and tier by tier, with what was covered.

Plain data and its JSON (schema 1, docs/certificate.md; fields are only added). A cell that nobody looked
at is NOT_MEASURED; a run that covered nothing gives no certificate but UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from chaoskit.adapter import Promise
from chaoskit.model import Verdict

SCHEMA = 1
# Kill, kill in mid-write, power, full disk; crash while the store is made, and while it recovers; a
# paused process that comes back.
TIERS = ("process", "torn", "power-ext4", "power-posix", "disk-full", "first-start", "recovery", "zombie")
# What "Resume Means Resume" (arXiv 2608.03836) calls it.
PROPERTIES = {
    "prefix continuation": ("prefix", "durable", "resumes"),
    "effect exactly-once": ("effects-kept", "effects-once", "surfaced"),
    "fork determinism": ("fork",),
    "checkpoint validity": ("valid", "loadable", "atomic"),
    "consume-once": ("consume-once",),
    "recovery determinism": ("same-answer", "continues"),
}

# What no store and no framework does by itself: there a finding counts against it only if it promises
# otherwise. Everything else is what persistence is for.
EXTRAS = frozenset({"fenced", "idempotent", "model-once", "effects-once", "surfaced", "consume-once", "fork"})

# What is said of going on after a crash is said of work that had begun: a target that cannot be started
# any more after a first start that went wrong has broken no such promise, bad as that is.
NEVER_PROMISED = frozenset({("resumes", "never-starts")})


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """What was done in one tier."""

    states: int = 0  # crashes that were recovered from and judged
    confirmed: int = 0  # of these, also run into for real
    missed: int = 0  # planned, and did not happen
    complete: bool = False  # every one there is, not a sample


class CertifiedFinding(msgspec.Struct, frozen=True, kw_only=True):
    claim: str
    kind: str
    tier: str
    fault: str
    point: str
    message: str
    promise: str | None  # what the library says; None: it does not promise this, it is a hazard
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
    versions: dict[str, str]  # of the packages that were asked for, and of Python
    settings: dict[str, Any]  # really in force, as the adapter read them
    files: tuple[str, ...]
    saves: int
    operations: int  # on the disk, in the run without faults
    claims: dict[str, dict[str, Verdict]]
    coverage: dict[str, Coverage]
    promises: dict[str, Promise]
    properties: dict[str, tuple[str, ...]]
    findings: tuple[CertifiedFinding, ...] = ()
    unknown: tuple[str, ...] = ()
    suite: dict[str, Any] | None = None  # the vendor's own conformance suite on the same target
    seconds: float = 0.0

    @property
    def tiers(self) -> list[str]:
        return [tier for tier in TIERS if tier in self.coverage]

    @property
    def broken(self) -> list[CertifiedFinding]:
        """Findings against something that the library promises."""
        return [finding for finding in self.findings if finding.promise]

    @property
    def hazards(self) -> list[CertifiedFinding]:
        return [finding for finding in self.findings if not finding.promise]

    def cell(self, claim: str, tier: str) -> Verdict:
        return self.claims.get(claim, {}).get(tier, Verdict.NOT_MEASURED)

    def sign(self, claim: str, tier: str) -> str:
        """The cell in a word: what is not promised is a hazard, not a violation."""
        verdict = self.cell(claim, tier)
        if verdict is Verdict.VIOLATED and not self._breaks_a_promise(claim, tier):
            return "hazard"
        words = {Verdict.HOLDS: "holds", Verdict.UNKNOWN: "unknown", Verdict.NOT_MEASURED: "-"}
        return words.get(verdict, "VIOLATED")

    def _breaks_a_promise(self, claim: str, tier: str) -> bool:
        found = [f for f in self.findings if (f.claim, f.tier) == (claim, tier)]
        promise = self.promises.get(claim)
        return any(f.promise for f in found) if found else bool(promise and promise.covers(tier))

    def measured(self) -> dict[str, dict[str, Verdict]]:
        """The claims that were examined at all."""
        return {
            claim: tiers
            for claim, tiers in self.claims.items()
            if Verdict.merge(tiers.values()) is not Verdict.NOT_MEASURED
        }

    def headline(self) -> str:
        """In one line, for a badge or a table."""
        parts = []
        if self.verdict is Verdict.HOLDS:
            parts.append(f"holds ({len(self.measured())} claims, {len(self.tiers)} tiers)")
        elif self.verdict is not Verdict.VIOLATED:
            parts.append("unknown")
        if self.broken:
            parts.append(f"breaks {', '.join(_names(self.broken))}")
        if self.hazards:
            parts.append(f"hazards: {', '.join(_names(self.hazards))}")
        return "; ".join(parts)


def _names(findings: list[CertifiedFinding]) -> list[str]:
    return sorted({finding.claim for finding in findings})


def verdict_of(
    claims: dict[str, dict[str, Verdict]],
    promised: Iterable[str],
    coverage: dict[str, Coverage],
    unknown: tuple[str, ...],
) -> Verdict:
    """Of everything that counts; UNKNOWN where nothing was measured, or where something stayed open."""
    counts = [claim for claim in claims if claim not in EXTRAS or claim in promised]
    every = [verdict for claim in counts for verdict in claims[claim].values()]
    found = Verdict.merge(every)
    empty = not any(part.states for part in coverage.values())
    if found is Verdict.NOT_MEASURED or (found is Verdict.HOLDS and (unknown or empty)):
        return Verdict.UNKNOWN
    return found


def encode(certificate: Certificate) -> str:
    return msgspec.json.format(msgspec.json.encode(certificate)).decode() + "\n"


def load(path: Path) -> Certificate:
    """Raises ValueError with one clear line."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Certificate)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a certificate: {error}") from None
    if found.schema != SCHEMA:
        raise ValueError(f"{path} has schema {found.schema}, and this release reads {SCHEMA}")
    return found


class Change(msgspec.Struct, frozen=True):
    """A cell that differs between two certificates."""

    claim: str
    tier: str
    before: Verdict
    after: Verdict

    @property
    def words(self) -> str:
        if self.after is Verdict.HOLDS and self.before is Verdict.VIOLATED:
            return "mended"
        if self.after is Verdict.VIOLATED:
            return "broken" if self.before is Verdict.HOLDS else "found"
        return "changed"


def compare(before: Certificate, after: Certificate) -> Iterator[Change]:
    claims = dict.fromkeys([*before.claims, *after.claims])
    tiers = [tier for tier in TIERS if tier in {*before.coverage, *after.coverage}]
    for claim in claims:
        for tier in tiers:
            old, new = before.cell(claim, tier), after.cell(claim, tier)
            if old is not new:
                yield Change(claim, tier, old, new)
