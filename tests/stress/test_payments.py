"""The sweep of `payments` as tests: in shards, so that xdist can spread it over the cores."""

import pytest

from chaoskit import registry, repro
from chaoskit.campaign import replay
from chaoskit.settings import Settings
from tests.stress.test_disk import POWER_ONLY

pytestmark = pytest.mark.stress
SHARDS = 6
MUTANTS = {
    mutant.name: mutant.breaks
    for mutant in registry.scenario("payments").mutants
    if mutant.name not in POWER_ONLY
}


@pytest.mark.requirement("C1", "C5")
@pytest.mark.parametrize("shard", range(SHARDS))
def test_killed_at_every_point(chaos, shard):
    result = chaos.run("payments", shard=(shard, SHARDS), seed=shard).result
    assert result.missed == 0
    assert result.fired == result.runs > 20


@pytest.mark.requirement("C1", "C2")
def test_the_whole_sweep_holds(chaos):
    outcome = chaos.run("payments")
    outcome.assert_holds()
    assert outcome.result.points >= 40
    assert outcome.result.missed == 0


@pytest.mark.requirement("C1", "C2")
def test_one_to_three_crashes_also_during_recovery(chaos):
    outcome = chaos.run("payments", plan="sample", runs=120)
    outcome.assert_holds()
    assert outcome.result.missed == 0
    assert {"run.interrupt", "messages.rollback"} <= set(outcome.result.table)


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_is_caught_by_the_invariant_meant_for_it(chaos, name):
    chaos.run("payments", mutant=name).assert_violates(MUTANTS[name])


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
