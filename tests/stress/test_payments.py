"""The whole sweep of `payments`, and that what it finds can be met again."""

import pytest

from chaoskit import repro
from chaoskit.campaign import replay
from chaoskit.settings import Settings

pytestmark = pytest.mark.stress


@pytest.mark.requirement("C1", "C2", "C5")
def test_the_whole_sweep_holds(chaos):
    outcome = chaos.run("payments", seed=1)
    outcome.assert_holds()
    assert outcome.result.points >= 40
    assert outcome.result.fired == outcome.result.runs
    assert outcome.result.missed == 0


@pytest.mark.requirement("C3")
def test_twenty_replays_give_twenty_times_the_same_finding(chaos):
    witness = chaos.run("payments", mutant="forgets-pending").result.witnesses[0]
    wanted = repro.decode(witness.token)
    settings = Settings(scenario=wanted.scenario, seed=wanted.seed, mutant=wanted.mutant)
    for _ in range(20):
        again = replay(settings, wanted.schedule).witnesses
        assert [w.finding for w in again if w.finding.signature == wanted.signature] == [
            witness.finding
        ]


@pytest.mark.requirement("C1")
@pytest.mark.parametrize("mutant", [None, "forgets-pending"])
def test_cold_and_warm_starts_agree_at_every_point(chaos, mutant):
    shard = (0, 5)
    warm = chaos.run("payments", mutant=mutant, shard=shard, seed=1).result
    cold = chaos.run("payments", mutant=mutant, shard=shard, seed=1, cold=True).result
    assert warm.table == cold.table
    assert [w.finding for w in warm.witnesses] == [w.finding for w in cold.witnesses]
