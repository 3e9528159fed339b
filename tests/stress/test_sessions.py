"""Waits, tokens, boots and HTTP: the services around the agent, on both stores, and their mutants."""

import pytest

from chaoskit import registry
from tests.stress.helpers import assert_met_again, caught, drill

pytestmark = pytest.mark.stress

SCENARIOS = ["waiting", "interrupted", "http"]
STORES = ["sqlite", "files"]
MUTANTS = {mutant.name: mutant for mutant in registry.scenario("waiting").mutants}
# Of its points, a part is enough to catch every mutant.
PARTS = {
    "waiting": {"shard": (0, 8), "depth": 1},
    "interrupted": {"shard": (0, 6), "depth": 1},
    "http": {"shard": (0, 8), "depth": 1},
}
needs = pytest.mark.requirement


@needs("O2", "O3", "O5", "O7")
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(("name", "parts"), [("waiting", 8), ("interrupted", 2), ("http", 6)])
def test_killed_before_and_after_every_point(chaos, name, parts, store):
    outcome = chaos.run(name, store=store, shard=(0, parts), depth=1)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0


@needs("O3", "O4")
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_one_to_three_crashes_also_during_recovery(chaos, name, store):
    outcome = chaos.run(name, store=store, plan="sample", runs=25)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0


@needs("O1", "O5")
@pytest.mark.parametrize("profile", ["ext4", "posix"])
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_acknowledged_is_lost_with_the_power(chaos, name, store, profile):
    outcome = chaos.run(name, store=store, faults=("power",), profile=profile, runs=60)
    outcome.assert_holds()
    assert outcome.result.found.states >= 95


@needs("O1")
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_crashes_at_system_calls(chaos, name, store):
    outcome = chaos.run(name, store=store, points="syscalls", plan="sample", runs=25)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0


@needs("C2")
@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_is_caught_by_the_invariant_meant_for_it(chaos, name):
    options = drill(MUTANTS[name])
    part = {"runs": 150} if options["faults"] == ("power",) else PARTS[options["scenario"]]
    found = caught(chaos, MUTANTS[name].breaks, **options, **part)
    assert_met_again(found.result.witnesses[0])
