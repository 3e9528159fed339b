"""The rules of power loss, each in both directions: what may be left, and what may not.

`left` is what the models generate, `allowed` what the independent checker accepts.
"""

from __future__ import annotations

import pytest

from chaoskit.disk.power import rebuild
from chaoskit.disk.power_states import power_states, spread, telling_positions
from chaoskit.disk.recipe import Recipe
from tests.disk.listings import listing
from tests.disk.membership import could_survive
from tests.disk.positions import image_at, states
from tests.disk.traces import Disk

BOTH = pytest.mark.parametrize("profile", ["posix", "ext4"])
NEW, OLD = b"n" * 100, b"o" * 100


def left(disk, profile, **options):
    return [listing(state.image) for state in states(disk.trace(), disk.at, profile, **options)]


def allowed(disk, profile, **listing):
    return could_survive(disk.trace(), disk.at, profile, listing)


def saved_aside(*, sync_file=True, sync_directory=True, **files):
    disk = Disk(**files)
    disk.create("tmp")
    disk.write("tmp", NEW)
    if sync_file:
        disk.fsync("tmp")
    disk.rename("tmp", "data")
    if sync_directory:
        disk.fsync("")
    return disk


# ---- both profiles -------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("sync", ["fsync", "fdatasync"])
def test_r1_e2_synced_data_and_sizes_survive(profile, sync):
    disk = Disk(a=OLD)
    disk.write("a", NEW, 50)
    getattr(disk, sync)("a")
    assert left(disk, profile) == [{"a": OLD[:50] + NEW}]
    assert not allowed(disk, profile, a=OLD)


@BOTH
def test_r1_e2_unsynced_data_may_be_lost(profile):
    disk = Disk(a=OLD)
    disk.write("a", NEW)
    assert {"a": OLD} in left(disk, profile)
    assert {"a": NEW} in left(disk, profile)


@BOTH
def test_r1_e2_a_synced_truncation_stays(profile):
    disk = Disk(a=OLD)
    disk.truncate("a", 10)
    assert {"a": OLD} in left(disk, profile)
    disk.fdatasync("a")
    assert left(disk, profile) == [{"a": OLD[:10]}]


@BOTH
def test_r2_e1_a_synced_directory_keeps_its_names(profile):
    disk = Disk(old=OLD)
    disk.create("a")
    disk.unlink("old")
    assert {"old": OLD} in left(disk, profile)
    disk.fsync("")
    assert left(disk, profile) == [{"a": b""}]
    assert not allowed(disk, profile, old=OLD)


@BOTH
def test_temp_fsync_rename_fsync_holds(profile):
    assert left(saved_aside(data=OLD), profile) == [{"data": NEW}]


@BOTH
def test_temp_fsync_rename_is_old_or_new_and_never_torn(profile):
    found = left(saved_aside(data=OLD, sync_directory=False), profile)
    assert all(listing["data"] in (OLD, NEW) for listing in found)
    assert {OLD, NEW} == {listing["data"] for listing in found}


@BOTH
def test_r8_a_durable_write_survives(profile):
    disk = Disk(a=OLD)
    disk.write("a", NEW, durable=True)
    assert left(disk, profile) == [{"a": NEW}]
    assert not allowed(disk, profile, a=OLD)


def test_r8_ext4_a_durable_write_does_not_sync_other_pages():
    disk = Disk(a=b"o" * 8192)
    disk.write("a", b"1" * 4096)
    disk.write("a", b"2" * 4096, 4096, durable=True)
    kept = [{"a": page * 4096 + b"2" * 4096} for page in (b"1", b"o")]
    assert all(state in left(disk, "ext4") for state in kept)
    assert all(listing["a"].endswith(b"2" * 4096) for listing in left(disk, "ext4"))
    disk.fsync("a")
    assert left(disk, "ext4") == kept[:1]


@BOTH
def test_e9_sync_keeps_everything(profile):
    disk = saved_aside(data=OLD, sync_file=False, sync_directory=False)
    disk.mkdir("d")
    disk.create("d/f")
    disk.sync()
    assert left(disk, profile) == [{"data": NEW, "d": None, "d/f": b""}]


@BOTH
def test_truncate_and_rewrite_tears(profile):
    disk = Disk(a=OLD)
    disk.truncate("a")
    assert {"a": b""} in left(disk, profile)
    disk.write("a", NEW)
    assert {"a": OLD} in left(disk, profile)


@BOTH
def test_holes_and_preallocation_are_modelled(profile):
    disk = Disk(a=OLD)
    disk.punch("a", 0, 50)
    disk.allocate("a", 100, 50)
    kept, lost = bytes(50) + OLD[50:] + bytes(50), OLD
    assert kept in [listing["a"] for listing in left(disk, profile)]
    assert lost in [listing["a"] for listing in left(disk, profile)]
    disk.fsync("a")
    assert left(disk, profile) == [{"a": kept}]


@BOTH
def test_a_hard_link_names_the_same_file_or_is_missing(profile):
    disk = Disk(a=OLD)
    disk.link("a", "b")
    assert left(disk, profile) == [{"a": OLD, "b": OLD}, {"a": OLD}]


# ---- posix ---------------------------------------------------------------------------------------


def test_r1_posix_fsync_of_a_file_does_not_keep_its_name():
    disk = Disk()
    disk.create("a")
    disk.write("a", NEW)
    disk.fsync("a")
    assert left(disk, "posix") == [{"a": NEW}, {}]
    disk.fsync("")
    assert left(disk, "posix") == [{"a": NEW}]


def test_r2_posix_fsync_of_a_directory_keeps_neither_data_nor_its_own_name():
    disk = Disk()
    disk.mkdir("d")
    disk.create("d/f")
    disk.write("d/f", NEW)
    disk.fsync("d")
    found = left(disk, "posix")
    assert {} in found and {"d": None, "d/f": b""} in found
    assert {"d": None} not in found  # its entry is durable if the directory itself survives
    assert not allowed(disk, "posix", d=None)


def test_r3_posix_writes_persist_in_any_subset():
    disk = Disk(a=bytes(0))
    disk.write("a", b"1" * 10, 0)
    disk.write("a", b"2" * 10, 10)
    assert {"a": bytes(10) + b"2" * 10} in left(disk, "posix")
    assert {"a": b"1" * 10} in left(disk, "posix")


def test_r3_posix_nothing_is_invented():
    disk = Disk(a=OLD)
    disk.write("a", NEW)
    assert not allowed(disk, "posix", a=b"x" + OLD[1:])
    assert not allowed(disk, "posix", a=bytes(1) + OLD[1:])
    assert allowed(disk, "posix", a=NEW[:7] + OLD[7:])


def test_r4_posix_a_rename_never_loses_the_file():
    disk = Disk(a=OLD)
    disk.mkdir("d")
    disk.fsync("")
    disk.rename("a", "d/a")
    assert left(disk, "posix") == [{"d": None, "d/a": OLD}, {"d": None, "a": OLD}]
    for synced in ("", "d"):
        again = Disk(a=OLD)
        again.mkdir("d")
        again.fsync("")
        again.rename("a", "d/a")
        again.fsync(synced)
        assert left(again, "posix") == [{"d": None, "d/a": OLD}]


def test_r5_posix_operations_on_one_name_persist_in_order():
    disk = Disk(a=OLD, b=b"b")
    disk.rename("a", "b")
    disk.create("a")
    found = left(disk, "posix")
    assert {"a": OLD, "b": b"b"} in found and {"b": OLD} in found
    assert {"a": b"", "b": b"b"} not in found  # the file called a would be gone
    assert not allowed(disk, "posix", a=b"", b=b"b")


def test_r6_posix_moves_of_directories_never_make_a_cycle():
    disk = Disk()
    disk.mkdir("x")
    disk.mkdir("y")
    disk.sync()
    disk.rename("y", "x/y")
    disk.rename("x/y", "y")
    disk.rename("x", "y/x")
    for found in left(disk, "posix"):
        assert len(found) == 2, found


def test_r7_posix_the_size_may_survive_without_the_data():
    disk = Disk()
    disk.create("a")
    disk.fsync("")
    disk.write("a", NEW)
    assert {"a": bytes(100)} in left(disk, "posix")
    assert {"a": b""} in left(disk, "posix")


def test_r9_posix_the_last_write_is_torn_with_every_tail():
    disk = Disk(a=OLD)
    disk.write("a", b"n" * 5000, 90)
    found = {listing["a"] for listing in left(disk, "posix")}
    for cut in (1, 512, 4096, 4999):
        assert OLD[:90] + (b"n" * cut).ljust(10, b"o") in found or cut < 10
        assert (OLD[:90] + b"n" * cut + OLD[90 + cut :]).ljust(5090, b"\0") in found


def test_posix_without_the_files_fsync_the_renamed_file_may_be_empty():
    disk = saved_aside(data=OLD, sync_file=False)
    assert {"data": b""} in left(disk, "posix")


# ---- ext4 ----------------------------------------------------------------------------------------


def test_e1_ext4_names_persist_in_order():
    disk = Disk()
    disk.create("a")
    disk.create("b")
    assert left(disk, "ext4") == [{"a": b"", "b": b""}, {}, {"a": b""}]
    assert not allowed(disk, "ext4", b=b"")
    assert allowed(disk, "posix", b=b"")


def test_e2_ext4_fsync_of_a_file_keeps_all_earlier_names():
    disk = Disk()
    disk.create("other")
    disk.create("a")
    disk.write("a", NEW)
    disk.fsync("a")
    assert left(disk, "ext4") == [{"other": b"", "a": NEW}]


def test_e3_ext4_a_new_file_may_be_empty_or_shorter_or_end_in_zeros():
    disk = Disk()
    disk.create("a")
    disk.write("a", b"1" * 4096, 0)
    disk.write("a", b"2" * 4096, 4096)
    disk.create("b")
    found = {listing["a"] for listing in left(disk, "ext4") if "a" in listing}
    first, second, zeros = b"1" * 4096, b"2" * 4096, bytes(4096)
    assert found == {b"", first, first + second, first + zeros, zeros + zeros, zeros + second}


def test_e3_ext4_another_files_fsync_leaves_a_new_file_empty_or_full_of_zeros():
    disk = Disk()
    disk.create("a")
    disk.write("a", NEW)
    disk.create("b")
    disk.fsync("b")
    assert [listing["a"] for listing in left(disk, "ext4")] == [NEW, b"", bytes(100)]
    assert not allowed(disk, "ext4", b=b"")


def test_e2_ext4_a_sync_that_has_nothing_to_commit_keeps_no_names():
    disk = Disk(a=OLD, b=b"b")
    disk.write("a", NEW)
    disk.rename("b", "c")
    disk.fdatasync("a")
    assert left(disk, "ext4") == [{"a": NEW, "c": b"b"}, {"a": NEW, "b": b"b"}]
    disk.write("a", NEW, 100)  # now the size changes
    disk.fdatasync("a")
    assert left(disk, "ext4") == [{"a": NEW + NEW, "c": b"b"}]


def test_e4_ext4_overwritten_pages_persist_independently():
    disk = Disk(a=b"o" * 8192)
    disk.write("a", b"1" * 8192)
    disk.write("a", b"2" * 4096)
    found = {(listing["a"][:1], listing["a"][-1:]) for listing in left(disk, "ext4")}
    assert {(b"2", b"1"), (b"o", b"o"), (b"1", b"1"), (b"2", b"o")} <= found


def test_e4_ext4_one_page_is_as_it_was_at_some_time():
    disk = Disk(a=OLD)
    disk.write("a", b"1", 0)
    disk.write("a", b"2", 1)
    found = {listing["a"][:2] for listing in left(disk, "ext4")}
    assert found == {b"oo", b"1o", b"12"}
    assert b"o2" in {listing["a"][:2] for listing in left(disk, "posix")}


def test_e4_ext4_an_overwrite_may_persist_before_an_earlier_name():
    disk = Disk(db=OLD)
    disk.create("journal")
    disk.write("journal", OLD)
    disk.write("db", NEW)
    assert {"db": NEW} in left(disk, "ext4")


def test_e5_ext4_an_append_within_a_block_may_end_in_zeros():
    disk = Disk(a=OLD)
    disk.write("a", NEW, 100)
    disk.create("b")
    disk.fsync("b")
    assert left(disk, "ext4") == [{"a": OLD + NEW, "b": b""}, {"a": OLD + bytes(100), "b": b""}]


def test_e5_ext4_an_append_across_a_block_may_end_in_zeros_or_at_the_block():
    disk = Disk(a=OLD)
    disk.write("a", b"n" * 5000, 100)
    disk.create("b")
    found = left(disk, "ext4")
    assert {"a": OLD} in found
    after = {listing["a"] for listing in found if "b" in listing}
    block = 4096 - 100
    assert after == {
        OLD + b"n" * 5000,
        OLD + b"n" * block,  # its first page only: the end of the block is the end of the file
        OLD + bytes(block),
        OLD + b"n" * block + bytes(5000 - block),  # the second page has a block, not yet its data
    }


def test_e5_ext4_truncate_and_allocate_do_not_write_back_what_was_written_before():
    disk = Disk(a=OLD)
    disk.write("a", b"n" * 5000)
    disk.truncate("a", 5000)
    assert {"a": OLD + bytes(4900)} in left(disk, "ext4")
    disk = Disk()
    disk.create("a")
    disk.write("a", NEW)
    disk.allocate("a", 0, 8192)
    assert {"a": bytes(8192)} in left(disk, "ext4")


def test_e5_ext4_an_append_whose_size_is_not_committed_cannot_be_seen():
    disk = Disk(a=OLD)
    disk.create("x")
    disk.write("a", NEW, 100)
    state = rebuild(disk.trace(), disk.at, "ext4", Recipe("without", (0,)))
    assert listing(state.image) == {"a": OLD}
    assert state.image.digest == image_at(disk.trace(), 0).digest


def test_e6_ext4_rename_over_a_file_keeps_its_size_but_not_its_data():
    over = left(saved_aside(data=OLD, sync_file=False), "ext4")
    assert over == [{"data": NEW}, {"data": bytes(100)}]
    fresh = left(saved_aside(sync_file=False, sync_directory=False), "ext4")
    assert {"data": b""} in fresh


def test_e6_ext4_a_patch_after_the_sync_may_be_lost_although_the_rename_is_not():
    disk = Disk(data=OLD)
    disk.create("tmp")
    disk.write("tmp", NEW)
    disk.fsync("tmp")
    disk.write("tmp", b"patch")
    disk.rename("tmp", "data")
    disk.fsync("")
    assert left(disk, "ext4") == [{"data": b"patch" + NEW[5:]}, {"data": NEW}]


def test_e7_ext4_a_rewritten_file_has_blocks_before_later_metadata_but_not_its_data():
    disk = Disk(a=OLD)
    disk.truncate("a")
    disk.write("a", NEW)
    assert {"a": b""} in left(disk, "ext4")
    disk.close("a")
    disk.create("later")
    found = left(disk, "ext4")
    assert {"a": b""} in found and {"a": b"", "later": b""} not in found
    disk.fsync("later")
    assert left(disk, "ext4") == [{"a": NEW, "later": b""}, {"a": bytes(100), "later": b""}]


def test_e7_ext4_a_rewritten_file_that_stays_open_may_be_empty():
    disk = Disk(a=OLD)
    disk.truncate("a")
    disk.write("a", NEW)
    disk.create("later")
    disk.fsync("later")
    assert {"a": b"", "later": b""} in left(disk, "ext4")


def test_e7_ext4_allocates_once_per_truncation():
    disk = Disk(a=OLD)
    disk.truncate("a")
    disk.write("a", b"n" * 4096)
    disk.close("a")
    disk.fsync("a")
    disk.write("a", NEW, 4096)
    disk.create("later")
    disk.fsync("later")
    assert {"a": b"n" * 4096, "later": b""} in left(disk, "ext4")


def test_e8_ext4_tears_between_sectors_where_it_overwrites():
    disk = Disk(a=b"o" * 4096)
    disk.write("a", b"n" * 2000, 100)
    heads = {listing["a"].count(b"n") for listing in left(disk, "ext4")}
    assert heads == {0, 512 - 100, 2048 - 100, 2000}


def test_e8_ext4_does_not_tear_a_write_that_grows_the_file():
    disk = Disk()
    disk.create("a")
    disk.write("a", b"n" * 10_000)
    found = {listing["a"] for listing in left(disk, "ext4") if listing}
    assert found == {b"", bytes(10_000), b"n" * 10_000}


def test_e8_ext4_a_later_page_may_be_there_without_the_first():
    disk = Disk(a=b"o" * 8192)
    disk.write("a", b"n" * 8192)
    assert {"a": b"o" * 4096 + b"n" * 4096} in left(disk, "ext4")


def under_way(disk, profile):
    """States of a crash before the last operation returned."""
    trace, at = disk.trace(), disk.at - 1
    found = list(states(trace, at, profile))
    assert all(rebuild(trace, at, profile, each.recipe).image.digest == each.image.digest for each in found)
    return [listing(each.image)["a"] for each in found]


@BOTH
def test_e10_r9_a_durable_write_may_be_torn_until_it_returns(profile):
    disk = Disk(a=b"o" * 4096)
    disk.write("a", b"n" * 2048, durable=True)
    assert b"n" * 512 + b"o" * 3584 in under_way(disk, profile)
    assert left(disk, profile) == [{"a": b"n" * 2048 + b"o" * 2048}]


def test_e10_ext4_a_durable_write_does_not_take_earlier_pages_with_it():
    disk = Disk(a=b"o" * 8192)
    disk.write("a", b"1" * 4096)
    disk.write("a", b"2" * 4096, 4096, durable=True)
    assert {"a": b"o" * 4096 + b"2" * 4096} in left(disk, "ext4")
    assert all(each["a"].endswith(b"2" * 4096) for each in left(disk, "ext4"))


def test_e10_ext4_earlier_pages_may_be_missing_below_a_durable_write_that_grows_the_file():
    disk = Disk()
    disk.create("a")
    disk.write("a", b"1" * 4096)
    disk.write("a", b"2" * 4096, 4096, durable=True)
    assert {"a": bytes(4096) + b"2" * 4096} in left(disk, "ext4")
    assert {"a": b"1" * 4096 + b"2" * 4096} in left(disk, "ext4")
    assert all(each["a"].endswith(b"2" * 4096) for each in left(disk, "ext4"))


# ---- the driver ----------------------------------------------------------------------------------


def journal(commits):
    disk, acks = Disk(), []
    disk.create("log")
    for number in range(commits):
        disk.write("log", bytes([65 + number]) * 10, number * 10)
        acks.append(disk.at)
    return disk.trace(), acks


@BOTH
def test_positions_after_syncs_and_acknowledgements_come_first(profile):
    disk = Disk(a=OLD)
    disk.write("a", NEW)
    disk.fsync("a")
    disk.write("a", OLD)
    first, others = telling_positions(disk.trace(), [3])
    assert first == [2, 3] and others == [0, 1]
    found = list(power_states(disk.trace(), [3], profile, 100))
    assert [s.candidate.at for s in found][:3] == [3, 3, 2]  # after the acknowledgement first


@BOTH
def test_states_are_distinct_by_content_and_acknowledged_prefix(profile):
    trace, acks = journal(5)
    found = list(power_states(trace, acks, profile, 10_000))
    keys = {(repr(listing(s.image)), s.acknowledged) for s in found}
    assert len(keys) == len(found) > 10
    assert {s.acknowledged for s in found} == set(range(6))


@BOTH
def test_the_budget_is_kept_and_the_whole_trace_gets_its_share(profile):
    trace, acks = journal(40)
    found = list(power_states(trace, acks, profile, 60))
    assert len(found) == 60
    assert max(s.candidate.at for s in found) == len(trace.ops)
    assert len({s.candidate.at for s in found}) > 5


def test_the_same_seed_gives_the_same_states_and_another_seed_other_states():
    trace, acks = journal(12)

    def digests(seed):
        return [s.image.digest for s in power_states(trace, acks, "posix", 3000, seed=seed)]

    assert digests(1) == digests(1)
    assert digests(1) != digests(2)


def test_states_with_a_known_logical_key_come_last():
    trace, acks = journal(3)

    def key(image):
        return len(listing(image))

    found = list(power_states(trace, acks, "posix", 1000, logical_key=key))
    plain = list(power_states(trace, acks, "posix", 1000))
    keys = [(key(s.image), s.acknowledged) for s in found]
    distinct = len(set(keys))
    assert len(set(keys[:distinct])) == distinct
    assert len(found) == len(plain)


def test_positions_are_spread_evenly_and_end_with_the_last():
    assert list(spread(range(10), 20)) == list(range(10))
    assert list(spread(range(10), 3)) == [3, 6, 9]
    assert list(spread(range(10), 0)) == [9]
