"""The reference agent at every disk operation; tests/stress/test_agents.py only samples them."""

import pytest

from tests.stress.helpers import sweep

pytestmark = pytest.mark.stress


@pytest.mark.requirement("C1", "C2")
@pytest.mark.parametrize("shard", [0, 2])
def test_killed_at_every_operation_and_half_way_through_every_write(chaos, shard):
    outcome = chaos.run("payments", points="syscalls", shard=(shard, 4), seed=1, **sweep(900))
    outcome.assert_holds()
    assert outcome.result.found.missed == 0
    assert len(outcome.result.found.points) > 350
    assert {"process", "torn", "recovery"} <= set(outcome.result.claims["exactly-once"])


@pytest.mark.requirement("C2", "K9")
@pytest.mark.parametrize("shard", [0, 3])
def test_every_error_of_the_disk(chaos, shard):
    outcome = chaos.run("payments", faults=("disk",), shard=(shard, 6), seed=1)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0
    assert {"disk-error", "disk-full"} <= set(outcome.result.claims["exactly-once"])
