"""The import contract, the table in ARCHITECTURE.md and the folders agree."""

import re
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "ci"))

import import_contract  # noqa: E402 - a script's folder, not a package

PACKAGES = ("chaoskit", "reference_agent", "chaoskit_invariants", "chaoskit_scenarios")


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph(*PACKAGES)


def contract():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (rooms,) = (c["rooms"] for c in settings["contracts"] if c["type"] == "rooms")
    return import_contract.parse(rooms)


def test_every_module_is_in_a_room_and_imports_only_what_its_room_allows(graph):
    assert import_contract.problems(graph, contract()) == []


def test_the_table_in_architecture_md_is_the_import_contract():
    page = (ROOT / "ARCHITECTURE.md").read_text().partition("## Rooms")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w./]+)` \|[^|]*\| ([^|]*) \|$", page, re.MULTILINE)
    table = {room: set(re.findall(r"`([\w.]+)`", allowed)) for room, allowed in rows}
    assert table == contract()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda rooms: rooms.pop("chaoskit.show"), "may not import chaoskit"),
        (lambda rooms: rooms.pop("chaoskit"), "chaoskit is in no room"),
        (lambda rooms: rooms["chaoskit.search"].discard("chaoskit.run"), "may not import chaoskit.run"),
        (lambda rooms: rooms["chaoskit.model"].add("chaoskit.run"), "a cycle of rooms"),
        (
            lambda rooms: rooms["chaoskit.disk"].add("reference_agent"),
            "may import reference_agent, but does not",
        ),
    ],
)
def test_the_contract_catches_a_forbidden_import(graph, change, problem):
    rooms = contract()
    change(rooms)
    assert any(problem in found for found in import_contract.problems(graph, rooms))
