"""The reference agent's scenarios: every point, samples, the disk; and every mutant."""

import pytest

from chaoskit import registry
from tests.stress.helpers import assert_met_again, caught, drill, limit, sweep

pytestmark = pytest.mark.stress

SCENARIOS = [
    "payments",
    "retry",
    "cadence-call",
    "cadence-periodic",
    "hooks",
    "fickle",
    "parallel",
    "migration",
]
# Those of the other store are tried in test_files.
MUTANTS = {m.name: m for m in registry.scenario("payments").mutants if m.stores != ("files",)}
POWER_ONLY = [name for name, mutant in MUTANTS.items() if mutant.drill.faults == ("power",)]


@pytest.mark.requirement("C1", "K2", "K3", "K4", "K6", "K7", "K8", "H4", "H5", "H6", "H8")
@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_before_and_after_every_point(chaos, name):
    outcome = chaos.run(name, **sweep(250))
    outcome.assert_holds()
    assert outcome.result.found.missed == 0


@pytest.mark.requirement("C1", "K5", "H8")
@pytest.mark.parametrize("name", SCENARIOS)
def test_one_to_three_crashes_also_during_recovery(chaos, name):
    outcome = chaos.run(name, plan="sample", runs=60)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0


@pytest.mark.requirement("C2", "K9")
@pytest.mark.parametrize("profile", ["ext4", "posix"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_acknowledged_is_lost_with_the_power(chaos, name, profile):
    outcome = chaos.run(name, faults=("power",), profile=profile, runs=70)
    outcome.assert_holds()
    assert outcome.result.found.states >= 120


@pytest.mark.parametrize("name", SCENARIOS)
def test_crashes_at_system_calls(chaos, name):
    outcome = chaos.run(name, points="syscalls", plan="sample", runs=60)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0


@pytest.mark.requirement("K9")
@pytest.mark.parametrize("name", ["payments", "retry", "parallel"])
def test_no_error_of_the_disk_makes_it_claim_what_is_not_durable(chaos, name):
    outcome = chaos.run(name, faults=("disk",), plan="sample", runs=60)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0


@pytest.mark.requirement("C2", "K4", "K6", "K7", "K8", "H5", "H6")
@pytest.mark.parametrize("name", [name for name in MUTANTS if name not in POWER_ONLY])
def test_each_mutant_is_caught_by_the_invariant_meant_for_it(chaos, name):
    options = drill(MUTANTS[name])
    found = caught(chaos, MUTANTS[name].breaks, **options, **limit(options))
    assert_met_again(found.result.witnesses[0])


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("name", POWER_ONLY)
def test_what_only_a_loss_of_power_can_see(chaos, name):
    chaos.run("payments", mutant=name, seed=1, depth=1).assert_holds()
    found = chaos.run(**drill(MUTANTS[name]), runs=250)
    found.assert_violates(MUTANTS[name].breaks)
    hints = [line for witness in found.result.witnesses for line in str(witness.hint).splitlines()]
    assert any(line.startswith("missing: fsync of") for line in hints)
    assert_met_again(found.result.witnesses[0])
