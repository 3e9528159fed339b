"""Certificates of stores with known bugs, and of two real libraries."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chaoskit.certify import certificate as certificates
from chaoskit.certify.certification import certify, settings_for
from chaoskit.model import Verdict
from chaoskit.run.environment import NoEnvironment
from chaoskit.search.rig import CannotTest
from chaoskit.search.tiers import default_tiers
from chaoskit.show import pages

pytestmark = [pytest.mark.stress, pytest.mark.requirement("C4")]
CONTROLS = Path(__file__).parent.parent / "targets" / "controls.py"
HERE = Path(__file__).parents[2]


def certified(target, tiers=(), **options):
    """With the library in an environment of its own; skipped where it cannot be installed."""
    try:
        return certify(settings_for(target, **{"runs": 150, "seed": 1, **options}), tiers)
    except NoEnvironment as error:
        pytest.skip(str(error))


def broken(made):
    """claim -> tiers in which it is violated"""
    return {
        claim: [tier for tier in made.tiers if made.cell(claim, tier) is Verdict.VIOLATED]
        for claim in made.claims
        if Verdict.VIOLATED in made.claims[claim].values()
    }


@pytest.mark.parametrize("name", ["Wal", "Careful"])
def test_a_sound_store_is_not_accused(name):
    made = certified(f"{CONTROLS}:{name}", runs=300)
    assert (broken(made), made.unknown) == ({"fenced": ["zombie"]}, ())  # last writer wins, in both
    assert made.verdict is Verdict.HOLDS
    assert set(made.measured()) >= {"durable", "atomic", "loadable", "continues", "isolated", "fenced"}
    covered = {tier: part.states for tier, part in made.coverage.items()}
    assert all(covered[tier] for tier in default_tiers() if tier not in ("recovery", "first-start")), covered
    assert made.coverage["process"].complete
    assert all(part.missed == 0 for part in made.coverage.values())


def test_what_only_a_loss_of_power_takes_back():
    made = certified(f"{CONTROLS}:Normal")
    assert broken(made)["durable"] == ["power-ext4", "power-posix"]
    assert made.verdict is Verdict.VIOLATED
    assert made.settings == {"synchronous": 1}
    (promised, *_) = made.broken
    assert promised.hint, "a loss of power names the sync that was missing"


def test_a_file_written_in_place_is_lost_to_any_kill():
    found = broken(certified(f"{CONTROLS}:Files", tiers=("process", "torn")))
    assert {"process", "torn"} <= set(found["loadable"])


def test_a_store_that_refuses_every_save_gets_no_certificate():
    with pytest.raises(CannotTest, match="save 1 failed without any fault: out of order"):
        certified(f"{CONTROLS}:Refuses")


def test_a_transaction_that_tasks_share():
    kills = ("process", "torn")
    assert broken(certified(f"{CONTROLS}:Shared", tiers=kills)) == {}
    made = certified(f"{CONTROLS}:SharedByTasks", tiers=kills)
    assert "process" in broken(made)["consistent"]
    assert made.settings["callers"] == "tasks"


def test_a_store_that_only_its_first_thread_may_use():
    with pytest.raises(
        CannotTest, match="save 1 failed without any fault: SQLite objects created in a thread"
    ):
        certified(f"{CONTROLS}:Bound")


def test_an_append_that_is_not_synced():
    found = broken(certified(f"{CONTROLS}:Lines", tiers=("process", "torn", "power-ext4")))
    assert "power-ext4" in found["durable"]
    assert "torn" in found["loadable"]  # half a line


def test_a_finding_is_met_again_from_its_token_in_a_fresh_process():
    made = certified(f"{CONTROLS}:Files", tiers=("torn",))
    first = made.findings[0]
    command = [sys.executable, "-m", "chaoskit.cli.main", "replay", first.repro, "--trust"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert f"{first.claim}/{first.kind}: reproduced" in done.stdout


@pytest.mark.timeout(240)
def test_langgraph_on_sqlite_keeps_what_it_promises():
    # Whole, it is some thousand crashes. The limit is only reached on a slow or busy machine: each tier needs
    # at least 20 crashes for a verdict.
    made = certified("langgraph-sqlite", seconds=180, accept_incomplete=True)
    assert sum(part.states for part in made.coverage.values()) > 100
    assert broken(made) == {"fenced": ["zombie"]}
    assert made.verdict is Verdict.HOLDS
    assert made.suite["verdict"].startswith("FULL")


@pytest.mark.parametrize("name", ["langgraph-sqlite-uncommitted", "langgraph-memory"])
def test_a_saver_that_loses_data_without_a_crash_cannot_be_tested(name):
    with pytest.raises(CannotTest, match="durable/lost without any crash, after a clean restart"):
        certified(name, tiers=("process",))


def test_a_store_on_files_of_somebody_else():
    made = certified("strands-file", tiers=("process", "torn", "power-ext4"), runs=60, jobs=2)
    assert made.coverage["process"].states > 100
    assert made.coverage["process"].complete
    assert "-" not in {made.sign("durable", tier) for tier in made.tiers}


def test_the_guide_followed_to_the_letter(tmp_path):
    guide = (HERE / "docs" / "adapters.md").read_text()
    adapter = re.search(r"```python\n(# /// script.*?)```", guide, re.DOTALL)[1]
    (tmp_path / "shelf.py").write_text(adapter)
    files = {kind: tmp_path / f"c.{kind}" for kind in ("json", "html", "junit", "markdown", "badge")}
    command = [
        sys.executable,
        "-m",
        "chaoskit.cli.main",
        "certify",
        "./shelf.py:Shelf",
        "--runs",
        "50",
        "--tiers",
        "process,torn",
    ]
    options = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert "verdict: " in done.stdout
    made = certificates.load(files["json"])
    assert made.coverage["process"].states > 50
    assert files["html"].read_text() == pages.html(made)
    assert json.loads(files["badge"].read_text())["label"] == "chaoskit"
    assert all(path.stat().st_size for path in files.values())


def test_in_a_test_of_ones_own(chaos):
    result = chaos.certify(f"{CONTROLS}:Careful", claims=["durable", "loadable"], tiers=["process", "torn"])
    result.assert_holds()
    with pytest.raises(pytest.fail.Exception, match="prefix was not measured"):
        chaos.certify(f"{CONTROLS}:Careful", claims=["prefix"], tiers=["process"]).assert_holds()
