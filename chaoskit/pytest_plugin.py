"""The pytest plugin: marker `stress`, one seed for the whole session, one fixture `chaos`.

    @pytest.mark.stress
    def test_my_agent(chaos):
        chaos.run("my_package.scenarios:SCENARIO").assert_holds()

Silent and cheap until it is used: nothing of the engine is imported before the fixture is. The seed
is resolved once, on the controller, and handed to xdist's workers; a case depends on the seed and
its own id only, so the same seed gives the same runs however the tests are distributed.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from chaoskit.certify.certificate import Certificate
    from chaoskit.search.campaign import Result

_SEED = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("chaoskit", "crash tests (chaoskit)")
    group.addoption(
        "--chaos-seed",
        type=int,
        metavar="N",
        help="the seed of all crash tests (default: a new one, shown in the header)",
    )
    group.addoption(
        "--chaos-budget",
        type=float,
        metavar="SECONDS",
        help="the longest that one chaos.run may take before it stops early",
    )
    group.addoption(
        "--chaos-jobs",
        type=int,
        default=1,
        metavar="N",
        help="processes per chaos.run (default 1; xdist's -n spreads tests instead)",
    )
    group.addoption(
        "--chaos-report",
        metavar="FILE",
        help="write each chaos.run's result to FILE, one JSON object per line",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "stress: crash tests; run them with -m stress")
    config.stash[_SEED] = _resolve_seed(config)
    report = config.getoption("--chaos-report")
    if report and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_ReportWriter(Path(report)))


def _resolve_seed(config: pytest.Config) -> int:
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is not None:
        return int(worker["chaos_seed"])
    given: int | None = config.getoption("--chaos-seed")
    return secrets.randbelow(2**32) if given is None else given


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """xdist: hand the controller's seed to a worker."""
    node.workerinput["chaos_seed"] = node.config.stash[_SEED]


def pytest_report_header(config: pytest.Config) -> str:
    return f"chaoskit: --chaos-seed={config.stash[_SEED]}"


class _ReportWriter:
    """On the controller: results arrive with the reports of the tests, also from xdist's workers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_text("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            lines = [value for name, value in report.user_properties if name == "chaoskit"]
            with self._path.open("a") as file:
                file.writelines(f"{line}\n" for line in lines)


class Chaos:
    """The fixture: runs scenarios with the seed of this test."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        config = request.config
        case = f"{config.stash[_SEED]}/{request.node.nodeid}"
        #: depends on the session's seed and this test's id, on nothing else
        self.seed = int.from_bytes(hashlib.blake2b(case.encode(), digest_size=4).digest(), "big")
        self._budget: float | None = config.getoption("--chaos-budget")
        self._jobs: int = config.getoption("--chaos-jobs")

    def run(self, scenario: str, *, seed: int | None = None, **options: Any) -> ChaosResult:
        """A campaign; `options` are those of `chaoskit run`: plan, runs, store, mutant, cold..."""
        from chaoskit.search.campaign import Settings, run_campaign  # noqa: PLC0415 - cheap until used
        from chaoskit.show.report import as_json  # noqa: PLC0415

        defaults: dict[str, Any] = {"jobs": self._jobs, "seconds": self._budget}
        chosen = self.seed if seed is None else seed
        result = run_campaign(Settings(scenario=scenario, seed=chosen, **{**defaults, **options}))
        summary = json.dumps({"test": self._request.node.nodeid, **as_json([result])})
        self._request.node.user_properties.append(("chaoskit", summary))
        return ChaosResult(result)

    def certify(
        self, target: str | type, *, claims: Sequence[str] = (), tiers: Sequence[str] = (), **options: Any
    ) -> ChaosCertificate:
        """A certificate of an adapter: its class, or a name that `chaoskit certify` knows.

        `claims` and `tiers` are those that shall hold; none named: all.
        """
        from chaoskit.certify.certificate import TIERS  # noqa: PLC0415 - cheap until used
        from chaoskit.certify.certification import Wanted, certify  # noqa: PLC0415

        if isinstance(target, type):
            target = f"{inspect.getsourcefile(target)}:{target.__qualname__}"
        defaults: dict[str, Any] = {"jobs": self._jobs, "seconds": self._budget, "seed": self.seed}
        chosen = tuple(tier for tier in TIERS if tier in tiers) or TIERS
        made = certify(Wanted(target=target, tiers=chosen, **{**defaults, **options}))
        return ChaosCertificate(made, tuple(claims) or tuple(made.claims))


class ChaosCertificate:
    """A certificate that can be asserted; a failure ends with the line to paste."""

    def __init__(self, certificate: Certificate, claims: Sequence[str]) -> None:
        self.certificate = certificate
        self._claims = claims

    @property
    def verdict(self) -> str:
        return self.certificate.verdict.value

    def assert_holds(self) -> None:
        """Each claim that was asked for: measured in some tier, and violated in none."""
        __tracebackhide__ = True
        c = self.certificate
        found = [f for f in c.findings if f.claim in self._claims]
        missing = [name for name in self._claims if name not in c.measured()]
        lines = [f"{f.claim}/{f.kind} [{f.tier}]: {f.message}" for f in found]
        lines += [f"unknown: {reason}" for reason in c.unknown]
        lines += [f"{name} was not measured" for name in missing if len(self._claims) < len(c.claims)]
        if found:
            lines.append(f"reproduce: chaoskit replay {found[0].repro}")
        if lines:
            pytest.fail("\n".join([f"expected {c.target} to hold", *lines]), pytrace=False)


class ChaosResult:
    """A campaign's result; every failure ends with the line to paste."""

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
        if invariant not in self.findings:
            found = ", ".join(self.findings) or "nothing"
            expected = f"expected a violation of {invariant}, found {found} ({self.verdict})"
            pytest.fail(self._story(expected), pytrace=False)

    def _story(self, first: str) -> str:
        lines = [first, *(f"unknown: {doubt}" for doubt in self.result.doubts)]
        for witness in self.result.witnesses[:3]:
            lines += [f"{witness.finding.signature}: {witness.finding.message}", *witness.story]
        if self.result.witnesses:
            lines.append(f"reproduce: chaoskit replay {self.result.witnesses[0].token}")
        return "\n".join(lines)


@pytest.fixture
def chaos(request: pytest.FixtureRequest) -> Chaos:
    """Run scenarios under crashes: `chaos.run("payments").assert_holds()`."""
    return Chaos(request)
