"""The arithmetic of certification: shares of the time limit, tiers of a schedule, points for a full disk."""

import pytest

from chaoskit.faults.kill import Kill
from chaoskit.model import Ack, Firing, Invoke, PersistPoint, Schedule
from chaoskit.search import budget as budgets
from chaoskit.search.budget import Budget
from chaoskit.search.plan import Seen
from chaoskit.search.tiers import Scope, default_tiers, tier_of, tiers

pytestmark = pytest.mark.requirement("C4")


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances on request."""
    now = [0.0]
    monkeypatch.setattr(budgets.time, "monotonic", lambda: now[0])
    return now


def test_a_plan_that_ends_early_leaves_its_time_to_the_others(clock):
    budget = Budget(30, shares=3)
    first = budget.share()
    assert list(first.while_time([1, 2])) == [1, 2]
    assert not first.ran_out
    taken, second = [], budget.share()
    for task in second.while_time(range(100)):  # half of what is left
        taken.append(task)
        clock[0] += 5
    # A part is reserved for confirming.
    assert (taken, second.ran_out) == ([0, 1, 2], True)
    rest = []
    for task in budget.share().while_time(range(100)):
        rest.append(task)
        clock[0] += 5
    assert len(rest) == 3
    assert clock[0] >= 30


def test_a_plan_may_take_several_shares(clock):
    budget = Budget(100, shares=10)
    assert budget.share(8).end == pytest.approx(0.8 * 85)
    assert budget.share().end == pytest.approx(42.5)  # half of the rest: nothing was used


def test_without_a_limit_everything_is_done():
    share = Budget(None, shares=1).share()
    assert list(share.while_time(range(5))) == list(range(5))
    assert not share.ran_out


def test_tiers_with_the_same_plan_share_its_runs():
    plans = {name: tier.plan(Scope()) for name, tier in tiers().items() if tier.plan}
    assert plans["process"] == plans["torn"] == plans["first-start"]
    assert plans["power-ext4"] != plans["power-posix"]


def test_every_tier_that_a_run_can_report_is_in_the_list():
    assert {"process", "torn", "power-ext4", "power-posix", "disk-full", "disk-error"} <= set(tiers())
    assert "disk-error" not in default_tiers()


def point(op, name="write a"):
    return PersistPoint(name, op + 1, op)


def test_a_kill_before_the_first_acknowledgement_belongs_to_first_start():
    tier = tier_of([Invoke(0, 2, 1, "change", {}), Ack(0, 7, "changed", {})])
    assert tier(Schedule((Kill(point(3), "before"),))) == "first-start"
    assert tier(Schedule((Kill(point(7), "before"),))) == "process"
    assert tier(Schedule((Kill(point(3), "before"), Kill(point(1), "before")))) == "recovery"


def test_a_full_disk_fails_only_operations_that_need_space():
    names = ("write a", "unlink a", "fsync a", "rename a")
    firings = [Firing(point(op, name), "before") for op, name in enumerate(names)]
    items = tiers()["disk-full"].plan(Scope()).items(1, Seen(firings, recoveries_only=True), (0, 1))
    assert {item.schedule.faults[0].point.name for item in items} == {"write a", "fsync a"}
