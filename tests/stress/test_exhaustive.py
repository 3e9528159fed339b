"""Every recovery of every scenario crashed at every point: thousands of runs each, so not in every CI run."""

import pytest

from chaoskit import registry
from tests.stress import test_whole

pytestmark = [pytest.mark.exhaustive, pytest.mark.requirement("C1", "C2")]
CASES = [
    (name, store)
    for name, scenario in registry.scenarios().items()
    if not name.startswith("store-")
    if not scenario.generated  # test_whole
    for store in scenario.stores
]


@pytest.mark.parametrize(("name", "store"), CASES)
def test_no_recovery_breaks_anything(chaos, name, store):
    outcome = chaos.run(name, store=store)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0


@pytest.mark.parametrize("shard", range(8))
def test_killed_at_every_operation_and_half_way_through_every_write(chaos, shard):
    outcome = chaos.run("payments", points="syscalls", shard=(shard, 8), seed=1, depth=1)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0
    assert len(outcome.result.found.points) > 170
    assert {"process", "torn"} <= set(outcome.result.claims["exactly-once"])


@pytest.mark.parametrize("shard", range(6))
def test_every_error_of_the_disk(chaos, shard):
    outcome = chaos.run("payments", faults=("disk",), shard=(shard, 6), seed=1)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0


@pytest.mark.parametrize("mutant", test_whole.RARE)
def test_a_bug_of_the_agent_that_is_rare_is_found_again(chaos, mutant):
    faults = test_whole.MUTANTS[mutant].drill.faults
    outcome = test_whole.fuzz(chaos, mutant=mutant, faults=faults, seconds=900.0, until_violation=True)
    outcome.assert_violates("specification")
