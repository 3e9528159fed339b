"""The daemon and its tree of agents, on both stores, and its mutants."""

import subprocess
import sys
from contextlib import contextmanager

import pytest

from chaoskit import registry
from chaoskit.model import Schedule
from chaoskit.search.rig import open_rig
from chaoskit.settings import Settings
from tests.stress.helpers import assert_met_again, drill, sweep

pytestmark = pytest.mark.stress

STORES = ["sqlite", "files"]
MUTANTS = {mutant.name: mutant for mutant in registry.scenario("tree").mutants}


@pytest.mark.requirement("S5", "S6")
@pytest.mark.parametrize("store", STORES)
def test_killed_before_and_after_every_point(chaos, store):
    outcome = chaos.run("tree", store=store, seed=1, shard=(0, 4), **sweep(650))
    outcome.assert_holds()
    assert outcome.result.found.missed == 0


@pytest.mark.requirement("S4", "S6")
@pytest.mark.parametrize("store", STORES)
def test_one_to_three_crashes_also_during_recovery(chaos, store):
    outcome = chaos.run("tree", store=store, plan="sample", runs=60)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0


@pytest.mark.requirement("S3", "S6")
@pytest.mark.parametrize("profile", ["ext4", "posix"])
@pytest.mark.parametrize("store", STORES)
def test_nothing_acknowledged_is_lost_with_the_power(chaos, store, profile):
    outcome = chaos.run("tree", store=store, faults=("power",), profile=profile, runs=60)
    outcome.assert_holds()
    assert outcome.result.found.states >= 95


@pytest.mark.requirement("S5")
@pytest.mark.parametrize("store", STORES)
def test_crashes_at_system_calls(chaos, store):
    outcome = chaos.run("tree", store=store, points="syscalls", plan="sample", runs=40)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0


@pytest.mark.requirement("S3", "S6")
@pytest.mark.parametrize("store", STORES)
def test_errors_of_the_disk(chaos, store):
    chaos.run("tree", store=store, faults=("disk",), plan="sample", runs=50).assert_holds()


@pytest.mark.requirement("S7", "S8")
@pytest.mark.parametrize(("store", "agents"), [("sqlite", 10), ("files", 10), ("files", 30)])
def test_a_bounded_fuzz(chaos, store, agents):
    outcome = chaos.run("tree", store=store, plan="sample", agents=agents, runs=400 // agents)
    outcome.assert_holds()
    assert outcome.result.found.missed == 0


@contextmanager
def busy_core():
    """Another process keeps a core busy."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as somebody:
        try:
            yield
        finally:
            somebody.kill()


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("store", STORES)
def test_one_seed_gives_the_same_operations_50_times_also_beside_a_busy_core(store):
    settings = Settings(
        scenario="tests.stress.written:SCENARIO", store=store, agents=8, mutant="written", seed=5
    )
    seen = set()
    with open_rig(registry.resolve(settings)) as (bench, _), busy_core():
        workload = bench.workload()
        for _ in range(50):
            run, directory = bench.run(Schedule(), workload)
            written = (directory / "written").read_bytes()
            seen.add((written, str(run.traces), str(run.history)))
    assert len(seen) == 1
    assert written.count(b"\n") > 80


@pytest.mark.requirement("C2", "S6", "S7")
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_is_caught_by_the_invariant_meant_for_it(chaos, name, store):
    if MUTANTS[name].stores and store not in MUTANTS[name].stores:
        pytest.skip(f"{name} is not broken on {store}")
    is_of_disk = MUTANTS[name].drill.faults == ("disk",)
    fuzz = {**drill(MUTANTS[name]), "store": store, "runs": 300, "seed": 11 if is_of_disk else 1}
    caught = chaos.run(**fuzz, until_violation=True)
    if MUTANTS[name].breaks not in caught.findings:  # another invariant was faster
        caught = chaos.run(**{**fuzz, "runs": 150})
    caught.assert_violates(MUTANTS[name].breaks)
    assert_met_again(caught.result.witnesses[0], times=5)
