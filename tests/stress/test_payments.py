"""The whole sweep of `payments`, from a warm process and from cold ones."""

import pytest

pytestmark = pytest.mark.stress


@pytest.mark.requirement("C1", "C2", "C5")
def test_the_whole_sweep_holds(chaos):
    outcome = chaos.run("payments", seed=1)
    outcome.assert_holds()
    assert len(outcome.result.found.points) >= 40
    assert outcome.result.found.fired == outcome.result.runs
    assert outcome.result.found.missed == 0


@pytest.mark.requirement("C1")
@pytest.mark.parametrize(("mutant", "shard"), [(None, 0), (None, 2), ("forgets-pending", 1)])
def test_cold_and_warm_starts_agree_at_every_point(chaos, mutant, shard):
    options = {"mutant": mutant, "shard": (shard, 4), "seed": 1, "depth": 1}
    warm = chaos.run("payments", **options).result
    cold = chaos.run("payments", **options, cold=True).result
    assert warm.found.table == cold.found.table
    assert [w.finding for w in warm.witnesses] == [w.finding for w in cold.witnesses]
