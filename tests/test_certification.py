"""Certification's own arithmetic: shares of a time, tiers of a schedule, places for a full disk."""

import pytest

from chaoskit.certify import certification
from chaoskit.certify.certification import _full_disks, _merged, _Shares, _stages, _tier
from chaoskit.model import Firing, Invoke, Kill, PersistPoint, Schedule, Verdict
from chaoskit.search.result import Result
from chaoskit.settings import Settings

pytestmark = pytest.mark.requirement("C4")


@pytest.fixture
def clock(monkeypatch):
    """A time that passes when it is told to."""
    now = [0.0]
    monkeypatch.setattr(certification.time, "monotonic", lambda: now[0])
    return now


def test_a_stage_that_ends_early_leaves_its_time_to_the_others(clock):
    shares = _Shares(30, stages=3)
    assert list(shares.share([1, 2])) == [1, 2]
    assert not shares.ran_out
    taken = []
    for task in shares.share(range(100)):  # half of what is left
        taken.append(task)
        clock[0] += 5
    assert (taken, shares.ran_out) == ([0, 1, 2, 3], True)
    rest = []
    for task in shares.share(range(100)):
        rest.append(task)
        clock[0] += 5
    assert len(rest) == 3
    assert clock[0] >= 30


def test_without_a_limit_everything_is_done():
    shares = _Shares(None, stages=1)
    assert list(shares.share(range(5))) == list(range(5))
    assert not shares.ran_out


def test_kills_are_one_stage_and_agents_have_two_of_each():
    assert _stages(("process", "torn", "first-start"), "store") == 1
    assert _stages(("process", "power-ext4", "recovery", "zombie"), "store") == 3
    assert _stages(("process",), "agent") == 2


def point(op, name="write a"):
    return PersistPoint(name, op + 1, op)


def test_what_strikes_before_the_first_change_is_a_first_start():
    tier = _tier([Invoke(0, 7, 1, "change", {})])
    assert tier(Schedule((Kill(point(3), "before"),))) == "first-start"
    assert tier(Schedule((Kill(point(7), "before"),))) == "process"
    assert tier(Schedule((Kill(point(3), "before"), Kill(point(1), "before")))) == "recovery"


def test_a_full_disk_refuses_only_what_needs_space():
    names = ("write a", "unlink a", "fsync a", "rename a")
    firings = [Firing(point(op, name), "before") for op, name in enumerate(names)]
    refused = {schedule.faults[0].point.name for schedule in _full_disks(firings)}
    assert refused == {"write a", "fsync a"}


def result(claims):
    return Result(
        settings=Settings(scenario="x"),
        verdict=Verdict.HOLDS,
        runs=1,
        points=1,
        states=1,
        confirmed=0,
        fired=1,
        missed=0,
        seconds=1,
        claims=claims,
        witnesses=(),
        doubts=(),
        table={},
    )


def test_the_worst_of_all_variants_is_the_cell():
    one = result({"durable": {"process": Verdict.HOLDS, "torn": Verdict.HOLDS}})
    other = result({"durable": {"process": Verdict.VIOLATED}, "fork": {"process": Verdict.HOLDS}})
    merged = _merged([one, other], ("process",))
    assert merged == {"durable": {"process": Verdict.VIOLATED}, "fork": {"process": Verdict.HOLDS}}
