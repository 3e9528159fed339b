"""The hint names the missing sync, and only one that would have helped."""

from __future__ import annotations

import pytest

from chaoskit.disk.hint import explain, minimise
from chaoskit.disk.power import lost_operations, rebuild
from chaoskit.disk.recipe import Recipe
from tests.disk.listings import listing
from tests.disk.positions import states
from tests.disk.traces import Disk

NEW, OLD = b"n" * 100, b"o" * 100


def bad_state(disk, profile, is_bad):
    found = states(disk.trace(), disk.at, profile)
    return next(state for state in found if is_bad(state.image))


def saved_aside(*, sync_file, sync_directory):
    disk = Disk(data=OLD)
    disk.create("tmp")
    disk.write("tmp", NEW)
    if sync_file:
        disk.fsync("tmp")
    disk.rename("tmp", "data")
    if sync_directory:
        disk.fsync("")
    return disk


def torn(image):
    return listing(image)["data"] not in (OLD, NEW)


def stale(image):
    return listing(image)["data"] == OLD


def test_a_file_renamed_before_it_was_synced():
    disk = saved_aside(sync_file=False, sync_directory=True)
    state = minimise(disk.trace(), bad_state(disk, "posix", torn), torn)
    hint = explain(disk.trace(), state, ack=disk.at)
    assert [loss.words for loss in hint.losses] == ["write tmp 0..100"]
    assert str(hint.missing[0]) == "fsync of tmp after operation 1, before operation 2 (rename)"
    assert len(hint.missing) == 1


def test_a_rename_whose_directory_was_not_synced():
    disk = saved_aside(sync_file=True, sync_directory=False)
    state = minimise(disk.trace(), bad_state(disk, "posix", stale), stale)
    hint = explain(disk.trace(), state, ack=disk.at)
    assert [str(sync) for sync in hint.missing] == [
        "fsync of directory . after operation 3, before the acknowledgement"
    ]


@pytest.mark.parametrize("profile", ["posix", "ext4"])
def test_an_append_that_was_acknowledged_before_its_fsync(profile):
    disk = Disk(log=OLD)
    disk.write("log", NEW, 100)
    ack = disk.at
    disk.fsync("log")
    disk.write("log", NEW, 200)

    def lacks_the_first(image):
        return listing(image)["log"][100:200] != NEW

    early = next(s for s in states(disk.trace(), ack, profile) if lacks_the_first(s.image))
    hint = explain(disk.trace(), early, ack=ack)
    assert [str(sync) for sync in hint.missing] == [
        "fsync of log after operation 0, before the acknowledgement"
    ]
    assert not any(lacks_the_first(s.image) for s in states(disk.trace(), disk.at, profile))


def test_a_new_file_needs_two_syncs_under_posix_and_one_on_ext4():
    disk = Disk()
    disk.create("a")
    disk.write("a", NEW)
    for profile, expected in (("posix", {"a", "."}), ("ext4", {"a"})):
        lost = rebuild(disk.trace(), disk.at, profile, Recipe("nothing"))
        hint = explain(disk.trace(), lost, ack=disk.at)
        assert {sync.path for sync in hint.missing} == expected


def test_a_damaged_tail_of_a_log_is_for_the_reader_to_drop():
    disk = Disk(log=OLD)
    disk.write("log", NEW, 100)
    zeros = bad_state(disk, "ext4", lambda image: listing(image)["log"].endswith(b"\0"))
    assert "drop a damaged tail" in str(explain(disk.trace(), zeros))
    disk.fsync("log")
    assert "drop a damaged tail" not in str(explain(disk.trace(), zeros, ack=1))  # a sync was missing


def test_the_name_in_the_old_directory_on_btrfs_needs_a_sync_of_that_one_too():
    disk = Disk()
    disk.mkdir("old")
    disk.mkdir("new")
    disk.sync()
    disk.create("old/a")
    disk.fsync("old/a")
    disk.rename("old/a", "new/a")
    disk.fsync("new")
    both = bad_state(disk, "btrfs", lambda image: {"old/a", "new/a"} <= listing(image).keys())
    hint = explain(disk.trace(), both)
    assert [loss.words for loss in hint.losses] == ["rename old/a -> new/a"]
    assert [sync.path for sync in hint.missing] == ["old"]


def test_no_sync_fixes_rewriting_in_place():
    disk = Disk(data=b"o" * 8192)
    disk.write("data", b"n" * 8192)
    half = rebuild(disk.trace(), disk.at, "ext4", Recipe("torn", (0,), 4096, "old"))
    hint = explain(disk.trace(), half)
    assert hint.missing == ()
    assert "write to a temporary file, then rename it" in str(hint)


def test_a_kill_loses_nothing_and_the_hint_says_so():
    disk = Disk(data=OLD)
    disk.truncate("data")
    killed = next(states(disk.trace(), disk.at, "ext4"))
    assert "a kill leaves the same state" in str(explain(disk.trace(), killed))


def test_a_loss_after_the_acknowledgement_is_explained_without_it():
    disk = saved_aside(sync_file=False, sync_directory=True)
    state = minimise(disk.trace(), bad_state(disk, "posix", torn), torn)
    hint = explain(disk.trace(), state, ack=0)
    assert [sync.before for sync in hint.missing] == ["operation 2 (rename)"]


def test_the_timeline_shows_the_loss_the_acknowledgement_and_the_crash():
    disk = saved_aside(sync_file=False, sync_directory=True)
    hint = explain(disk.trace(), bad_state(disk, "posix", torn), ack=disk.at)
    lines = hint.timeline.splitlines()
    assert lines == [
        "        0  create tmp",
        "  >     1  write tmp 0..100   lost",
        "        2  rename tmp -> data",
        "        3  fsync .",
        "        -- acknowledged --",
        "        ** power lost **",
    ]


def test_long_traces_are_cut_around_what_matters():
    disk = Disk(log=OLD, other=OLD)
    disk.write("log", NEW)
    for number in range(50):
        disk.write("other", bytes([number]))
    state = rebuild(disk.trace(), disk.at, "posix", Recipe("without", (0,)))
    text = explain(disk.trace(), state, ack=1).timeline
    assert "..." in text and len(text.splitlines()) < 14


@pytest.mark.parametrize("profile", ["posix", "ext4"])
def test_minimising_loses_only_what_the_failure_needs(profile):
    disk = Disk(a=OLD, b=OLD, c=OLD)
    for name in ("a", "b", "c"):
        disk.write(name, NEW)
    worst = rebuild(disk.trace(), disk.at, profile, Recipe("nothing"))

    def b_is_old(image):
        return listing(image)["b"] == OLD

    least = minimise(disk.trace(), worst, b_is_old)
    assert lost_operations(disk.trace(), least) == [1]
    assert listing(least.image) == {"a": NEW, "b": OLD, "c": NEW}


def test_minimising_reaches_a_kill_when_a_kill_is_bad():
    disk = Disk(a=OLD)
    disk.write("a", NEW)
    worst = rebuild(disk.trace(), disk.at, "posix", Recipe("nothing"))
    assert minimise(disk.trace(), worst, lambda image: True).recipe.way == "kill"


def test_minimising_keeps_a_pair_of_losses_that_is_needed():
    disk = Disk(a=OLD, b=OLD, c=OLD)
    for name in ("a", "b", "c"):
        disk.write(name, NEW)
    worst = rebuild(disk.trace(), disk.at, "posix", Recipe("nothing"))

    def two_are_old(image):
        return list(listing(image).values()).count(OLD) >= 2

    assert len(lost_operations(disk.trace(), minimise(disk.trace(), worst, two_are_old))) == 2


def test_a_torn_write_stays_a_torn_write_when_only_tearing_is_bad():
    disk = Disk(a=OLD)
    disk.write("a", NEW)
    half = rebuild(disk.trace(), disk.at, "posix", Recipe("torn", (0,), 1, "old"))

    def mixed(image):
        return listing(image)["a"] not in (OLD, NEW)

    assert minimise(disk.trace(), half, mixed).recipe.way == "torn"
