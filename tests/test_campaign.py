import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from chaoskit import registry
from chaoskit.model import Verdict
from chaoskit.search.campaign import run_campaign
from chaoskit.search.executors import one_each, stay_on
from chaoskit.search.progress import SoFar
from chaoskit.search.rig import CannotTest
from chaoskit.settings import Settings
from chaoskit.story import tell
from tests.conftest import TARGETS


def campaign(name, **options):
    return run_campaign(registry.resolve(Settings(scenario=f"{TARGETS}:{name}", **options)))


def without_time(result):
    return [
        getattr(result, field) for field in result.__struct_fields__ if field not in ("seconds", "settings")
    ]


@pytest.mark.requirement("C1")
def test_a_sweep_counts_every_point_and_every_fault():
    result = campaign("COUNTING")
    found = result.found
    assert (result.verdict, len(found.points), found.runs) == (Verdict.HOLDS, 3, 6)
    assert (found.fired, found.missed) == (6, 0)
    tallies = found.table["append"]
    assert {fault: tally.fired for fault, tally in tallies.items()} == {"kill before": 3, "kill after": 3}


def test_recoveries_that_pass_the_same_points_from_another_state_are_crashed_too():
    """The recovery of `mail` is broken; that of `pay` passes points with the same names, and comes first."""
    result = campaign("SETTLING")
    assert result.verdict is Verdict.VIOLATED
    assert {len(witness.schedule.faults) for witness in result.witnesses} == {2}


def test_a_recovery_is_crashed_although_the_target_never_reports_that_it_has_recovered():
    result = campaign("UNREPORTED")
    assert [witness.tier for witness in result.witnesses] == ["recovery"]


def test_a_sweep_of_depth_one_crashes_no_recovery():
    result = campaign("SETTLING", depth=1)
    assert (result.verdict, set(result.found.tiers)) == (Verdict.HOLDS, {"process"})


def test_a_sweep_that_is_limited_in_its_runs_is_incomplete():
    result = campaign("SETTLING", runs=13)
    assert (result.runs, result.verdict) == (13, Verdict.UNKNOWN)
    assert any("the sweep is incomplete" in str(doubt) for doubt in result.doubts)
    assert campaign("SETTLING", runs=13, accept_incomplete=True).verdict is Verdict.HOLDS


def test_the_number_of_jobs_does_not_change_the_result():
    one = campaign("COUNTING", plan="sample", runs=12, seed=3)
    two = campaign("COUNTING", plan="sample", runs=12, seed=3, jobs=2)
    assert without_time(one) == without_time(two)


def test_shards_are_parts_of_the_whole():
    parts = [campaign("COUNTING", shard=(number, 4)).runs for number in range(4)]
    assert sum(parts) == 6


def test_a_shard_without_a_schedule_is_unknown_not_a_pass():
    result = campaign("COUNTING", shard=(9, 10))
    assert (result.runs, result.verdict) == (0, Verdict.UNKNOWN)
    assert "no schedule was run" in map(str, result.doubts)


def test_without_time_nothing_is_known():
    assert campaign("COUNTING", seconds=1e-9).verdict is Verdict.UNKNOWN


@pytest.mark.requirement("C2")
def test_a_target_that_fails_after_a_crash_is_violated_and_says_why():
    result = campaign("FAILING")
    assert result.verdict is Verdict.VIOLATED
    (witness,) = result.witnesses
    assert witness.finding.signature == "recovers/failed"
    assert witness.finding.message.endswith("RuntimeError: cannot read my own file")
    assert witness.times == 2
    assert tell(witness.events)[0] == "life 0: starts"


@pytest.mark.requirement("C1")
def test_a_hang_is_a_finding():
    result = campaign("HANGING", deadline=0.2)
    assert {w.finding.signature for w in result.witnesses} == {"recovers/hung"}
    assert "did not finish in 0.2 s" in result.witnesses[0].finding.message


def test_a_death_that_the_harness_did_not_cause_is_unknown():
    assert campaign("STRANGER").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("BROKEN", "its run without faults failed.*broken from the start"),
        ("SILENT", "passed no persist point"),
        ("UNREPEATABLE", "two runs with the same seed and without faults differ"),
        ("MISSING", "cannot be started.*there_is_no_such_function"),
        ("THREADED", "expected one thread"),
    ],
)
def test_a_scenario_that_cannot_be_tested_says_why(name, reason):
    with pytest.raises(CannotTest, match=f"(?s){reason}"):
        campaign(name)


def test_runs_that_did_not_hold_are_kept_with_their_output(tmp_path):
    result = campaign("FAILING", keep=str(tmp_path))
    kept = tmp_path / "kill-after-append#1"
    assert result.witnesses[0].kept == str(tmp_path / "kill-before-append#1")
    assert (kept / "state" / "file").read_text() == "1"
    assert (kept / "history.jsonl").exists()


def test_progress_is_reported_after_every_run():
    told = []
    run_campaign(registry.resolve(Settings(scenario=f"{TARGETS}:COUNTING")), told.append)
    assert [so_far.phase for so_far in told] == ["starting", "running without faults", *["crashing"] * 6]
    assert [(so_far.runs, so_far.planned) for so_far in told[2:]] == [(n, 6) for n in range(1, 7)]
    assert (told[-1].covered, told[-1].findings) == (6, 0)


def test_the_time_left_follows_the_plan_or_the_limit_whichever_ends_first():
    by_plan = SoFar(phase="crashing", runs=20, planned=100, seconds=10, limit=1000)
    assert (by_plan.rate, by_plan.left) == (2, 40)
    assert SoFar(phase="crashing", runs=20, planned=100, seconds=10, limit=15).left == 5
    assert SoFar(phase="crashing", runs=20, seconds=10).left is None


def test_a_worker_is_pinned_to_one_of_its_allowed_cores():
    allowed = os.sched_getaffinity(0)
    cores = one_each(2 * len(allowed))
    assert sorted(cores) == sorted([*allowed, *allowed])

    def look(core):  # in a thread: the affinity is per thread
        stay_on(core)
        return os.sched_getaffinity(0)

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(look, cores[0]).result() == {cores[0]}


def test_until_violation_ends_the_whole_campaign_not_one_fault_of_it():
    """FAILING is violated by the first kill: later faults are not tried."""
    result = campaign("FAILING", faults=("kill", "disk"), until_violation=True, points="syscalls")
    assert result.verdict is Verdict.VIOLATED
    assert set(result.found.tiers) <= {"process", "torn"}
    both = campaign("FAILING", faults=("kill", "disk"), points="syscalls")
    assert "disk-full" in both.found.tiers
