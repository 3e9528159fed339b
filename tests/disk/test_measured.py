"""What was measured on real file systems (docs/power-loss.json) against the models, without a real disk.

ci/real-disk --ways measures it again.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.disk.listings import listing
from tests.disk.positions import states
from tests.disk.traces import Disk
from tests.realdisk.ways import INITIAL, WAYS, outcome

MEASURED = json.loads((Path(__file__).parents[2] / "docs" / "power-loss.json").read_text())
SYSTEMS = ["ext4", "xfs", "btrfs"]


def generated(way, profile):
    """What the model leaves after the save has returned, and before."""
    disk = Disk(**INITIAL)
    way.save(disk)
    found = []
    for at in range(disk.at + 1):
        files = [listing(state.image) for state in states(disk.trace(), at, profile)]
        found.append({outcome(way, each.get(way.file), there=way.file in each) for each in files})
    return found[-1], set().union(*found[:-1])


def test_every_way_was_measured_on_every_file_system():
    assert list(MEASURED["systems"]) == SYSTEMS
    assert all(list(MEASURED["systems"][name]) == list(WAYS) for name in SYSTEMS)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", WAYS)
def test_the_model_generates_everything_that_was_observed(name, system):
    after, during = generated(WAYS[name], system)
    measured = MEASURED["systems"][system][name]
    assert set(measured["after"]) <= after
    assert set(measured["during"]) <= during
    assert sorted(after) == measured["after_in_model"]
    assert sorted(during) == measured["during_in_model"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_safe_ways_are_safe_and_the_others_are_not(system):
    safe = {name for name in WAYS if generated(WAYS[name], system)[0] == {"new"}}
    assert safe == {"overwrite-sync", "rewrite-sync", "sync-rename-dir", "append-sync", "create-sync"}
