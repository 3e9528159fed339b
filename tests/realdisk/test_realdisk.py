"""The model of ext4 against a real ext4: no state that the kernel leaves is impossible in the model.

A bounded form of ci/real-disk; it is skipped, with the reason, where file systems cannot be mounted.
"""

from __future__ import annotations

import random

import pytest

from tests.realdisk.__main__ import generated_programs, program_of
from tests.realdisk.compare import compare, perform, random_plan, telling_plans, words
from tests.realdisk.crashes import Cache, crashes
from tests.realdisk.device import BLOCK, FILE_SYSTEMS, Workshop, missing
from tests.realdisk.sequences import INITIAL, PAGE, SEQUENCES

EXT4 = FILE_SYSTEMS["ext4"]
# The crash is in the middle of an O_DSYNC write: the model has it done, or not begun.
IN_FLIGHT = {"durable_write"}
QUICK = ("rename_over_and_sync_directory", "append_across_blocks", "overwrite_and_truncate")


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    reason = missing(EXT4)
    if reason:
        pytest.skip(f"not compared with a real ext4: {reason}")
    return Workshop(tmp_path_factory.mktemp("realdisk"), EXT4, INITIAL)


def impossible(shop, program, plans, **options):
    found = compare(shop, "ext4", program, INITIAL, plans, **options)
    assert found.disks > len(plans)
    return [f"after {at}: {words(state)} [{how}]" for at, state, how in found.unexplained()]


@pytest.mark.stress
@pytest.mark.parametrize("name", sorted(SEQUENCES.keys() - IN_FLIGHT))
def test_the_model_allows_what_a_real_ext4_leaves(shop, name):
    count = len(perform(shop, SEQUENCES[name], INITIAL, {}, keep_open=True)[0].ops)
    plans = list(telling_plans(count))
    if name not in QUICK:
        plans = random.Random(name).sample(plans, min(8, len(plans)))
    assert impossible(shop, SEQUENCES[name], plans) == []


@pytest.mark.exhaustive
def test_the_model_allows_what_generated_programs_leave(shop):
    for number, steps in enumerate(generated_programs(seed=1, count=12)):
        if any(step[-1] is True for step in steps):  # O_DSYNC
            continue
        rng = random.Random(number)
        plans = [random_plan(rng, len(steps)) for _ in range(3)]
        found = compare(shop, "ext4", program_of(steps), INITIAL, plans, seed=number)
        assert [f"{steps}: {words(state)} [{how}]" for _, state, how in found.unexplained()] == []


@pytest.mark.stress
def test_a_file_that_was_not_synced_is_really_full_of_zeros(shop):
    """The comparison could fail: the state that older models did not have is observed."""
    plan = {2: ["slow", "start writeback", "commit", "fast"]}
    found = compare(shop, "ext4", SEQUENCES["create_and_write"], INITIAL, [plan])
    assert bytes(5000) in {dict(state).get("new") for state in found.observed[-1]}


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
