"""The rules of xfs and btrfs, each in both directions, and on which file systems a failure can happen."""

from __future__ import annotations

import pytest

from chaoskit.disk.power import rebuild
from chaoskit.disk.power_states import states_at
from chaoskit.disk.recipe import Recipe
from chaoskit.disk.systems import in_words, possible_on
from tests.disk.listings import listing
from tests.disk.positions import states
from tests.disk.traces import Disk

NEW, OLD = b"n" * 100, b"o" * 100
BOTH = pytest.mark.parametrize("profile", ["xfs", "btrfs"])
REAL = pytest.mark.parametrize("profile", ["ext4", "xfs", "btrfs"])


def left(disk, profile):
    return [listing(state.image) for state in states(disk.trace(), disk.at, profile)]


def renamed_over(*, sync_file, sync_directory):
    disk = Disk(a=OLD)
    disk.create("tmp")
    disk.write("tmp", NEW)
    if sync_file:
        disk.fsync("tmp")
    disk.close("tmp")
    disk.rename("tmp", "a")
    if sync_directory:
        disk.fsync("")
    return disk


# ---- all of them ---------------------------------------------------------------------------------


@REAL
def test_a_file_that_is_synced_before_the_rename_is_whole(profile):
    disk = renamed_over(sync_file=True, sync_directory=True)
    assert left(disk, profile) == [{"a": NEW}]
    disk = renamed_over(sync_file=True, sync_directory=False)
    assert all(found["a"] in (OLD, NEW) for found in left(disk, profile))


@pytest.mark.parametrize(
    ("profile", "instead"), [("ext4", bytes(100)), ("xfs", b""), ("btrfs", b"")], ids=lambda v: str(v)[:5]
)
def test_e6_x3_b5_without_that_it_may_be_zeros_or_empty(profile, instead):
    found = left(renamed_over(sync_file=False, sync_directory=True), profile)
    assert {"a": NEW} in found and {"a": instead} in found
    assert {"a": b"" if instead else bytes(100)} not in found


@REAL
def test_e2_b3_a_synced_file_keeps_its_name_and_its_directory(profile):
    disk = Disk()
    disk.mkdir("d")
    disk.create("d/a")
    disk.write("d/a", NEW)
    disk.fsync("d/a")
    assert left(disk, profile) == [{"d": None, "d/a": NEW}]


@pytest.mark.parametrize(("profile", "kept"), [("ext4", True), ("xfs", True), ("btrfs", False)])
def test_e2_b3_a_sync_keeps_the_names_of_other_files_but_not_on_btrfs(profile, kept):
    disk = Disk(a=OLD)
    disk.create("other")
    disk.write("a", NEW, 100)
    disk.fsync("a")
    assert ({"a": OLD + NEW} not in left(disk, profile)) == kept


@REAL
def test_e2_a_sync_after_which_nothing_changed_keeps_no_names(profile):
    disk = Disk(a=OLD, b=OLD)
    disk.write("a", NEW)
    disk.rename("b", "c")
    disk.fsync("a")
    assert {"a": NEW, "b": OLD} in left(disk, profile)
    assert all(found["a"] == NEW for found in left(disk, profile))


@REAL
@pytest.mark.parametrize("lost", [OLD[:64] * 128, bytes(8192)], ids=["data", "zeros"])
def test_a_hole_may_be_lost_and_is_durable_after_a_sync(profile, lost):
    """As the interposer records it, with keep_size; over data, and where nothing can be seen to change."""
    disk = Disk(a=lost)
    disk.punch("a", 0, 8192)
    assert {frozenset(found.items()) for found in left(disk, profile)} == {
        frozenset({"a": content}.items()) for content in (lost, bytes(8192))
    }
    disk.fdatasync("a")
    assert left(disk, profile) == [{"a": bytes(8192)}]


LOW, HIGH = b"1" * 4096, b"2" * 4096
HOLE = bytes(12288)


def two_pages(*, low_first):
    """A synced empty file; two pages far apart are written, and one sync for both is under way."""
    disk = Disk(a=b"")
    for offset, data in ((0, LOW), (16384, HIGH)) if low_first else ((16384, HIGH), (0, LOW)):
        disk.write("a", data, offset)
    return disk


@pytest.mark.parametrize("low_first", [True, False])
@pytest.mark.parametrize(
    ("profile", "without_the_high_one"),
    [("ext4", {LOW, LOW + HOLE + bytes(4096)}), ("xfs", {LOW}), ("btrfs", {LOW + HOLE + bytes(4096)})],
    ids=["ext4", "xfs", "btrfs"],
)
def test_e3_x2_b2_pages_are_written_back_in_any_order(profile, without_the_high_one, low_first):
    found = {each["a"] for each in left(two_pages(low_first=low_first), profile)}
    assert without_the_high_one <= found
    assert bytes(4096) + HOLE + HIGH in found
    other = {LOW, LOW + HOLE + bytes(4096)} - without_the_high_one
    assert not other & found or (profile == "btrfs" and low_first)  # before the second write began


@REAL
def test_a_header_may_be_new_and_its_record_missing(profile):
    disk = Disk(a=b"o" * 4096)
    disk.write("a", b"r" * 50, 16384)
    disk.write("a", b"h" * 4096)
    kept = b"h" * 4096
    assert any(each["a"].startswith(kept) and b"r" not in each["a"] for each in left(disk, profile))
    disk = Disk(a=b"o" * 4096)
    disk.write("a", b"r" * 50, 16384)
    disk.fdatasync("a")
    disk.write("a", b"h" * 4096)
    assert all(b"r" * 50 in each["a"] for each in left(disk, profile))


@REAL
def test_e8_x4_an_overwrite_may_be_torn_and_the_record_missing(profile):
    disk = Disk(a=b"o" * 4096)
    disk.write("a", b"r" * 50, 16384)
    disk.write("a", b"h" * 4096)
    torn = b"h" * 512 + b"o" * 3584
    assert ({"a": torn} in left(disk, profile)) == (profile != "btrfs")
    assert ({"a": torn + HOLE + bytes(50)} in left(disk, profile)) == (profile == "ext4")


@pytest.mark.parametrize(("profile", "possible"), [("ext4", True), ("xfs", True), ("btrfs", False)])
def test_e8_an_overwrite_may_be_torn_though_a_later_append_is_there(profile, possible):
    disk = Disk(a=b"o" * 4096)
    disk.write("a", b"h" * 4096)
    disk.write("a", HIGH, 16384)
    torn = b"h" * 512 + b"o" * 3584 + HOLE + HIGH
    assert ({"a": torn} in left(disk, profile)) == possible


@pytest.mark.parametrize(("profile", "durable"), [("ext4", False), ("xfs", True), ("btrfs", True)])
@pytest.mark.parametrize("kind", ["rename", "link"])
def test_x1_a_name_is_durable_with_the_fdatasync_of_its_file_but_not_on_ext4(profile, durable, kind):
    disk = Disk(a=OLD)
    getattr(disk, kind)("a", "b")
    disk.fdatasync("a" if kind == "link" else "b")
    assert all("b" in found for found in left(disk, profile)) == durable


@pytest.mark.parametrize(("profile", "grows"), [("ext4", True), ("xfs", False), ("btrfs", False)])
def test_e5_x2_an_allocation_inside_the_file_moves_the_size_on_disk_on_ext4_only(profile, grows):
    disk = Disk(a=b"")
    disk.write("a", b"n" * 512)
    disk.allocate("a", 0, 100)
    assert ({"a": bytes(100)} in left(disk, profile)) == grows


def under_way(disk, profile):
    trace = disk.trace()
    return [listing(s.image) for s in states(trace, disk.at - 1, profile) if s.recipe.under_way]


@pytest.mark.parametrize(("profile", "zeros"), [("ext4", True), ("xfs", False), ("btrfs", False)])
def test_e10_a_durable_append_under_way_may_be_zeros_on_ext4(profile, zeros):
    disk = Disk(a=b"o" * 4096)
    disk.write("a", LOW, 4096, durable=True)
    assert ({"a": b"o" * 4096 + bytes(4096)} in under_way(disk, profile)) == zeros
    assert {"a": b"o" * 4096 + LOW} in under_way(disk, profile)


@pytest.mark.parametrize(("profile", "cut"), [("ext4", True), ("xfs", True), ("btrfs", False)])
def test_e8_x4_an_append_is_torn_at_the_end_of_a_block_that_was_only_written_back(profile, cut):
    disk = Disk(a=b"")
    disk.write("a", b"1" * 3000)
    disk.write("a", b"2" * 3000, 3000)
    assert ({"a": b"1" * 3000 + b"2" * 1096} in left(disk, profile)) == cut


# ---- xfs -----------------------------------------------------------------------------------------


def test_x2_xfs_new_data_is_there_with_its_size_or_not_at_all():
    disk = Disk(a=OLD)
    disk.write("a", NEW, 100)
    disk.create("later")
    disk.fsync("later")
    found = [each["a"] for each in left(disk, "xfs")]
    assert sorted(found) == [OLD, OLD + NEW] or set(found) == {OLD, OLD + NEW}


def test_x3_xfs_a_file_that_was_truncated_and_written_may_be_empty_though_it_was_closed():
    disk = Disk(a=OLD)
    disk.truncate("a")
    disk.write("a", NEW)
    disk.close("a")
    disk.create("later")
    disk.fsync("later")
    assert {"a": b"", "later": b""} in left(disk, "xfs")
    assert {"a": bytes(100), "later": b""} not in left(disk, "xfs")


def test_x4_xfs_tears_what_it_overwrites_and_nothing_that_grows():
    disk = Disk(a=b"o" * 4096)
    disk.write("a", b"n" * 4096)
    assert {"a": b"n" * 512 + b"o" * 3584} in left(disk, "xfs")
    disk = Disk(a=b"o" * 4096)
    disk.write("a", b"n" * 4096, 4096)
    assert {len(each["a"]) for each in left(disk, "xfs")} == {4096, 8192}


def test_x5_xfs_a_truncation_that_sets_the_size_writes_back_first():
    disk = Disk(a=OLD)
    disk.write("a", NEW, 100)
    disk.truncate("a", 300)
    assert {"a": OLD + bytes(200)} not in left(disk, "xfs")
    assert {"a": OLD + NEW + bytes(100)} in left(disk, "xfs")
    assert {"a": OLD + bytes(200)} in left(disk, "ext4")


def test_x6_xfs_sync_may_leave_overwritten_data_in_the_cache_of_the_disk():
    disk = Disk(a=OLD)
    disk.write("a", NEW)
    disk.sync()
    assert {"a": OLD} in left(disk, "xfs")
    assert left(disk, "ext4") == left(disk, "btrfs") == [{"a": NEW}]
    disk.fsync("")  # a directory that has not changed
    assert {"a": OLD} in left(disk, "xfs")
    disk.create("b")
    disk.fsync("b")
    assert left(disk, "xfs") == [{"a": NEW, "b": b""}]


def test_x6_xfs_sync_makes_new_data_durable():
    disk = Disk(a=OLD)
    disk.write("a", NEW, 100)
    disk.create("b")
    disk.write("b", NEW)
    disk.sync()
    assert {"a": OLD, "b": NEW} not in left(disk, "xfs")
    assert all(found["b"] == NEW and len(found["a"]) == 200 for found in left(disk, "xfs"))


# ---- btrfs ---------------------------------------------------------------------------------------


def test_b1_btrfs_names_persist_in_order_with_the_data_written_back_until_then():
    disk = Disk(a=OLD)
    disk.create("b")
    disk.write("a", NEW, 100)
    disk.rename("a", "c")
    found = left(disk, "btrfs")
    assert {"a": OLD} in found and {"a": OLD, "b": b""} in found and {"c": OLD, "b": b""} in found
    assert {"c": OLD} not in found and {"a": OLD + NEW} not in found


def test_b2_btrfs_tears_nothing():
    disk = Disk(a=b"o" * 8192)
    disk.write("a", b"n" * 8192)
    assert left(disk, "btrfs") == [{"a": b"n" * 8192}, {"a": b"o" * 8192}]


def test_b2_btrfs_a_lost_append_may_read_as_zeros_if_other_pages_were_being_written_back():
    disk = Disk(a=b"")
    disk.write("a", LOW)
    assert {"a": bytes(4096)} not in left(disk, "btrfs")
    disk.write("a", HIGH, 4096)
    found = [each["a"] for each in left(disk, "btrfs")]
    assert LOW + bytes(4096) in found and LOW in found
    disk = Disk(a=b"")
    disk.write("a", b"1" * 50)
    disk.write("a", b"2" * 50, 50)  # of the same page: waits until that is written back
    assert b"1" * 50 + bytes(50) not in [each["a"] for each in left(disk, "btrfs")]


def test_b3_btrfs_a_new_file_may_have_both_names_after_a_move():
    disk = Disk()
    disk.mkdir("old")
    disk.mkdir("new")
    disk.sync()
    disk.create("old/a")
    disk.write("old/a", NEW)
    disk.fsync("old/a")
    disk.fsync("old")
    disk.rename("old/a", "new/a")
    disk.fsync("new")
    both = {"old": None, "new": None, "old/a": NEW, "new/a": NEW}
    assert both in left(disk, "btrfs") and both not in left(disk, "xfs")
    disk.fsync("new/a")
    assert both not in left(disk, "btrfs")


def test_b2_btrfs_a_truncation_may_leave_zeros_in_place_of_data_written_before():
    disk = Disk(a=OLD)
    disk.write("a", NEW, 100)
    disk.truncate("a", 200)
    assert {"a": OLD + bytes(100)} in left(disk, "btrfs")


def test_b3_btrfs_a_new_file_in_a_synced_directory_is_empty():
    disk = Disk()
    disk.create("a")
    disk.write("a", NEW)
    disk.fsync("")
    assert {"a": b""} in left(disk, "btrfs")
    assert all("a" in found for found in left(disk, "btrfs"))


def test_b3_btrfs_a_removal_is_durable_with_its_directory():
    disk = Disk(a=OLD, b=OLD)
    disk.unlink("a")
    disk.fsync("b")
    assert {"a": OLD, "b": OLD} in left(disk, "btrfs")
    disk.fsync("")
    assert left(disk, "btrfs") == [{"b": OLD}]


def test_b4_btrfs_a_rename_of_a_synced_file_is_durable_with_the_next_sync():
    disk = Disk(b=OLD)
    disk.create("tmp")
    disk.write("tmp", NEW)
    disk.fsync("tmp")
    disk.rename("tmp", "a")
    assert {"tmp": NEW, "b": OLD} in left(disk, "btrfs")
    disk.write("b", NEW)
    disk.fsync("b")
    assert left(disk, "btrfs") == [{"a": NEW, "b": NEW}]


@BOTH
def test_recipes_rebuild_the_same_states(profile):
    disk = renamed_over(sync_file=False, sync_directory=True)
    disk.write("a", b"x", 50, durable=True)
    disk.unlink("a")
    for at in range(disk.at + 1):
        for state in states(disk.trace(), at, profile):
            again = rebuild(disk.trace(), at, profile, state.recipe)
            assert again.image.digest == state.image.digest


# ---- where it happens ----------------------------------------------------------------------------


def systems(disk, candidate, is_bad):
    return possible_on(disk.trace(), candidate, lambda image: is_bad(listing(image)))


def test_a_failure_is_looked_for_on_every_file_system():
    disk = renamed_over(sync_file=False, sync_directory=True)
    zeros = next(s for s in states_at(disk.trace(), disk.at, "ext4") if listing(s.image) == {"a": bytes(100)})
    assert systems(disk, zeros, lambda found: found["a"] == bytes(100)) == {
        "ext4": True,
        "xfs": False,
        "btrfs": False,
    }
    assert all(systems(disk, zeros, lambda found: found["a"] != NEW).values())


def test_the_same_state_needs_no_judge():
    disk = Disk(a=OLD)
    disk.write("a", NEW, 100)
    lost = rebuild(disk.trace(), disk.at, "posix", Recipe("nothing"))
    assert all(systems(disk, lost, lambda _: False).values())


def test_the_file_systems_in_words():
    assert in_words({"ext4": True, "xfs": True, "btrfs": False}) == "happens on ext4, xfs; not seen on btrfs"
    assert in_words({"ext4": True, "xfs": True, "btrfs": True}) == "happens on ext4, xfs, btrfs"
    assert in_words({"ext4": False, "xfs": False, "btrfs": False}).startswith(
        "not seen on ext4, xfs or btrfs"
    )
