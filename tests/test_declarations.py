"""A fault, a tier and a claim are one declaration each; those of another distribution are picked up."""

import json
import os
import subprocess
import sys

import pytest

TOYS = '''
"""A distribution of somebody else."""

import msgspec

from chaoskit.faults.kill import arm as arm_kill
from chaoskit.faults.kind import FaultKind
from chaoskit.model import Claim, Fault, PersistPoint, Probe, Violation, When
from chaoskit.search.plan import SpreadFaults
from chaoskit.search.tiers import Tier


class Wipe(Fault, msgspec.Struct, frozen=True, tag="toy.wipe"):
    """The process is killed, and its directory is emptied."""

    point: PersistPoint
    when: When

    def __str__(self):
        return f"{self.name} {self.point}"

    @property
    def name(self):
        return f"wipe {self.when}"

    @property
    def tier(self):
        return "wiped"


def empty(fault, trace, directory):
    for path in directory.iterdir():
        path.unlink()


WIPE = FaultKind(
    name="wipe",
    summary="a kill, and everything is gone",
    data=Wipe,
    at=lambda firing: [Wipe(firing.point, firing.when)],
    arm=arm_kill,
    watches_disk=True,
    sweep_rounds=1,
    after_death=empty,
)
WIPED = Tier(
    name="wiped",
    summary="the directory is emptied",
    plan=lambda scope: SpreadFaults(fault="wipe", tier="wiped", runs=6),
)


def something_is_there(history):
    """Judges what the look after a recovery shows."""
    for probe in history.of(Probe, "recovered"):
        if not any(found.get("load") for found in probe.data["sessions"].values()):
            yield Violation("nothing", "every session is empty")


THERE = Claim(
    name="there",
    summary="some session has something",
    check=something_is_there,
    subject="store",
    aspect="toys",
)
'''
ENTRIES = """
[chaoskit.faults]
wipe = toys:WIPE
[chaoskit.tiers]
wiped = toys:WIPED
[chaoskit.claims]
there = toys:THERE
"""
STORE = '''
import json, os
from pathlib import Path

class Store:
    """One file per session"""
    def open(self, directory): self.directory = Path(directory)
    def save(self, session, state):
        aside = self.directory / f"{session}.tmp"
        with aside.open("w") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self.directory / session)
        fd = os.open(self.directory, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    def load(self, session):
        path = self.directory / session
        return json.loads(path.read_text()) if path.exists() else None
    def close(self): pass
    saves = 4
    largest = 100
'''


@pytest.fixture
def toys(tmp_path):
    """The command line where that distribution is installed."""
    (tmp_path / "toys.py").write_text(TOYS)
    (tmp_path / "store.py").write_text(STORE)
    info = tmp_path / "toys-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)

    def run(*args):
        command = [sys.executable, "-m", "chaoskit.cli.main", *args]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return run


@pytest.mark.requirement("C4")
def test_a_fault_from_outside_is_listed_run_judged_and_replayed(toys):
    assert "a kill, and everything is gone" in toys("list", "faults").stdout
    assert "wipe" in toys("run", "store-jsonl", "--fault", "nothing").stderr
    result = toys("run", "store-jsonl", "--fault", "wipe", "--jobs", "2", "--json", "-")
    data = json.loads(result.stdout)
    assert (result.returncode, data["verdict"], data["missed"]) == (1, "VIOLATED", 0), result.stderr
    assert data["claims"]["saves"] == {"wiped": "VIOLATED"}
    again = toys("replay", data["findings"][0]["repro"])
    assert again.returncode == 1, again.stderr
    assert "wiped" in again.stdout


@pytest.mark.requirement("C4")
def test_a_tier_and_a_claim_from_outside_are_a_column_and_a_row(toys):
    assert "the directory is emptied" in toys("list", "tiers").stdout
    assert "some session has something" in toys("list", "claims").stdout
    result = toys("certify", "./store.py:Store", "--tiers", "process,wiped", "--jobs", "1", "--json", "-")
    made = json.loads(result.stdout)
    assert result.returncode == 1, result.stderr
    assert set(made["coverage"]) == {"process", "wiped"}
    assert made["coverage"]["wiped"]["states"] == 6
    assert made["claims"]["there"]["wiped"] == "VIOLATED"
    assert made["claims"]["durable"] == {"process": "HOLDS", "wiped": "VIOLATED"}
    assert made["properties"]["toys"] == ["there"]
    assert "there" in made["promises"], "the adapter declares no promises, and the claim is a basic one"


def test_without_that_distribution_none_of_this_exists(chaoskit):
    assert "wiped" not in chaoskit("list", "tiers").stdout
    result = chaoskit("run", "store-jsonl", "--fault", "wipe")
    assert result.returncode == 2
    assert "no fault 'wipe'" in result.stderr
