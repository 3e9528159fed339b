"""The reference agent on files: the same crash tests as on SQLite, and the mutants of this store."""

import pytest

from chaoskit import registry
from tests.stress.helpers import caught, drill, limit
from tests.stress.test_agents import SCENARIOS

pytestmark = [pytest.mark.stress, pytest.mark.requirement("O1")]

ON_FILES = [name for name in SCENARIOS if "files" in registry.scenario(name).stores]
MUTANTS = {
    mutant.name: mutant
    for mutant in registry.scenario("payments").mutants
    if not mutant.stores or "files" in mutant.stores
}
POWER_ONLY = [name for name, mutant in MUTANTS.items() if mutant.drill.faults == ("power",)]
# Here the log is also the journal: a lost line shows first as a lost decision.
ELSEWHERE = {"acknowledges-before-sync": "model-calls"}


def test_only_the_upgrade_of_a_database_needs_one():
    assert set(SCENARIOS) - set(ON_FILES) == {"migration"}


@pytest.mark.parametrize("name", ON_FILES)
def test_killed_before_and_after_every_point(chaos, name):
    outcome = chaos.run(name, store="files", shard=(0, 2), depth=1)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0


@pytest.mark.parametrize("name", ON_FILES)
def test_one_to_three_crashes_also_during_recovery(chaos, name):
    outcome = chaos.run(name, store="files", plan="sample", runs=50)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0


@pytest.mark.parametrize("profile", ["ext4", "posix"])
@pytest.mark.parametrize("name", ON_FILES)
def test_nothing_acknowledged_is_lost_with_the_power(chaos, name, profile):
    outcome = chaos.run(name, store="files", faults=("power",), profile=profile, runs=70)
    outcome.assert_holds()
    assert (
        outcome.result.found.states >= 95
    )  # one file, synced after each line: some scenarios have no more states on ext4


@pytest.mark.parametrize("name", ON_FILES)
def test_crashes_at_system_calls(chaos, name):
    outcome = chaos.run(name, store="files", points="syscalls", plan="sample", runs=50)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0


@pytest.mark.requirement("K9")
def test_no_error_of_the_disk_makes_it_claim_what_is_not_durable(chaos):
    outcome = chaos.run("payments", store="files", faults=("disk",), plan="sample", runs=60)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0


# What differs between the stores: how they write, roll back, read again and open.
HERE = [
    "keeps-partial-turn",
    "ignores-completed",
    "asks-again",
    "counts-usage-twice",
    "version-by-turn",
    "buffered-log",
    "reuses-seq",
    "refuses-torn-line",
    "cuts-the-log",
    "drops-arguments",
    "forgets-plan",
]


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("name", HERE)
def test_each_mutant_is_caught_by_the_invariant_meant_for_it(chaos, name):
    options = {**drill(MUTANTS[name]), "store": "files"}
    caught(chaos, MUTANTS[name].breaks, **options, **limit(options))


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("name", POWER_ONLY)
def test_what_only_a_loss_of_power_can_see(chaos, name):
    chaos.run("payments", store="files", mutant=name, seed=1, depth=1).assert_holds()
    found = chaos.run(**{**drill(MUTANTS[name]), "store": "files"}, runs=250)
    found.assert_violates(ELSEWHERE.get(name, MUTANTS[name].breaks))
