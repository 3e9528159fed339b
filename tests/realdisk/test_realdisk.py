"""The models against real file systems: no state that the kernel leaves is impossible in the model.

A bounded form of ci/real-disk; it is skipped, with the reason, where file systems cannot be mounted.
"""

from __future__ import annotations

import random

import pytest

from chaoskit.disk.power import model_at
from tests.disk.programs import INITIAL as FILES
from tests.disk.traces import Disk
from tests.realdisk.__main__ import generated_programs, program_of
from tests.realdisk.compare import compare, perform, random_plan, telling_plans, words
from tests.realdisk.crashes import Cache, crashes
from tests.realdisk.device import BLOCK, FILE_SYSTEMS, Workshop, missing
from tests.realdisk.independent import explains
from tests.realdisk.sequences import INITIAL, PAGE, SEQUENCES
from tests.realdisk.whole_stores import STORES, on_a_real_disk

QUICK = ("rename_over_and_sync_directory", "append_across_blocks", "overwrite_and_truncate")
PROGRAMS = 12
SYSTEMS = pytest.mark.parametrize("system", sorted(FILE_SYSTEMS))


@pytest.fixture(scope="module")
def shops(tmp_path_factory):
    made: dict[str, Workshop] = {}

    def shop(system, initial):
        reason = missing(FILE_SYSTEMS[system])
        if reason:
            pytest.skip(f"not compared with a real {system}: {reason}")
        key = f"{system}-{len(initial)}-{initial is INITIAL}"
        if key not in made:
            made[key] = Workshop(tmp_path_factory.mktemp("realdisk"), FILE_SYSTEMS[system], initial)
        return made[key]

    return shop


@pytest.mark.stress
@SYSTEMS
@pytest.mark.parametrize("name", sorted(SEQUENCES))
def test_the_model_allows_what_a_real_file_system_leaves(shops, system, name):
    shop = shops(system, INITIAL)
    count = len(perform(shop, SEQUENCES[name], INITIAL, {}, keep_open=True)[0].ops)
    plans = list(telling_plans(count))
    if name not in QUICK or system != "ext4":
        plans = random.Random(name).sample(plans, min(4, len(plans)))
    found = compare(shop, system, SEQUENCES[name], INITIAL, plans)
    assert found.disks > len(plans)
    assert [f"after {at}: {words(state)} [{how}]" for at, state, how in found.unexplained()] == []


@pytest.mark.stress
@SYSTEMS
def test_the_model_allows_what_generated_programs_leave(shops, system):
    shop = shops(system, FILES)
    for number, steps in enumerate(generated_programs(seed=1, count=PROGRAMS)):
        rng = random.Random(number)
        plans = [random_plan(rng, len(steps)) for _ in range(2)]
        found = compare(shop, system, program_of(steps), FILES, plans, seed=number)
        assert [f"{steps}: {words(state)} [{how}]" for _, state, how in found.unexplained()] == []


@pytest.mark.stress
@pytest.mark.parametrize("name", ["reference-agent-sqlite", "reference-agent-files", "json-aside"])
def test_sound_stores_hold_on_a_real_file_system(shops, name):
    found = on_a_real_disk(shops("ext4", {}), STORES[name])
    assert found.keys() == {"holds"} and found.total() > 50


@pytest.mark.stress
def test_a_file_renamed_without_a_sync_is_corrupt_on_a_real_xfs(shops):
    """Whatever the timing: the size comes after the data, and the rename does not wait for it."""
    assert "corrupt" in on_a_real_disk(shops("xfs", {}), STORES["json-aside-no-file"])


@pytest.mark.stress
def test_a_real_ext4_leaves_zeros_and_the_model_of_xfs_does_not_explain_them(shops):
    """The comparison can fail. A commit between an append and its data moves the size only (E5)."""
    append, plan = SEQUENCES["append_within_block"], {1: ["commit"]}
    found = compare(shops("ext4", INITIAL), "xfs", append, INITIAL, [plan])
    assert INITIAL["a"] + bytes(100) in {dict(state)["a"] for _, state, _ in found.unexplained()}


LOW, HIGH, PAGES = b"1" * PAGE, b"2" * PAGE, bytes(3 * PAGE)


@pytest.mark.parametrize(
    ("profile", "content", "explained"),
    [
        ("ext4", LOW + PAGES + bytes(PAGE), True),
        ("xfs", LOW + PAGES + bytes(PAGE), False),  # X2
        ("btrfs", LOW + PAGES + bytes(PAGE), True),
        ("btrfs", bytes(PAGE) + PAGES + bytes(PAGE), False),  # B2: no writeback, no size
        ("btrfs", bytes(PAGE), False),
        ("xfs", LOW, True),
        ("xfs", bytes(PAGE) + PAGES + HIGH, True),
        ("ext4", bytes(PAGE) + PAGES + HIGH, True),
        ("ext4", LOW + PAGES, False),  # the size of nothing
        ("ext4", LOW + HIGH + PAGES, False),
    ],
)
def test_pages_are_explained_one_by_one_but_not_everything_is(profile, content, explained):
    disk = Disk(a=b"")
    disk.write("a", HIGH, 4 * PAGE)
    disk.write("a", LOW)
    model = model_at(disk.trace(), disk.at, profile)
    assert explains(model, {"a": content}) == explained
    assert not explains(model, {"b": content})


def log(*records):
    heads = ((kind.encode(), offset, data) for kind, offset, data in records)
    return b"".join(
        k + offset.to_bytes(8, "little") + len(data).to_bytes(4, "little") + data for k, offset, data in heads
    )


def test_a_flush_makes_durable_what_was_written_before_it():
    one, two = b"1" * BLOCK, b"2" * BLOCK
    written = log(
        ("M", 0, b"start"),
        ("W", 0, one),
        ("F", 0, b""),
        ("M", 0, b"op 1"),
        ("W", BLOCK, two),
        ("M", 0, b"end"),
    )
    found = [(crash.done, crash.blocks) for crash in crashes(written, {}, random.Random(0))]
    assert (0, {}) in found and (0, {0: one}) in found
    assert all(blocks[0] == one for done, blocks in found if done == 1)
    assert (1, {0: one, 1: two}) in found


def test_of_what_was_not_flushed_any_subset_may_be_left():
    cache = Cache({})
    for number in range(2):
        cache.write(number * BLOCK, bytes([number + 1]) * BLOCK)
    kept = {tuple(number for number, _ in writes) for _, writes in cache.losses(random.Random(0))}
    assert kept == {(0, 1), (), (0,), (1,)}


def test_part_of_a_block_is_laid_over_what_was_there():
    cache = Cache({0: b"o" * BLOCK})
    cache.write(1024, b"n" * 1024)
    assert cache.pending == [(0, b"o" * 1024 + b"n" * 1024 + b"o" * (PAGE - 2048))]
