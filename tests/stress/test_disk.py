"""The reference agent at every disk operation; tests/stress/test_agents.py only samples them."""

import pytest

pytestmark = pytest.mark.stress


@pytest.mark.requirement("C1", "C2")
@pytest.mark.parametrize("shard", [0, 4])
def test_killed_at_operations_and_half_way_through_writes(chaos, shard):
    """A part of them, recoveries not included; `test_exhaustive` takes all."""
    outcome = chaos.run("payments", points="syscalls", shard=(shard, 8), seed=1, depth=1)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0
    assert len(outcome.result.found.points) > 170
    assert {"process", "torn"} <= set(outcome.result.claims["exactly-once"])


@pytest.mark.requirement("C2", "K9")
def test_errors_of_the_disk(chaos):
    """A part of them; `test_exhaustive` takes all."""
    outcome = chaos.run("payments", faults=("disk",), shard=(0, 12), seed=1)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0
    assert {"disk-error", "disk-full"} <= set(outcome.result.claims["exactly-once"])
