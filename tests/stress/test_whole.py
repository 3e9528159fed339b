"""The whole agent under generated workloads: it is sound, and every bug that was found so is found again."""

import pytest
from chaoskit_scenarios.mutants import WHOLE_MUTANTS
from chaoskit_scenarios.whole.workload import workload

pytestmark = pytest.mark.stress
SEED = 11
MUTANTS = {mutant.name: mutant for mutant in WHOLE_MUTANTS}
# Found in minutes, not in seconds: see test_exhaustive.
RARE = ("forgets-equal-calls", "forgets-refusals", "repeats-cancelled-writes", "confirms-unsynced")


# By default a bug is found with SEED, within 400 runs.
OTHERWISE = {"parks-after-cancel": {"seed": 12, "runs": 600}}


def fuzz(chaos, scenario="agent", **options):
    return chaos.run(scenario, **{"plan": "sample", "seed": SEED, **options})


@pytest.mark.requirement("C1", "C2")
@pytest.mark.parametrize("store", ["sqlite", "files"])
@pytest.mark.parametrize(("scenario", "runs"), [("agent", 120), ("service", 30)])
def test_the_sound_agent_does_what_the_specification_allows(chaos, scenario, runs, store):
    outcome = fuzz(chaos, scenario, store=store, runs=runs)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0


@pytest.mark.parametrize("store", ["sqlite", "files"])
def test_also_if_the_disk_fails_or_the_power(chaos, store):
    fuzz(chaos, store=store, runs=60, faults=("kill", "disk", "power")).assert_holds()


@pytest.mark.parametrize("mutant", [name for name in MUTANTS if name not in RARE])
def test_each_bug_that_was_found_is_found_again(chaos, mutant):
    options = {"runs": 400, **OTHERWISE.get(mutant, {})}
    outcome = fuzz(chaos, mutant=mutant, until_violation=True, **options)
    outcome.assert_violates("specification")


def test_a_seed_is_one_workload():
    assert workload(3) == workload(3) != workload(4)
