"""Each claim about stores: what breaks it, what holds, and where there is nothing to judge."""

import pytest
from chaoskit_invariants.claims import stores

from chaoskit import registry
from chaoskit.faults.disk import DiskError
from chaoskit.faults.power import PowerLoss
from chaoskit.model import (
    Ack,
    Born,
    Crashed,
    Ended,
    Fail,
    History,
    Invoke,
    NothingToJudge,
    Ok,
    PersistPoint,
    Probe,
    Struck,
)

pytestmark = pytest.mark.requirement("C4")


class Told:
    """Builds a history event by event."""

    def __init__(self):
        self.events = [Born(0)]
        self.life = self.op = 0

    def change(self, n, session="a", do="save", acked=True, error=None):
        self.op += 1
        step = {"do": do, "session": session, "n": n, "size": 3}
        self.events.append(Invoke(self.life, 0, self.op, "change", step))
        if error:
            self.events.append(Fail(self.life, 0, self.op, error))
        elif acked:
            self.events += [Ack(self.life, 0, "changed", step), Ok(self.life, 0, self.op)]
        return self

    def crash(self):
        self.life += 1
        self.events.append(Born(self.life))
        return self

    def lose_power(self):
        fault = PowerLoss(PersistPoint("unlink journal", 1, 0), "ext4", "nothing")
        self.events.append(Crashed(self.life, 0, fault))
        return self.crash()

    def end(self, how, detail=""):
        self.events.append(Ended(self.life, how, detail))
        return self

    def look(self, name="recovered", trouble=None, **found):
        data = {"sessions": {"a": found}} if trouble is None else {"sessions": {}, "trouble": trouble}
        self.events.append(Probe(self.life, 0, name, data))
        return self

    def probe(self, name, **data):
        self.events.append(Probe(self.life, 0, name, data))
        return self

    def kinds(self, claim):
        return sorted({violation.kind for violation in claim.check(History(tuple(self.events)))})


def told():
    return Told()


def _overwritten():
    """Save 2 is interrupted, seen after the crash, and another save is made instead of repeating it."""
    seen = told().change(1).change(2, acked=False).crash().look(history=[[1], [2]])
    return seen.change(3)


EXAMPLES = [
    (stores.DURABLE, told().change(1).crash().look(load=None), ["lost"]),
    (stores.DURABLE, told().change(1).change(2).crash().look(load=[1]), ["lost"]),
    (stores.DURABLE, told().change(1).crash().look(load=[1]), []),
    (stores.DURABLE, told().change(1).change(2, acked=False).crash().look(load=[1]), []),
    (stores.DURABLE, told().change(1).change(2, acked=False).crash().look(load=[2]), []),
    (stores.DURABLE, told().change(1).change(2).crash().look(load=[2], history=[[2]]), ["lost"]),
    (stores.DURABLE, told().change(1).change(1, do="delete").crash().look(load=[1]), ["returned"]),
    (stores.DURABLE, told().change(1).change(1, do="delete").crash().look(load=None), []),
    # A save after an interrupted deletion may be stored.
    (
        stores.DURABLE,
        told().change(1).change(1, do="delete").change(2, acked=False).crash().look(load=[2]),
        [],
    ),
    (stores.DURABLE, told().change(1).change(1, do="delete", acked=False).crash().look(load=None), []),
    # A save after an interrupted deletion that was acknowledged must be stored.
    (
        stores.DURABLE,
        told().change(1).change(1, do="delete", acked=False).change(2).crash().look(load=None),
        ["lost"],
    ),
    (stores.DURABLE, told().change(1).change(1, do="delete").crash().look(history=[[1]]), ["returned"]),
    (
        stores.DURABLE,
        told().change(1, do="append").change(1, do="delete").crash().look(items=[[1, 0, 1]]),
        ["returned"],
    ),
    # Garbage in place of what was acknowledged is a loss, and so is what nobody can read.
    (stores.DURABLE, told().change(1).crash().look(load="damaged: {}"), ["lost"]),
    (stores.DURABLE, told().change(1).change(2).crash().look(history=["damaged: x", [2]]), ["lost"]),
    (stores.DURABLE, told().change(1).crash().look(trouble="OSError: no"), ["unreadable"]),
    (
        stores.DURABLE,
        told().change(1).crash().probe("end", sessions={"a": {"trouble": "load: ValueError"}}),
        ["unreadable"],
    ),
    # Both ways to read are judged.
    (
        stores.DURABLE,
        told().change(1).change(2).crash().look(items=[[1, 0, 1], [2, 0, 1]], history=[[2]]),
        ["lost"],
    ),
    # A save that is made again after its deletion is a new one.
    (stores.DURABLE, told().change(1).change(1, do="delete").change(1).crash().look(load=[1]), []),
    (
        stores.DURABLE,
        told().change(1).change(1, do="delete", acked=False).change(1).crash().look(load=None),
        ["lost"],
    ),
    (stores.DURABLE, told().change(1).crash().look(load=[7]), ["lost"]),  # never made
    # A change made after a look cannot be missing from it.
    (stores.DURABLE, told().change(1).crash().look(load=[1]).change(2).look("end", load=[2]), []),
    (stores.ATOMIC, told().change(1).crash().look(load="damaged: {'n'"), ["half"]),
    (stores.ATOMIC, told().change(1).crash().look(load=[1]), []),
    (stores.ATOMIC, told().change(1, do="append").crash().look(items=[[1, 0, 2]]), ["half"]),
    (stores.ATOMIC, told().change(1, do="append").crash().look(items=[[1, 0, 2], [1, 1, 2]]), []),
    (
        stores.ATOMIC,
        told().change(1).change(2).change(1, do="delete", acked=False).crash().look(load=[1]),
        ["half-deleted"],
    ),
    (
        stores.ATOMIC,
        told().change(1).change(2).change(1, do="delete", acked=False).crash().look(load=[2], history=[[2]]),
        ["half-deleted"],
    ),
    (
        stores.ATOMIC,
        told().change(1).change(2).change(1, do="delete", acked=False).crash().look(load=None, history=[]),
        [],
    ),
    # A power loss may have taken the latest save before the deletion began: that is a loss, not half a
    # deletion. What is missing at the beginning was deleted.
    (
        stores.ATOMIC,
        told().change(1).change(2).change(1, do="delete", acked=False).lose_power().look(load=[1]),
        [],
    ),
    (
        stores.DURABLE,
        told().change(1).change(2).change(1, do="delete", acked=False).lose_power().look(load=[1]),
        ["lost"],
    ),
    (
        stores.ATOMIC,
        told()
        .change(1)
        .change(2)
        .change(1, do="delete", acked=False)
        .lose_power()
        .look(load=[2], history=[[2]]),
        ["half-deleted"],
    ),
    (
        stores.DURABLE,
        told().change(1).change(2).change(1, do="delete", acked=False).lose_power().look(load=[2]),
        [],
    ),
    (stores.ATOMIC, told().change(1).change(2).crash().look(history=[[1], "damaged: x"]), ["half"]),
    (stores.ATOMIC, told().change(1, do="append").crash().look(items=["damaged: x"]), ["half"]),
    (stores.PREFIX, told().change(1, acked=False).crash().change(1).look(history=[[1], [1]]), []),
    (stores.PREFIX, told().change(1).change(2).crash().look(history=[[2], [1]]), ["reordered"]),
    (stores.PREFIX, told().change(1, do="append").crash().look(items=[[1, 1, 2], [1, 0, 2]]), []),
    (
        stores.PREFIX,
        told().change(1, do="append").crash().look(items=[[1, 0, 3], [1, 2, 3], [1, 1, 3]]),
        ["reordered"],
    ),
    (stores.PREFIX, told().change(1).crash().look(history=[[1], [1]]), ["doubled"]),
    (stores.PREFIX, told().change(1).crash().look(history=[[1], [7]]), ["unasked"]),
    (stores.PREFIX, told().change(1).change(2).crash().look(history=[[1], [2]]), []),
    (stores.IMMUTABLE, told().crash().look(history=["damaged: x", [2]]), ["changed"]),
    (stores.IMMUTABLE, told().crash().look(history=[[1], [2]]), []),
    (stores.IMMUTABLE, told().crash().look(history=[[1], "damaged: x"]), []),  # the latest is left to atomic
    (stores.IMMUTABLE, _overwritten().look("end", history=[[1], [3]]), ["replaced"]),
    (stores.IMMUTABLE, _overwritten().look("end", history=[[1], [2], [3]]), []),
    (stores.IMMUTABLE, _overwritten().look("end", history=[[2], [3]]), []),  # the oldest was pruned
    (stores.IMMUTABLE, _overwritten().look("end", history=[[1]]), []),  # lost, which is left to durable
    (stores.IMMUTABLE, _overwritten().change(0, do="delete").look("end", history=[[3]]), []),
    # Not in another life: what was shown and not synced may be lost with the power.
    (stores.IMMUTABLE, _overwritten().crash().look("end", history=[[1], [3]]), []),
    (stores.ISOLATED, told().crash().look(history=[[1], "of session b: save 3"]), ["foreign"]),
    (stores.ISOLATED, told().crash().look(items=["of session b: save 3"]), ["foreign"]),
    (stores.ISOLATED, told().crash().look(load="of session b: save 3"), ["foreign"]),
    (stores.ISOLATED, told().crash().look(load=None), []),
    (stores.CONSISTENT, told().crash().look(records={"index": 1, "file": 2}), ["disagree"]),
    (stores.CONSISTENT, told().crash().look(records={"index": 1, "file": 1}), []),
    (stores.LOADABLE, told().change(1).crash().look(trouble="OSError: no"), ["closed"]),
    (stores.LOADABLE, told().crash().look(load=None), []),
    (stores.LOADABLE, told().crash().probe("recovered", sessions={"a": {"trouble": "no"}}), ["unloadable"]),
    (stores.LOADABLE, told().crash().look().probe("end", sessions={"a": {"trouble": "no"}}), ["unloadable"]),
    (stores.CONTINUES, told().crash().look().change(2, error="locked"), ["refused"]),
    (stores.CONTINUES, told().crash().look().change(2), []),
    (stores.CONTINUES, told().crash().look(trouble="OSError: no"), ["refused"]),
    (stores.CONTINUES, told().crash().look().change(2).end("hung"), ["refused"]),
    (stores.CONTINUES, told().crash().look().change(2).end("failed", "SystemExit: 0"), ["refused"]),
    (stores.LOADABLE, told().crash().end("died", "signal SIGABRT"), ["closed"]),
    (stores.LOADABLE, told().crash().end("hung"), ["closed"]),
    (
        stores.IDEMPOTENT,
        told().change(1, acked=False).crash().change(1).look("end", history=[[1], [1]]),
        ["doubled"],
    ),
    (stores.IDEMPOTENT, told().change(1, acked=False).crash().change(1).look("end", history=[[1]]), []),
    (
        stores.IDEMPOTENT,  # an append may be repeated after others
        told()
        .change(1, do="append", error="full")
        .change(2, do="append")
        .crash()
        .change(1, do="append")
        .look("end", items=[[1, 0, 1], [2, 0, 1], [1, 0, 1]]),
        ["doubled"],
    ),
    (stores.FENCED, told().probe("zombie", before=2, late=3, load=[3]), ["overwritten"]),
    (stores.FENCED, told().probe("zombie", before=2, late=3, load=[2]), []),
    (stores.FENCED, told().probe("zombie", before=2, late=3, items=[[1, 0, 1], [3, 0, 1]]), ["overwritten"]),
    (stores.FENCED, told().probe("zombie", refused=None, trouble="locked"), []),
    (stores.FENCED, told().probe("zombie", before=2, late=3, trouble="ValueError: torn"), ["unreadable"]),
    (stores.FENCED, told().probe("zombie", before=2, late=3, items=[[1, 0, 1], [2, 0, 1], [3, 0, 1]]), []),
]


@pytest.mark.parametrize(("claim", "history", "kinds"), EXAMPLES)
def test_a_claim_and_what_breaks_it(claim, history, kinds):
    assert history.kinds(claim) == kinds


@pytest.mark.parametrize(
    ("claim", "history"),
    [
        (stores.DURABLE, told().change(1)),
        (stores.DURABLE, told().change(1, error="no").crash().look(load=None)),
        (stores.PREFIX, told().change(1).crash().look(load=[1])),
        (stores.IMMUTABLE, told().crash().look(load=[1])),
        (stores.CONSISTENT, told().crash().look(load=[1])),
        (stores.LOADABLE, told().change(1).look("end", load=[1])),
        (stores.CONTINUES, told().change(1)),
        (stores.IDEMPOTENT, told().change(1).crash().look("end", history=[[1]])),
        (stores.IDEMPOTENT, told().change(1, acked=False).crash().change(1).look(history=[[1], [1]])),
        (stores.FENCED, told().change(1)),
    ],
)
def test_what_was_not_probed_is_not_judged(claim, history):
    with pytest.raises(NothingToJudge):
        history.kinds(claim)


def test_a_save_that_fails_while_the_disk_fails_is_no_violation():
    history = told().crash().look().change(2, error="full")
    error = DiskError(PersistPoint("write x", 1, 1), "ENOSPC", lasting=True)
    history.events.append(Struck(1, error))
    with pytest.raises(NothingToJudge):
        history.kinds(stores.CONTINUES)
    assert history.crash().change(3).kinds(stores.CONTINUES) == []


def test_data_that_cannot_be_read_while_the_disk_fails_is_not_lost():
    history = told().change(1).crash().look(trouble="OSError: full")
    assert history.kinds(stores.DURABLE) == ["unreadable"]
    history.events.append(Struck(1, DiskError(PersistPoint("write x", 1, 1), "ENOSPC", lasting=True)))
    with pytest.raises(NothingToJudge):
        history.kinds(stores.DURABLE)
    assert history.crash().look(load=[1]).kinds(stores.DURABLE) == []


def test_every_claim_has_sound_and_broken_examples():
    assert {claim.name for claim, _, kinds in EXAMPLES if kinds} == set(registry.claims("store"))
    assert {claim.name for claim, _, kinds in EXAMPLES if not kinds} == set(registry.claims("store"))


# --- a state that returns to an earlier value


def saved(*numbers, shown):
    """Saves with these numbers, each acknowledged, and then a look at the latest."""
    events = [Born(0)]
    for op, n in enumerate(numbers, 1):
        change = {"do": "save", "session": "a", "n": n, "size": 3}
        events += [Invoke(0, 0, op, "change", change), Ack(0, 0, "changed", change), Ok(0, 0, op)]
    return History((*events, Probe(0, 0, "end", {"sessions": {"a": {"load": [shown]}}})))


def test_the_latest_is_the_state_that_was_saved_last_also_if_it_was_saved_before():
    durable = registry.claims()["durable"].check
    assert not list(durable(saved(1, 2, 1, shown=1)))
    assert [v.kind for v in durable(saved(1, 2, 1, shown=2))] == ["lost"]
    assert [v.kind for v in durable(saved(1, 2, shown=1))] == ["lost"]


def test_a_state_that_is_saved_again_after_newer_ones_is_a_version_of_its_own():
    history = told().change(1, error="full").change(2).crash().change(1)
    with pytest.raises(NothingToJudge):
        history.look("end", history=[[1], [2], [1]]).kinds(stores.IDEMPOTENT)
