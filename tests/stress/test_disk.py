"""The reference agent under crashes at system calls, loss of power and errors of the disk."""

import pytest

pytestmark = pytest.mark.stress

POWER_ONLY = {
    "unsynced-log": "ext4",
    "acknowledges-before-sync": "ext4",
    "unsynced-directory": "posix",
    "synchronous-normal": "ext4",
}


@pytest.mark.requirement("C1", "C2")
@pytest.mark.parametrize("shard", range(4))
def test_killed_at_every_operation_and_half_way_through_every_write(chaos, shard):
    outcome = chaos.run("payments", points="syscalls", shard=(shard, 4), seed=1)
    outcome.assert_holds()
    assert outcome.result.missed == 0
    assert outcome.result.points > 350
    assert {"process", "torn", "recovery"} <= set(outcome.result.claims["exactly-once"])


def test_one_to_three_crashes_at_system_calls(chaos):
    outcome = chaos.run("payments", points="syscalls", plan="sample", runs=150)
    outcome.assert_holds()
    assert outcome.result.missed == 0


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("profile", ["ext4", "posix"])
def test_nothing_acknowledged_is_lost_with_the_power(chaos, profile):
    outcome = chaos.run("payments", faults=("power",), profile=profile, runs=1500)
    outcome.assert_holds()
    assert outcome.result.states >= 1000
    assert outcome.result.confirmed > 10


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("shard", range(3))
def test_no_error_of_the_disk_makes_it_claim_what_is_not_durable(chaos, shard):
    outcome = chaos.run("payments", faults=("disk",), shard=(shard, 3), seed=1)
    outcome.assert_holds()
    assert outcome.result.missed == 0
    assert {"disk-error", "disk-full"} <= set(outcome.result.claims["exactly-once"])


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("name", POWER_ONLY)
def test_what_only_a_loss_of_power_can_see(chaos, name):
    chaos.run("payments", mutant=name, seed=1).assert_holds()
    caught = chaos.run(
        "payments", mutant=name, faults=("power",), profile=POWER_ONLY[name], runs=400, seed=1
    )
    assert caught.verdict == "VIOLATED"
    witness = caught.result.witnesses[0]
    assert any(
        line.startswith("missing: fsync of") for w in caught.result.witnesses for line in w.hint
    )
    assert witness.schedule.faults[0].profile == POWER_ONLY[name]
