"""The control stores and the expected verdict on each.

`expected` is the verdict that chaoskit must return per tier. Every VIOLATED has its reason; all of them
were measured, and agree with the documentation of SQLite and of the file systems.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from chaoskit.model import Json, Scenario, Target

TIERS = ("process", "torn", "power-ext4", "power-posix")
SAVES = 5
H, V = "HOLDS", "VIOLATED"


class Control(msgspec.Struct, frozen=True):
    name: str
    store: str
    options: dict[str, Any]
    expected: tuple[str, str, str, str]  # one per tier
    why: str

    def scenario(self) -> Scenario:
        return Scenario(
            name=f"store-{self.name}",
            summary=self.why,
            target=Target(
                entry="chaoskit_scenarios.stores.target:main", preload=("chaoskit_scenarios.stores.kinds",)
            ),
            workload=self._workload(),
            invariants=("recovers", "saves"),
        )

    def _workload(self) -> Callable[[int], Json]:
        def workload(seed: int) -> Json:
            rng = random.Random(seed)
            sizes = [rng.choice((10, 700, 5000)) for _ in range(SAVES)]
            saves = [[n, f"{n}:" + chr(96 + n) * size] for n, size in enumerate(sizes, 1)]
            store = f"chaoskit_scenarios.stores.kinds:{self.store}"
            return {"store": store, "options": self.options, "saves": saves}

        return workload


def _sqlite(journal: str, synchronous: str, expected: tuple[str, str, str, str], why: str) -> Control:
    options = {"journal": journal, "synchronous": synchronous}
    return Control(f"sqlite-{journal}-{synchronous}", "SqliteStore", options, expected, why)


CONTROLS = (
    _sqlite("delete", "off", (H, H, V, V), "nothing is synced"),
    _sqlite("delete", "normal", (H, H, V, V), "the unlink of the journal is not synced"),
    _sqlite("delete", "full", (H, H, V, V), "the unlink of the journal is not synced"),
    _sqlite("delete", "extra", (H, H, H, H), "sound: the directory is synced after the unlink"),
    _sqlite("truncate", "off", (H, H, V, V), "nothing is synced"),
    _sqlite("truncate", "normal", (H, H, V, V), "the truncation of the journal is not synced"),
    _sqlite("truncate", "full", (H, H, H, H), "sound: the truncation is synced"),
    _sqlite("truncate", "extra", (H, H, H, H), "sound: same as full"),
    _sqlite("persist", "off", (H, H, V, V), "nothing is synced"),
    _sqlite(
        "persist",
        "normal",
        (H, H, V, V),
        "header and pages of the journal share one sync, and its checksum samples few bytes",
    ),
    _sqlite("persist", "full", (H, H, H, H), "sound: the pages are synced before the header"),
    _sqlite("persist", "extra", (H, H, H, H), "sound: same as full"),
    _sqlite("memory", "off", (V, V, V, V), "a kill during a commit leaves half of it"),
    _sqlite("memory", "normal", (V, V, V, V), "a kill during a commit leaves half of it"),
    _sqlite("memory", "full", (V, V, V, V), "a kill during a commit leaves half of it"),
    _sqlite("memory", "extra", (V, V, V, V), "a kill during a commit leaves half of it"),
    _sqlite("off", "off", (V, V, V, V), "no journal at all"),
    _sqlite("off", "normal", (V, V, V, V), "no journal at all"),
    _sqlite("off", "full", (V, V, V, V), "no journal at all"),
    _sqlite("off", "extra", (V, V, V, V), "no journal at all"),
    _sqlite("wal", "off", (H, H, V, V), "nothing is synced"),
    _sqlite("wal", "normal", (H, H, V, V), "the log is synced at checkpoints only"),
    _sqlite("wal", "full", (H, H, H, H), "sound: the log is synced at every commit"),
    _sqlite("wal", "extra", (H, H, H, H), "sound: same as full"),
    Control("jsonl", "JsonlStore", {}, (H, H, H, H), "sound: append, fsync, directory fsync"),
    Control("jsonl-unsynced", "JsonlStore", {"sync": False}, (H, H, V, V), "no fsync"),
    Control(
        "jsonl-unnamed",
        "JsonlStore",
        {"sync_directory": False},
        (H, H, H, V),
        "no fsync of the directory: only ext4 keeps the name of a synced file",
    ),
    Control("jsonl-uncut", "JsonlStore", {"cut": False}, (H, V, V, V), "a torn last line is not cut off"),
    Control(
        "snapshot", "SnapshotStore", {}, (H, H, H, H), "sound: temporary file, fsync, rename, directory fsync"
    ),
    Control(
        "snapshot-unsynced", "SnapshotStore", {"sync": False}, (H, H, V, V), "renamed before it is synced"
    ),
    Control(
        "snapshot-unnamed",
        "SnapshotStore",
        {"sync_directory": False},
        (H, H, V, V),
        "the rename is not synced: an acknowledged save is lost",
    ),
    Control(
        "snapshot-in-place",
        "SnapshotStore",
        {"rename": False},
        (V, V, V, V),
        "truncated and rewritten in place",
    ),
)

SCENARIOS = {f"store-{control.name}": control.scenario() for control in CONTROLS}
