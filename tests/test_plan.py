import pytest
from hypothesis import given, strategies as st

from chaoskit.faults.disk import at as disk_errors
from chaoskit.model import Firing, PersistPoint, Schedule
from chaoskit.search.plan import Sample, Seen, Sweep

FIRINGS = tuple(Firing(PersistPoint("write", nth), when) for nth in (1, 2, 3) for when in ("before", "after"))


def play(plan, firings=FIRINGS):
    """All schedules of a plan, as if every life passed the same points."""
    seen = Seen(firings, recoveries_only=True)
    for number in range(1, plan.rounds + 1):
        for schedule in list(plan.schedules(number, seen if isinstance(plan, Sweep) else seen.traces)):
            seen.traces[schedule] = firings
    return [schedule for schedule in seen.traces if schedule.faults]


@pytest.mark.requirement("C1")
def test_a_sweep_kills_before_and_after_every_point_once():
    schedules = [schedule for schedule in play(Sweep()) if len(schedule.faults) == 1]
    assert len(schedules) == len(FIRINGS)
    assert {(s.faults[0].point, s.faults[0].when) for s in schedules} == {(f.point, f.when) for f in FIRINGS}


@pytest.mark.requirement("C1")
def test_a_sweep_then_kills_every_kind_of_recovery_at_every_point():
    seen = Seen(FIRINGS, recoveries_only=True)
    first = list(Sweep().schedules(1, seen))
    # Two ways to recover: the first four crashes are followed by one, the last two by the other.
    seen.traces |= {schedule: FIRINGS[:2] if n < 4 else FIRINGS[:4] for n, schedule in enumerate(first)}
    nested = list(Sweep().schedules(2, seen))
    assert [len(schedule.faults) for schedule in nested] == [2] * 6
    assert {schedule.faults[0] for schedule in nested} == {first[0].faults[0], first[4].faults[0]}


def test_recoveries_that_start_from_something_else_are_not_the_same():
    seen = Seen(FIRINGS, recoveries_only=True)
    first = list(Sweep().schedules(1, seen))
    seen.traces |= dict.fromkeys(first, FIRINGS[:2])
    seen.origins = {schedule: "one" if n < 3 else "other" for n, schedule in enumerate(first)}
    nested = list(Sweep().schedules(2, seen))
    assert {schedule.faults[0] for schedule in nested} == {first[0].faults[0], first[3].faults[0]}


def test_disk_errors_are_those_that_an_operation_can_have():
    def errors(name, when):
        firing = Firing(PersistPoint(name, 1, 0), when)
        return {(fault.error, fault.lasting) for fault in disk_errors(firing)}

    both = (False, True)
    assert errors("write db", "before") == {(e, b) for e in ("EIO", "ENOSPC") for b in both}
    assert errors("write db", "half") == {(e, b) for e in ("short", "fills") for b in both}
    assert errors("fsync db", "before") == {(e, b) for e in ("lost", "ENOSPC") for b in both}
    assert errors("unlink db", "after") == set()
    assert errors("unlink db", "before") == {("EIO", b) for b in both}  # a full disk has room for that


@pytest.mark.requirement("C1")
@given(seed=st.integers(0, 2**32), runs=st.integers(1, 60))
def test_a_sample_is_decided_by_its_seed_and_names_only_points_that_were_seen(seed, runs):
    schedules = play(Sample(seed=seed, runs=runs))
    assert schedules == play(Sample(seed=seed, runs=runs))
    assert len(schedules) <= runs
    for schedule in schedules:
        assert 1 <= len(schedule.faults) <= 3
        for fault in schedule.faults:
            assert Firing(fault.point, fault.when) in FIRINGS


def test_a_sample_has_one_two_and_three_crashes():
    assert {len(s.faults) for s in play(Sample(seed=1, runs=15))} == {1, 2, 3}


def test_different_seeds_give_different_samples():
    assert play(Sample(seed=1, runs=12)) != play(Sample(seed=2, runs=12))


def test_a_second_crash_extends_a_schedule_that_was_run():
    schedules = play(Sample(seed=5, runs=30))
    for schedule in schedules:
        if len(schedule.faults) > 1:
            assert Schedule(schedule.faults[:-1]) in schedules


def test_a_sample_of_a_target_without_points_is_empty_rather_than_endless():
    assert play(Sample(seed=1, runs=10), firings=()) == []


def test_a_sample_has_the_requested_size_even_with_few_points():
    assert len(play(Sample(seed=1, runs=50))) == 50
