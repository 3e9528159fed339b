"""The ways in which programs save a file, and what a power loss leaves of each: measured, and in the model.

Counts are of disks after the save had returned. What is possible while it runs is listed without counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from chaoskit.disk.ops import Profile
from tests.disk.listings import Content
from tests.realdisk.compare import compare, perform, telling_plans
from tests.realdisk.device import Workshop
from tests.realdisk.performing import RealDisk

OLD, NEW = b"o" * 6000, b"n" * 6000
INITIAL = {"file": OLD, "log": OLD}


class Way(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    save: Callable[[RealDisk], None]
    file: str = "file"
    new: bytes = NEW


def overwrite(disk: RealDisk) -> None:
    disk.write("file", NEW)
    disk.close("file")


def overwrite_and_sync(disk: RealDisk) -> None:
    disk.write("file", NEW)
    disk.fsync("file")


def rewrite(disk: RealDisk) -> None:
    disk.truncate("file")
    disk.write("file", NEW)
    disk.close("file")


def rewrite_and_sync(disk: RealDisk) -> None:
    rewrite(disk)
    disk.fsync("file")


def aside(disk: RealDisk, *, sync_file: bool, sync_directory: bool) -> None:
    disk.create("temp")
    disk.write("temp", NEW)
    if sync_file:
        disk.fsync("temp")
    disk.close("temp")
    disk.rename("temp", "file")
    if sync_directory:
        disk.fsync("")


def append(disk: RealDisk) -> None:
    disk.write("log", NEW, len(OLD))
    disk.close("log")


def append_then_sync_another(disk: RealDisk) -> None:
    append(disk)
    disk.create("index")
    disk.write("index", b"i" * 20)
    disk.fsync("index")


def append_and_sync(disk: RealDisk) -> None:
    disk.write("log", NEW, len(OLD))
    disk.fdatasync("log")


def create_and_sync(disk: RealDisk) -> None:
    disk.create("made")
    disk.write("made", NEW)
    disk.fsync("made")


LOG = {"file": "log", "new": OLD + NEW}
WAYS = {
    "overwrite": Way(title="overwrite in place", save=overwrite),
    "overwrite-sync": Way(title="overwrite in place, fsync", save=overwrite_and_sync),
    "rewrite": Way(title="`open('w')`, write, close", save=rewrite),
    "rewrite-sync": Way(title="`open('w')`, write, fsync", save=rewrite_and_sync),
    "rename": Way(title="temp, rename", save=lambda disk: aside(disk, sync_file=False, sync_directory=False)),
    "rename-dir": Way(
        title="temp, rename, fsync of the directory",
        save=lambda disk: aside(disk, sync_file=False, sync_directory=True),
    ),
    "sync-rename": Way(
        title="temp, fsync, rename", save=lambda disk: aside(disk, sync_file=True, sync_directory=False)
    ),
    "sync-rename-dir": Way(
        title="temp, fsync, rename, fsync of the directory",
        save=lambda disk: aside(disk, sync_file=True, sync_directory=True),
    ),
    "append": Way(title="append", save=append, **LOG),
    "append-other": Way(
        title="append, then fsync of another, new file", save=append_then_sync_another, **LOG
    ),
    "append-sync": Way(title="append, fdatasync", save=append_and_sync, **LOG),
    "create-sync": Way(title="create, write, fsync", save=create_and_sync, file="made"),
}


def outcome(way: Way, content: Content | None, *, there: bool) -> str:
    """What has become of the saved file."""
    if not there:
        return "missing"
    assert isinstance(content, bytes)
    if content == way.new:
        return "new"
    if content == OLD:
        return "old"
    if not content:
        return "empty"
    return "zeros" if not content.strip(b"\0") else "damaged"


class Measured(msgspec.Struct, kw_only=True):
    after: dict[str, int]  # the save had returned
    during: list[str]  # it had not
    after_in_model: list[str]
    during_in_model: list[str]
    disks: int


def measure(shop: Workshop, profile: Profile, way: Way) -> Measured:
    count = len(perform(shop, way.save, INITIAL, {}, keep_open=True)[0].ops)
    found = compare(shop, profile, way.save, INITIAL, list(telling_plans(count)))
    seen = [Counter[str]() for _ in found.observed]
    for at, states in enumerate(found.counts):
        for state, times in states.items():
            seen[at][_outcome(way, state)] += times
    made = [{_outcome(way, state) for state in states} for states in found.generated]
    return Measured(
        after=dict(sorted(seen[-1].items())),
        during=sorted(set().union(*seen[:-1])),
        after_in_model=sorted(made[-1]),
        during_in_model=sorted(set().union(*made[:-1])),
        disks=found.disks,
    )


def _outcome(way: Way, state: frozenset[tuple[str, Content]]) -> str:
    files = dict(state)
    return outcome(way, files.get(way.file), there=way.file in files)
