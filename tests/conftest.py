"""Shared by all tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from chaoskit import registry
from chaoskit.run.workspace import Workspace
from chaoskit.search.rig import Rig
from chaoskit.settings import Settings

pytest_plugins = ["pytester"]

# A slow machine is not a bug, and the same tree must give the same result twice.
hypothesis.settings.register_profile(
    "tests", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("tests")
# Seconds that a test with this marker may take on a loaded machine; others have the limit of pyproject.toml.
TIME_LIMITS = {"stress": 900, "targets": 3600, "exhaustive": 3600}
TARGETS = Path(__file__).with_name("toy_targets.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timeout") is None:
            limits = [TIME_LIMITS[mark.name] for mark in item.iter_markers() if mark.name in TIME_LIMITS]
            if limits:
                item.add_marker(pytest.mark.timeout(max(limits)))


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    with Workspace() as workspace:
        yield workspace


@pytest.fixture
def rig(workspace: Workspace) -> Iterator[Callable[..., Rig]]:
    """Make rigs for scenarios of `toy_targets.py`, by name."""
    made: list[Rig] = []

    def make(name: str, **options: object) -> Rig:
        settings = Settings(scenario=f"{TARGETS}:{name}", **options)  # type: ignore[arg-type]
        made.append(Rig(registry.resolve(settings), workspace.path, workspace.session))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def chaoskit(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command line, in a process of its own and an empty directory."""

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "chaoskit.cli.main", *args]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    return run
