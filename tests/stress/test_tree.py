"""The daemon and its tree of agents, on both stores, and what breaks it."""

import pytest

from chaoskit import registry
from tests.stress.helpers import assert_met_again

pytestmark = pytest.mark.stress

STORES = ["sqlite", "files"]
PARTS = {"wakes-without-parent": 2}  # how much of a sweep is enough: few crashes show this one
BROKEN = {mutant.name: mutant.breaks for mutant in registry.scenario("tree").mutants}


@pytest.mark.requirement("S5", "S6")
@pytest.mark.parametrize("store", STORES)
def test_killed_before_and_after_every_point(chaos, store):
    outcome = chaos.run("tree", store=store, seed=1, shard=(0, 2))
    outcome.assert_holds()
    assert outcome.result.missed == 0


@pytest.mark.requirement("S4", "S6")
@pytest.mark.parametrize("store", STORES)
def test_one_to_three_crashes_also_during_recovery(chaos, store):
    outcome = chaos.run("tree", store=store, plan="sample", runs=60)
    outcome.assert_holds()
    assert outcome.result.missed == 0


@pytest.mark.requirement("S3", "S6")
@pytest.mark.parametrize("profile", ["ext4", "posix"])
@pytest.mark.parametrize("store", STORES)
def test_nothing_acknowledged_is_lost_with_the_power(chaos, store, profile):
    outcome = chaos.run("tree", store=store, faults=("power",), profile=profile, runs=120)
    outcome.assert_holds()
    assert outcome.result.states >= 95


@pytest.mark.requirement("S5")
@pytest.mark.parametrize("store", STORES)
def test_crashes_at_system_calls(chaos, store):
    outcome = chaos.run("tree", store=store, points="syscalls", plan="sample", runs=40)
    outcome.assert_holds()
    assert outcome.result.missed == 0


@pytest.mark.requirement("C2", "S6")
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", BROKEN)
def test_each_mutant_is_caught_by_the_invariant_meant_for_it(chaos, name, store):
    caught = chaos.run("tree", mutant=name, store=store, seed=1, shard=(0, PARTS.get(name, 8)))
    caught.assert_violates(BROKEN[name])
    assert_met_again(caught.result.witnesses[0])
