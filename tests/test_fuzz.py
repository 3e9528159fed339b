"""The fuzzer: new workloads, crashes at rarely hit places, and the same result from the same seed."""

import json
import random
from collections import Counter
from itertools import islice

import pytest

from chaoskit import __version__, registry, repro
from chaoskit.faults.compound import Compound
from chaoskit.faults.disk import DiskError
from chaoskit.faults.kill import Kill
from chaoskit.faults.power import PowerLoss
from chaoskit.model import (
    Ack,
    Crashed,
    Effect,
    Ended,
    Firing,
    Info,
    Invoke,
    Ok,
    PersistPoint,
    Repro,
    Schedule,
    Struck,
    Verdict,
)
from chaoskit.search.budget import Budget
from chaoskit.search.campaign import Search, prepared, run_campaign
from chaoskit.search.facts import facts as facts_of
from chaoskit.search.fuzz import (
    LANES,
    MIXED_DEPTHS,
    ROUND,
    Fuzzer,
    Hits,
    cases,
    draw,
    operations_under_way,
    places,
)
from chaoskit.settings import Settings
from tests.conftest import TARGETS

ALL = ("GENERATED", "SHOPPING")
KILL = Kill(PersistPoint("write a", 1, 7), "before")
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
        "recovery: kill before write, after start",
        "later: kill before sync, after write",
        "later: kill before write, after sync",
    ]
    assert str(places(firings, 0, first=True)[0]) == "first life: kill before write, after start"


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


# --- several kinds of faults


def schedules(name, **options):
    """The schedules of a campaign, in order."""
    settings = Settings(scenario=f"{TARGETS}:{name}", plan="sample", **{"jobs": 1, **options})
    resolved, seen = registry.resolve(settings), []
    with prepared(resolved, Search(Budget(None, 1)), record=False) as ready:
        fuzzer = Fuzzer(ready.rig, resolved.settings)
        for case in cases(settings.seed, settings.runs, Hits(), depths=MIXED_DEPTHS):
            outcomes = fuzzer.examine(case)
            assert all(o.judgement.verdict is Verdict.HOLDS for o in outcomes), outcomes
            seen += [outcome.schedule for outcome in outcomes if outcome.schedule.faults]
    return seen


def kinds_of(fault):
    return tuple(type(part).__name__ for part in fault.parts)


@pytest.mark.requirement("S3", "S5")
def test_a_fuzz_mixes_all_requested_faults_in_one_chain_and_every_one_fires():
    seen = schedules("TOUGHENED", faults=("kill", "disk", "power"), runs=150, seed=1)
    chains = {tuple(map(kinds_of, schedule.faults)) for schedule in seen}
    assert {(("Kill",),), (("DiskError",),), (("PowerLoss",),)} <= chains
    assert (("Kill",), ("PowerLoss",)) in chains
    both = {kinds for chain in chains for kinds in chain if len(kinds) == 2}
    assert both == {("DiskError", "Kill"), ("DiskError", "PowerLoss")}


def test_a_fuzz_of_kills_alone_uses_named_points():
    assert all(fault.point.op is None for s in schedules("GENERATED", runs=10) for fault in s.faults)


@pytest.mark.requirement("S3")
def test_a_call_of_a_life_is_refused_or_its_reply_is_lost_and_a_kill_may_follow():
    seen = schedules("SHOPPING", faults=("kill", "world"), runs=80, seed=1)
    parts = {kinds_of(fault) for schedule in seen for fault in schedule.faults}
    assert parts == {("Kill",), ("WorldError",), ("WorldError", "Kill")}
    names = {fault.parts[0].name for schedule in seen for fault in schedule.faults}
    assert {"call refused", "reply lost"} <= names


@pytest.mark.requirement("C1")
def test_a_sweep_of_world_errors_strikes_each_call_in_each_way():
    settings = Settings(scenario=f"{TARGETS}:SHOPPING", faults=("world",), seed=2)
    result = run_campaign(registry.resolve(settings))
    assert result.verdict is Verdict.HOLDS
    assert (result.runs, result.found.fired) == (8, 8)
    assert result.found.places == {
        f"{how} at call shop.buy#{nth}" for nth in (1, 2, 3, 4) for how in ("call refused", "reply lost")
    }


def test_world_errors_are_for_scenarios_that_promise_to_survive_them(chaoskit):
    refused = chaoskit("run", f"{TARGETS}:GENERATED", "--fault", "world")
    assert refused.returncode == 2
    assert "does not support --fault world" in refused.stderr
    of = {name: registry.resolve(Settings(scenario=f"{TARGETS}:{name}", faults=("all",))) for name in ALL}
    assert {name: set(each.settings.faults) for name, each in of.items()} == {
        "GENERATED": {"kill", "disk", "power"},
        "SHOPPING": {"kill", "disk", "power", "world"},
    }


def test_a_compound_fault_that_fires_only_in_part_proves_nothing(rig):
    first = DiskError(PersistPoint("create a", 1, 0), "EIO")
    late = Compound(first, Kill(PersistPoint("write a", 1, 999), "before"))
    bench = rig("TOUGHENED", faults=("disk",))
    run, _ = bench.run(Schedule((late,)), bench.workload())
    assert [doubt.kind for doubt in run.doubts] == ["missed-fault"]
    soon = Compound(first, Kill(PersistPoint("write a", 1, 4), "half"))
    run, _ = bench.run(Schedule((soon,)), bench.workload())
    assert (run.fired, run.doubts) == (1, ())
    order = [type(e) for e in run.history.events if isinstance(e, Struck | Crashed)]
    assert order == [Struck, Crashed]


def test_a_crash_can_follow_a_failed_sync_at_every_operation_of_the_target(rig):
    """What a failed sync has lost is restored by writes of the interposer, which nothing can strike."""
    first = DiskError(PersistPoint("fsync a", 1, 2), "lost", lasting=True)
    bench = rig("TOUGHENED", faults=("disk",))
    workload = bench.workload()
    run, _ = bench.run(Schedule((first,)), workload)
    later = {f.point for f in run.traces[0] if f.when == "before" and (f.point.op or 0) > 2}
    assert len(later) > 8
    for point in later:
        run, _ = bench.run(Schedule((Compound(first, Kill(point, "before")),)), workload)
        assert run.doubts == (), point


def test_a_compound_fault_has_a_token_and_the_tier_of_a_second_crash():
    first = DiskError(PersistPoint("create a", 1, 0), "EIO")
    for then, tier in ((KILL, "recovery"), (PowerLoss(KILL.point, "ext4", "nothing"), "power-ext4")):
        schedule = Schedule((KILL, Compound(first, then)))
        wanted = Repro(
            version=__version__,
            scenario="x",
            mutant=None,
            seed=1,
            schedule=schedule,
            signature="recovers/failed",
        )
        assert repro.decode(repro.encode(wanted)) == wanted
        assert Schedule((Compound(first, then),)).tier == tier
    assert str(Compound(first, KILL)) == "EIO at create a#1 and, in the same life, kill before write a#1"


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("name", ["TOUGHENED", "SHOPPING"])
def test_the_number_of_jobs_does_not_change_a_mixed_fuzz(name):
    one, two = (fuzz(name, agents=None, faults=("all",), runs=90, seed=5, jobs=jobs) for jobs in (1, 2))
    assert facts(one) == facts(two)
    assert one.found.missed == 0


# --- coverage


def test_a_place_names_the_operation_under_way():
    events = [
        Invoke(0, 0, 1, "one", {}),
        Invoke(0, 1, 2, "two", {}),
        Ok(0, 2, 2),
        Ok(0, 3, 1),
        Invoke(1, 0, 1, "of another life", {}),
    ]
    firings = [Firing(PersistPoint("write", nth), "before") for nth in (1, 2, 3, 4)]
    assert operations_under_way(events, 0, firings) == ["one", "two", "one", ""]


def test_a_workload_that_reached_new_places_is_used_again_with_other_crashes():
    hits = Hits()
    for number in range(4 * ROUND):
        hits.add(number, ["new"] if number == 3 + LANES else ["old"], seed=number)
    late = 6 * ROUND
    assert hits.kept_for(late + 3) == [3, 3 + LANES]  # the first time that the lane saw each place
    assert hits.kept_for(late + 5) == [5]
    found = [c for c in islice(cases(1, None, hits), late, late + 40 * LANES) if c.number % LANES == 3]
    again = [case for case in found if case.seed in (3, 3 + LANES)]
    assert 4 <= len(again) <= 18
    assert len({case.draws for case in found}) == len(found)
    assert not [c for c in islice(cases(1, None, hits, "uniform"), late, late + 200) if c.seed < 100]


def test_the_growth_of_coverage_is_sampled_and_the_rarest_places_are_shown(chaoskit):
    options = ("--plan", "sample", "--runs", "60", "--jobs", "1", "-v")
    printed = chaoskit("run", f"{TARGETS}:GENERATED", *options).stdout
    assert "rarest places, of " in printed
    assert "during write" in printed
    assert "of them first in the second half" in printed
    result = fuzz("GENERATED", agents=None, runs=60)
    assert result.growth[-1] == (60, len(result.found.places))
    assert [runs for runs, _ in result.growth][:3] == [1, 2, 3]
    assert list(result.growth) == sorted(result.growth)
    assert sum(result.found.times.values()) == 60


@pytest.mark.parametrize(("runs", "verdict"), [(220, Verdict.UNKNOWN), (60, Verdict.HOLDS)])
def test_what_a_campaign_must_reach_and_did_not_makes_a_long_fuzz_unknown(runs, verdict):
    result = fuzz("GENERATED", agents=None, runs=runs)
    assert result.verdict is verdict
    assert result.unreached == ("probe:never",)
    doubts = [str(doubt) for doubt in result.doubts]
    assert doubts == ["required of every campaign, and not reached in 220 runs: probe:never"] * (runs > 200)


def test_what_was_reached_once_is_reached():
    result = fuzz("SHOPPING", agents=None, faults=("kill", "world"), runs=60)
    assert result.unreached == ()
    assert result.found.reached == {"probe:lost", "ok:buy", "struck:world"}


def test_facts_of_a_history():
    events = [
        Invoke(0, 0, 1, "buy", {}),
        Effect(0, 0, "shop", "pay", {}, None, applied=True),
        Ack(0, 0, "bought", {}),
        Crashed(0, 0, KILL),
        Info(0, 1),
        Ended(0, "crashed"),
    ]
    expected = {"invoke:buy", "effect:shop.pay", "ack:bought", "crashed:kill", "info:buy", "ended:crashed"}
    assert set(facts_of(events)) == expected


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
