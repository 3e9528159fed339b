"""What is known about real stores, and what the model must therefore find.

Each store runs once under the recorder; every state that a power loss could have left is put on
tmpfs, opened by the store itself, and compared with what had been acknowledged.
"""

from __future__ import annotations

import random

import pytest

from chaoskit.disk import interposer
from chaoskit.disk.hint import explain, minimise
from chaoskit.disk.kill_states import kill_states
from chaoskit.disk.power_states import power_states
from chaoskit.disk.staging import StagingDirectory
from tests.disk import stores
from tests.disk.listings import same_as
from tests.disk.positions import image_at
from tests.disk.stores import judge_snapshot, judge_sqlite, record, verdicts

pytestmark = pytest.mark.skipif(interposer.available() is not None, reason=str(interposer.available()))
COMMITS, BUDGET = 6, 600
HOLDS, LOSES, TEARS = {"holds"}, {"holds", "lost"}, {"holds", "corrupt"}
SQLITE = {
    # (journal mode, synchronous): what is found under (posix, ext4)
    ("WAL", "FULL"): (HOLDS, HOLDS),
    ("WAL", "NORMAL"): (LOSES, LOSES),
    # The journal's unlink is the commit, and nobody syncs the directory: on ext4 too it stays in
    # the journal of the file system until the next commit there.
    ("DELETE", "FULL"): (LOSES, LOSES),
    ("DELETE", "EXTRA"): (HOLDS, HOLDS),
}
SNAPSHOTS = {
    # (file synced, directory synced)
    (True, True): (HOLDS, HOLDS),
    (True, False): (LOSES, LOSES),
    # ext4 allocates blocks before a rename over an existing file; their data may come too late (E6).
    (False, True): (TEARS, TEARS),
}


def found_in(recorded, judge, tmp_path_factory):
    stage = tmp_path_factory.mktemp("stage")
    return tuple(set(verdicts(recorded, profile, judge, stage, BUDGET)) for profile in ("posix", "ext4"))


@pytest.mark.parametrize(("journal", "level"), SQLITE)
def test_sqlite_modes_keep_what_they_are_known_to_keep(tmp_path, tmp_path_factory, journal, level):
    recorded = record(
        tmp_path,
        stores.SQLITE_SETUP.format(journal=journal),
        stores.SQLITE_COMMITS.format(level=level, commits=COMMITS),
    )
    assert found_in(recorded, judge_sqlite, tmp_path_factory) == SQLITE[journal, level]


@pytest.mark.parametrize(("sync_file", "sync_directory"), SNAPSHOTS)
def test_snapshots_need_a_sync_of_file_and_directory(tmp_path, tmp_path_factory, sync_file, sync_directory):
    program = stores.SNAPSHOTS_ASIDE.format(
        commits=COMMITS, sync_file=sync_file, sync_directory=sync_directory
    )
    recorded = record(tmp_path, stores.SNAPSHOT_SETUP, program)
    found = found_in(recorded, judge_snapshot, tmp_path_factory)
    assert found == SNAPSHOTS[sync_file, sync_directory]


def test_truncate_and_rewrite_tears_even_with_fsync(tmp_path, tmp_path_factory):
    program = stores.SNAPSHOTS_IN_PLACE.format(commits=COMMITS)
    recorded = record(tmp_path, stores.SNAPSHOT_SETUP, program)
    assert all("corrupt" in found for found in found_in(recorded, judge_snapshot, tmp_path_factory))


def test_a_kill_loses_nothing_that_sqlite_acknowledged(tmp_path, tmp_path_factory):
    trace, acks = record(
        tmp_path,
        stores.SQLITE_SETUP.format(journal="WAL"),
        stores.SQLITE_COMMITS.format(level="NORMAL", commits=COMMITS),
    )
    stage = StagingDirectory(tmp_path_factory.mktemp("stage"))
    for state in kill_states(trace):
        acknowledged = sum(ack <= state.position for ack in acks)
        stage.show(state.image)
        assert judge_sqlite(type(tmp_path)(stage.root), acknowledged) == "holds", state.position


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_the_end_of_the_replay_is_the_real_directory(tmp_path, journal):
    trace, _ = record(
        tmp_path,
        stores.SQLITE_SETUP.format(journal=journal),
        stores.SQLITE_COMMITS.format(level="FULL", commits=COMMITS),
    )
    end = image_at(trace, len(trace.ops))
    assert same_as(tmp_path, end, ignore=lambda path: path.endswith("-shm"))


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
@pytest.mark.parametrize("when", ["before", "after", "half"])
def test_a_rebuilt_state_is_what_a_real_kill_left(tmp_path, journal, when):
    setup = stores.SQLITE_SETUP.format(journal=journal)
    program = stores.SQLITE_COMMITS.format(level="FULL", commits=COMMITS)
    (tmp_path / "first").mkdir()
    whole, _ = record(tmp_path / "first", setup, program)
    writes = [at for at, op in enumerate(whole.ops) if op.kind == "write" and len(op.data) > 1]
    for at in random.Random(7).sample(writes, 5):
        directory = tmp_path / str(at)
        directory.mkdir()
        trace = stores.killed(directory, setup, program, interposer.kill(at, when))
        end = image_at(trace, len(trace.ops))
        assert same_as(directory, end, ignore=lambda path: path.endswith("-shm")), at


@pytest.mark.parametrize("profile", ["posix", "ext4"])
def test_the_hint_for_sqlites_default_names_the_journals_directory(tmp_path, tmp_path_factory, profile):
    trace, acks = record(
        tmp_path,
        stores.SQLITE_SETUP.format(journal="DELETE"),
        stores.SQLITE_COMMITS.format(level="FULL", commits=COMMITS),
    )
    directory = tmp_path_factory.mktemp("stage")
    stage = StagingDirectory(directory)

    def judged(image, acknowledged):
        stage.show(image)
        return judge_sqlite(directory, acknowledged)

    found = power_states(trace, acks, profile, BUDGET)
    lost = next(s for s in found if judged(s.image, s.acknowledged) == "lost")
    least = minimise(trace, lost.candidate, lambda image: judged(image, lost.acknowledged) == "lost")
    hint = explain(trace, least, ack=acks[lost.acknowledged - 1])
    assert [loss.words for loss in hint.losses] == ["unlink db-journal"]
    assert [(sync.path, sync.before) for sync in hint.missing] == [(".", "the acknowledgement")]
