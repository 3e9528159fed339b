"""The fuzzer: new workloads, crashes at rarely hit places, and the same result from the same seed."""

import json
import random
from collections import Counter
from itertools import islice

import pytest

from chaoskit import registry, repro
from chaoskit.model import Firing, PersistPoint, Verdict
from chaoskit.search.campaign import run_campaign
from chaoskit.search.fuzz import LANES, ROUND, Hits, cases, draw, places
from chaoskit.settings import Settings
from tests.conftest import TARGETS

pytestmark = pytest.mark.requirement("S7")


def fuzz(name, **options):
    settings = Settings(scenario=f"{TARGETS}:{name}", plan="sample", **{"agents": 5, **options})
    return run_campaign(registry.resolve(settings))


def facts(result):
    left_out = ("seconds", "settings")
    return [getattr(result, f) for f in result.__struct_fields__ if f not in left_out]


# --- the plan


def test_every_case_has_its_own_seed_derived_from_the_campaigns():
    first, again, other = (list(islice(cases(s, None, Hits()), 200)) for s in (1, 1, 2))
    assert first == again
    assert len({case.seed for case in first + other}) == 400


@pytest.mark.parametrize("runs", [1, 2, 7, 100])
def test_there_are_as_many_runs_as_requested(runs):
    assert sum(case.crashes for case in cases(3, runs, Hits())) == runs


def test_the_bias_of_a_case_uses_only_finished_rounds_of_its_lane():
    hits = Hits()
    for number in range(3 * ROUND):
        hits.add(number, [f"round {number // ROUND}, lane {number % LANES}"])
    each = ROUND // LANES
    assert hits.known_to(2 * ROUND - 1) == {}
    assert hits.known_to(2 * ROUND + 3) == {"round 0, lane 3": each}
    assert hits.known_to(4 * ROUND - 1 - LANES) == {f"round {r}, lane {LANES - 1}": each for r in (0, 1)}


def test_a_place_is_a_points_name_its_predecessor_and_its_phase():
    names = ["write", "sync", "write"]
    firings = [Firing(PersistPoint(name, 1 + n), "before") for n, name in enumerate(names)]
    assert list(map(str, places(firings, 1, first=False))) == [
        "recovery: before write, after start",
        "later: before sync, after write",
        "later: before write, after sync",
    ]
    assert str(places(firings, 0, first=True)[0]) == "first life: before write, after start"


def drawn(bias, hits, recovery=0, times=4000):
    where = dict(enumerate(["often"] * 18 + ["seldom"] * 2))
    rng = random.Random(1)
    return [draw(rng, where, recovery, hits, bias) for _ in range(times)]


def test_uniform_bias_draws_every_operation_equally_often():
    counts = Counter(drawn("uniform", {"often": 1000}))
    assert set(counts) == set(range(20))
    assert max(counts.values()) < 1.5 * min(counts.values())


def test_bias_prefers_rarely_hit_places_but_still_hits_all_others():
    counts = Counter(number >= 18 for number in drawn("rare", {"often": 99}))
    assert counts[True] > counts[False] > 0


def test_bias_prefers_recovery():
    counts = Counter(number < 2 for number in drawn("rare", {}, recovery=2))
    assert counts[True] > 0.4 * sum(counts.values())


# --- campaigns


def test_the_number_of_jobs_does_not_change_what_is_found():
    one, two = (fuzz("BRITTLE_CROWD", runs=40, seed=3, jobs=jobs) for jobs in (1, 2))
    assert facts(one) == facts(two)
    assert one.verdict is Verdict.VIOLATED


def test_a_fuzz_counts_its_runs_and_places():
    result = fuzz("CROWD", runs=60)
    assert result.verdict is Verdict.HOLDS
    found = result.found
    assert (found.runs, found.fired, found.missed) == (60, 60, 0)
    assert len(found.places) > 20
    assert {"process", "recovery"} == set(result.claims["recovers"])


def test_a_fuzz_with_a_time_limit_runs_until_it_expires():
    assert Settings(scenario="x", plan="sample", agents=1).fuzz_runs == 100
    assert Settings(scenario="x", plan="sample", agents=1, seconds=1).fuzz_runs is None
    assert Settings(scenario="x", plan="sample", agents=1, seconds=1, runs=7).fuzz_runs == 7
    assert fuzz("CROWD", seconds=1e-9).verdict is Verdict.UNKNOWN


def test_a_sample_of_a_generated_scenario_is_a_fuzz_and_its_sweep_is_of_one_workload(chaoskit):
    result = fuzz("BRITTLE_GENERATED", agents=None, runs=40, seed=3, until_violation=True)
    (witness,) = result.witnesses
    assert repro.decode(witness.token).seed == witness.seed != 3
    again = chaoskit("replay", witness.token, "--trust")
    assert again.stdout.splitlines()[-1] == "recovers/failed: reproduced"
    assert "operations (--seed" in again.stdout
    swept = run_campaign(registry.resolve(Settings(scenario=f"{TARGETS}:GENERATED", seed=3)))
    assert swept.verdict is Verdict.HOLDS
    assert len(swept.found.points) == 4
    assert not swept.settings.fuzzes


def test_agents_also_sizes_the_workload_of_a_sweep():
    settings = Settings(scenario=f"{TARGETS}:CROWD", agents=4)
    assert len(run_campaign(registry.resolve(settings)).found.points) == 4


def test_a_fuzz_stops_at_the_first_violation_and_its_token_reproduces_it(chaoskit):
    args = ("--plan", "sample", "--agents", "7", "--until-violation", "--seed", "1", "--jobs", "1")
    result = chaoskit("run", f"{TARGETS}:BRITTLE_CROWD", *args, "--json", "found.json")
    assert result.returncode == 1
    token = result.stdout.splitlines()[-1].split()[-1]
    wanted = repro.decode(token)
    assert (wanted.agents, wanted.seed % 5, wanted.signature) == (7, 0, "recovers/failed")
    assert f"operations (--seed {wanted.seed})" in result.stdout
    assert f"life 0: {wanted.schedule}" in result.stdout  # the crash, after what came before it
    again = chaoskit("replay", token)
    assert again.returncode == 1
    assert f"--agents 7 --seed {wanted.seed}: {wanted.schedule}" in " ".join(again.stdout.split())
    assert again.stdout.splitlines()[-1] == "recovers/failed: reproduced"


def test_json_has_the_seed_and_the_operations_of_a_finding(chaoskit):
    args = ("--plan", "sample", "--agents", "3", "--until-violation", "--json", "-")
    data = json.loads(chaoskit("run", f"{TARGETS}:BRITTLE_CROWD", *args).stdout)
    (finding,) = data["findings"]
    assert finding["seed"] % 5 == 0
    assert finding["operations"][0].startswith('life 0: write letter="')
    assert (data["agents"], len(data["findings"])) == (3, 1)
    assert data["covered"] > 0


def test_a_workload_that_fails_without_any_fault_is_a_reproducible_finding(chaoskit):
    args = ("--plan", "sample", "--agents", "3", "--until-violation", "--seed", "1")
    result = chaoskit("run", f"{TARGETS}:LAME_CROWD", *args)
    assert result.returncode == 1
    assert "recovers/failed [undisturbed]" in result.stdout
    again = chaoskit("replay", result.stdout.splitlines()[-1].split()[-1])
    assert (again.returncode, again.stdout.splitlines()[-1]) == (1, "recovers/failed: reproduced")


def test_a_run_that_diverges_before_its_crash_is_a_doubt():
    result = fuzz("FICKLE_CROWD", runs=10)
    assert result.verdict is Verdict.UNKNOWN
    assert any("not repeatable" in str(doubt) for doubt in result.doubts)


def test_progress_shows_runs_coverage_and_time(chaoskit):
    told = []
    settings = Settings(scenario=f"{TARGETS}:CROWD", plan="sample", agents=3, runs=5)
    run_campaign(registry.resolve(settings), told.append)
    assert [(so_far.runs, so_far.planned) for so_far in told if so_far.runs][-1] == (5, 5)
    assert told[-1].covered > 0
    assert told[-1].seconds > 0
    assert "fuzz" in chaoskit("run", "--help").stdout
