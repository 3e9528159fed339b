"""The pytest fixture `chaos`: runs scenarios, certifies adapters, and asserts on the results.

Imported when a test first requests the fixture, so that `pytest_plugin` stays cheap.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Sequence
from typing import Any

import pytest

from chaoskit import registry, trust
from chaoskit.certify.certificate import Certificate, encode
from chaoskit.certify.certification import certify, settings_for
from chaoskit.search.campaign import run_campaign
from chaoskit.search.result import Result
from chaoskit.settings import Settings
from chaoskit.show.report import as_json
from chaoskit.story import tell


class Chaos:
    def __init__(self, request: pytest.FixtureRequest, session_seed: int) -> None:
        self._request = request
        case = f"{session_seed}/{request.node.nodeid}"
        #: depends only on the session's seed and this test's id
        self.seed = int.from_bytes(hashlib.blake2b(case.encode(), digest_size=4).digest(), "big")
        self._defaults: dict[str, Any] = {
            "seed": self.seed,
            "jobs": request.config.getoption("--chaos-jobs"),
            "seconds": request.config.getoption("--chaos-budget"),
        }

    def run(self, scenario: str, **options: Any) -> ChaosResult:
        """Run a campaign; `options` are those of `chaoskit run`: seed, plan, runs, store, mutant, cold..."""
        settings = Settings(scenario=scenario, **{**self._defaults, **options})
        result = run_campaign(registry.resolve(settings))
        trust.remember_own(witness.token for witness in result.witnesses)
        self._report(as_json([result]))
        return ChaosResult(result)

    def certify(
        self, target: str | type, *, claims: Sequence[str] = (), tiers: Sequence[str] = (), **options: Any
    ) -> ChaosCertificate:
        """Certify an adapter, given as its class or as a name that `chaoskit certify` knows.

        `claims` must hold whether they are promised or not; by default, every promise must hold.
        `tiers` default to those of `chaoskit certify`.
        """
        if isinstance(target, type):
            target = f"{inspect.getsourcefile(target)}:{target.__qualname__}"
        made = certify(settings_for(target, **{**self._defaults, **options}), tiers)
        trust.remember_own(finding.repro for finding in made.findings)
        self._report(json.loads(encode(made)))
        return ChaosCertificate(made, claims)

    def _report(self, result: dict[str, Any]) -> None:
        """For --chaos-report."""
        summary = json.dumps({"test": self._request.node.nodeid, **result})
        self._request.node.user_properties.append(("chaoskit", summary))


class ChaosCertificate:
    """A certificate to assert on; a failure message ends with the command that reproduces it."""

    def __init__(self, certificate: Certificate, claims: Sequence[str]) -> None:
        self.certificate = certificate
        self._claims = claims

    @property
    def verdict(self) -> str:
        return self.certificate.verdict.value

    def assert_holds(self) -> None:
        """Every requested claim was measured and holds in every tier; without any, the verdict is HOLDS."""
        __tracebackhide__ = True
        c = self.certificate
        lines = self._trouble_with_claims() if self._claims else self._trouble_with_promises()
        if lines:
            found = [f for f in c.findings if f.claim in self._claims] if self._claims else c.broken
            repro = [f"reproduce: chaoskit replay {found[0].repro}"] if found else []
            pytest.fail("\n".join([f"expected {c.target} to hold", *lines, *repro]), pytrace=False)

    def _trouble_with_promises(self) -> list[str]:
        c = self.certificate
        if self.verdict == "HOLDS":
            return []
        lines = [f"{f.claim}/{f.kind} [{f.tier}]: {f.message}" for f in c.broken]
        return [*lines, *(f"unknown: {reason}" for reason in c.reasons()), c.headline()]

    def _trouble_with_claims(self) -> list[str]:
        c = self.certificate
        lines = [f"{f.claim}/{f.kind} [{f.tier}]: {f.message}" for f in c.findings if f.claim in self._claims]
        for claim in self._claims:
            signs = {tier: c.sign(claim, tier) for tier in c.columns}
            lines += [f"unknown: {claim} [{tier}]" for tier, sign in signs.items() if sign == "unknown"]
            if set(signs.values()) <= {"-"}:
                lines.append(f"{claim} was not measured")
        return [*lines, *(f"unknown: {reason}" for reason in c.unknown)]


class ChaosResult:
    """A campaign's result to assert on; a failure message ends with the command that reproduces it."""

    def __init__(self, result: Result) -> None:
        self.result = result

    @property
    def verdict(self) -> str:
        return self.result.verdict.value

    @property
    def findings(self) -> list[str]:
        """The invariants that were violated."""
        return sorted({witness.finding.invariant for witness in self.result.witnesses})

    def assert_holds(self) -> None:
        __tracebackhide__ = True
        if self.verdict != "HOLDS":
            pytest.fail(self._story(f"expected HOLDS, got {self.verdict}"), pytrace=False)

    def assert_violates(self, invariant: str) -> None:
        __tracebackhide__ = True
        if registry.current_name(invariant) not in self.findings:
            found = ", ".join(self.findings) or "nothing"
            expected = f"expected a violation of {invariant}, found {found} ({self.verdict})"
            pytest.fail(self._story(expected), pytrace=False)

    def _story(self, first: str) -> str:
        lines = [first, *(f"unknown: {doubt}" for doubt in self.result.doubts)]
        for witness in self.result.witnesses[:3]:
            lines += [f"{witness.finding.signature}: {witness.finding.message}", *tell(witness.events)]
        if self.result.witnesses:
            lines.append(f"reproduce: chaoskit replay {self.result.witnesses[0].token}")
        return "\n".join(lines)
