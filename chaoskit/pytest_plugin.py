"""The pytest plugin: marker `stress`, one seed for the whole session, one fixture `chaos`.

    @pytest.mark.stress
    def test_my_agent(chaos):
        chaos.run("my_package.scenarios:SCENARIO").assert_holds()

The plugin is cheap until it is used: the engine is imported with the fixture. The seed is resolved once,
on the controller, and passed to xdist's workers. A test depends only on the seed and its own id, so the
same seed gives the same runs however the tests are distributed.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from chaoskit.fixture import Chaos

_SEED = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("chaoskit", "crash tests (chaoskit)")
    group.addoption(
        "--chaos-seed",
        type=int,
        metavar="N",
        help="the seed of all crash tests (default: random, shown in the header)",
    )
    group.addoption(
        "--chaos-budget", type=float, metavar="SECONDS", help="time limit of each chaos.run and chaos.certify"
    )
    group.addoption(
        "--chaos-jobs",
        type=int,
        default=1,
        metavar="N",
        help="worker processes per call (default: 1; to run tests in parallel, use pytest-xdist's -n)",
    )
    group.addoption(
        "--chaos-report", metavar="FILE", help="write the results to FILE, one JSON object per line"
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
    """xdist: pass the controller's seed to a worker."""
    node.workerinput["chaos_seed"] = node.config.stash[_SEED]


def pytest_report_header(config: pytest.Config) -> str:
    return f"chaoskit: --chaos-seed={config.stash[_SEED]}"


class _ReportWriter:
    """Runs on the controller: results arrive with the test reports, including those of xdist's workers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_text("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            lines = [value for name, value in report.user_properties if name == "chaoskit"]
            with self._path.open("a") as file:
                file.writelines(f"{line}\n" for line in lines)


@pytest.fixture
def chaos(request: pytest.FixtureRequest) -> Chaos:
    """Run scenarios under crashes: `chaos.run("payments").assert_holds()`."""
    from chaoskit.fixture import Chaos  # noqa: PLC0415 - do not import the engine unless it is used

    return Chaos(request, request.config.stash[_SEED])
