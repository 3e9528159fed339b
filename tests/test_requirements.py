"""Every requirement that is built is proved by a test that names it; and the tree has its shape."""

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


def test_no_test_names_a_requirement_that_is_not_there():
    assert proved() - set(built()) == set()


@pytest.mark.requirement("C7")
def test_the_top_level_is_as_agreed():
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
