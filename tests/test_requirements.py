"""Every implemented requirement is proved by a test that names it; and the top level is as agreed."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def built():
    lines = (ROOT / "ci" / "requirement-names.txt").read_text().splitlines()
    return [line.split()[0] for line in lines if line and not line.startswith("#")]


def proved():
    names: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for marks in re.findall(r"mark\.requirement\(([^)]*)\)", path.read_text()):
            names |= set(re.findall(r'"(\w+)"', marks))
    return names


def test_every_requirement_is_proved_by_a_test():
    assert set(built()) - proved() == set()


def test_every_requirement_that_a_test_names_exists():
    assert proved() - set(built()) == set()


@pytest.mark.requirement("C7")
def test_the_top_level_has_the_agreed_files_and_folders():
    wanted = {
        "chaoskit",
        "reference_agent",
        "invariants",
        "scenarios",
        "tests",
        "ci",
        "pyproject.toml",
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "LICENSE",
    }
    assert wanted <= {path.name for path in ROOT.iterdir()}
