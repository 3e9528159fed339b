"""Two lives as one trace: what the first did not sync can still be lost in the second."""

from chaoskit.disk.continued import continued
from chaoskit.disk.kill_states import last_image
from chaoskit.disk.power_states import power_states
from tests.disk.listings import listing
from tests.disk.traces import Disk


def two_lives():
    """The first life leaves a line unsynced; the second finds it, appends another and syncs."""
    first = Disk(log=b"")
    first.write("log", b"one\n")
    second = Disk(log=b"one\n", other=b"")
    second.write("log", b"two\n", offset=4)
    second.fsync("log")
    return first.trace(), second.trace()


def contents(first, second, profile="posix"):
    trace = continued(first, second)
    return {listing(state.image).get("log") for state in power_states(trace, [], profile, 100)}


def test_what_the_first_life_did_not_sync_can_be_lost_in_the_second():
    assert b"" in contents(*two_lives())
    assert b"one\n" in contents(*two_lives())
    alone = power_states(two_lives()[1], [], "posix", 100)
    assert all(listing(state.image)["log"].startswith(b"one\n") for state in alone)


def test_the_power_fails_in_the_second_life():
    trace = continued(*two_lives())
    assert trace.base == 1
    assert min(state.candidate.at for state in power_states(trace, [], "posix", 100)) == 1


def test_the_death_of_the_first_life_closes_its_files():
    first = Disk(a=b"old")
    first.truncate("a")
    first.write("a", b"new")
    second = Disk(a=b"new", other=b"")
    second.create("later")
    second.fsync("later")
    second.close("a")
    trace = continued(first.trace(), second.trace())
    assert {at for at, _ in trace.closes} == {2, 4}
    found = [listing(state.image) for state in power_states(trace, [], "ext4", 100)]
    assert {"a": b"", "other": b"", "later": b""} not in found  # allocated when it was closed
    assert {"a": bytes(3), "other": b"", "later": b""} in found


def test_after_both_lives_everything_is_there():
    assert listing(last_image(continued(*two_lives())))["log"] == b"one\ntwo\n"


def test_an_object_keeps_its_number_through_a_rename_in_the_first_life():
    first = Disk(a=b"x")
    first.rename("a", "b")
    second = Disk(b=b"x")
    second.write("b", b"y")
    second.create("c")
    trace = continued(first.trace(), second.trace())
    rename, write, create = trace.ops
    assert rename.file == write.file != create.file
    assert listing(last_image(trace)) == {"b": b"y", "c": b""}
    assert [op.index for op in trace.ops] == [0, 1, 2]
