"""Whole stores on a real file system that loses power, against the same stores in the model.

The program is unmodified and runs without the interposer: once alone, and once while the kernel commits all
the time. An acknowledgement is a mark in the disk's log. Each disk that a power loss could have left is
mounted, and the store itself opens it.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import lmdb
import msgspec
from chaoskit_scenarios.targets import reference_stores

from chaoskit.disk.ops import Profile
from tests.disk import stores
from tests.disk.stores import Judge, judge_snapshot, judge_sqlite
from tests.realdisk.crashes import crashes
from tests.realdisk.device import CrashedDisk, LiveDisk, Workshop

COMMITS = 3
BUDGET = 600
LINES_SETUP = """
    import os
    open("log", "w").close()
    open("index", "w").close()
    os.sync()
"""
LINES = """
    import os
    for n in range({commits}):
        with open("log", "a") as log:
            log.write(f"{{n}} " * 3000 + "\\n")
            log.flush()
            if {sync_log}:
                os.fsync(log.fileno())
        with open("index.tmp", "w") as index:
            index.write(str(n + 1))
            index.flush()
            os.fsync(index.fileno())
        os.replace("index.tmp", "index")
        home = os.open(".", os.O_RDONLY)
        os.fsync(home)
        os.close(home)
        acknowledge()
"""
PRELUDE = """
    import os
    control = os.open(os.environ["DISK_CONTROL"], os.O_WRONLY)
    count = 0
    def acknowledge():
        global count
        count += 1
        os.pwrite(control, f"op {count}".encode(), 0)
"""


def judge_lines(directory: Path, acknowledged: int) -> str:
    """The index says how many lines there are."""
    index = (directory / "index").read_bytes()
    lines = (directory / "log").read_bytes().split(b"\n")
    if index and not index.isdigit():
        return "corrupt"
    wanted = [b"%d " % n * 3000 for n in range(int(index or b"0"))]
    if lines[: len(wanted)] != wanted:
        return "corrupt"
    return "holds" if len(wanted) >= acknowledged else "lost"


AGENT = """
    import asyncio
    from chaoskit_scenarios.targets.reference_stores import {kind}
    async def work():
        store = {kind}()
        store.open(".")
        for n in range({commits}):
            await store.save("a", {{"n": n, "text": "x" * 700}})
            acknowledge()
        await store.close()
    asyncio.run(work())
"""


def judge_agent(kind: str) -> Judge:
    def judge(directory: Path, acknowledged: int) -> str:
        try:
            found = asyncio.run(_turns(kind, directory))
        except Exception:  # noqa: BLE001 - whatever it cannot read is corrupt
            return "corrupt"
        if found != list(range(len(found))):
            return "corrupt"
        return "holds" if len(found) >= acknowledged else "lost"

    return judge


async def _turns(kind: str, directory: Path) -> list[int]:
    store = getattr(reference_stores, kind)()
    store.open(str(directory))
    try:
        return [state["n"] for state in await store.history("a")]
    finally:
        await store.close()


LMDB = """
    import lmdb
    environment = lmdb.open(".", map_size={size}, {options})
    for n in range({commits}):
        with environment.begin(write=True) as transaction:
            transaction.put(f"{{n:03}}".encode(), b"x" * 700)
        acknowledge()
    environment.close()
"""
LMDB_SIZE = 1 << 20
JUDGED = ("holds", "lost", "corrupt")


def judge_lmdb(directory: Path, acknowledged: int) -> str:
    """In a process of its own: a database that is not intact can end it."""
    process = os.fork()
    if process == 0:
        code = len(JUDGED)
        try:
            code = JUDGED.index(_opened(directory, acknowledged))
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return JUDGED[code] if 0 <= code < len(JUDGED) else "corrupt"


def _opened(directory: Path, acknowledged: int) -> str:
    try:
        with lmdb.open(str(directory), map_size=LMDB_SIZE) as database, database.begin() as transaction:
            found = [(int(key), value) for key, value in transaction.cursor()]
    except (lmdb.Error, ValueError):
        return "corrupt"
    if found != [(n, b"x" * 700) for n in range(len(found))]:
        return "corrupt"
    return "holds" if len(found) >= acknowledged else "lost"


def _lmdb(options: str, *, is_new: bool = False) -> Store:
    setup, program = (LMDB.format(commits=n, size=LMDB_SIZE, options=options) for n in (0, COMMITS))
    return Store("" if is_new else setup, program, judge_lmdb)


class Store(msgspec.Struct, frozen=True):
    setup: str
    program: str
    judge: Judge


def _sqlite(journal: str, level: str) -> Store:
    setup = stores.SQLITE_SETUP.format(journal=journal)
    prefix = f"""
    import sqlite3
    connect = sqlite3.connect
    def connected(path):
        db = connect(path)
        db.execute("PRAGMA journal_mode={journal}")
        return db
    sqlite3.connect = connected
"""
    program = stores.SQLITE_COMMITS.format(level=level, commits=COMMITS)
    return Store(setup, textwrap.dedent(prefix) + textwrap.dedent(program), judge_sqlite)


def _aside(*, sync_file: bool, sync_directory: bool) -> Store:
    program = stores.SNAPSHOTS_ASIDE.format(
        commits=COMMITS, sync_file=sync_file, sync_directory=sync_directory
    )
    return Store(stores.SNAPSHOT_SETUP, program, judge_snapshot)


STORES = {
    **{
        f"sqlite-{journal}-{level}".lower(): _sqlite(journal, level)
        for journal, level in (
            ("WAL", "FULL"),
            ("WAL", "NORMAL"),
            ("DELETE", "FULL"),
            ("DELETE", "EXTRA"),
            ("TRUNCATE", "FULL"),
            ("PERSIST", "FULL"),
        )
    },
    **{
        f"reference-agent-{kind}".lower(): Store(
            "", AGENT.format(kind=kind, commits=COMMITS), judge_agent(kind)
        )
        for kind in ("Sqlite", "Files")
    },
    "lmdb": _lmdb(""),
    "lmdb-new": _lmdb("", is_new=True),
    "lmdb-no-metasync": _lmdb("metasync=False"),
    "lmdb-writemap": _lmdb("writemap=True"),
    "json-aside": _aside(sync_file=True, sync_directory=True),
    "json-aside-no-directory": _aside(sync_file=True, sync_directory=False),
    "json-aside-no-file": _aside(sync_file=False, sync_directory=True),
    "json-in-place": Store(
        stores.SNAPSHOT_SETUP, stores.SNAPSHOTS_IN_PLACE.format(commits=COMMITS), judge_snapshot
    ),
    "lines-and-index": Store(LINES_SETUP, LINES.format(commits=COMMITS, sync_log=True), judge_lines),
    "lines-and-index-unsynced": Store(
        LINES_SETUP, LINES.format(commits=COMMITS, sync_log=False), judge_lines
    ),
}


def on_a_real_disk(shop: Workshop, store: Store) -> Counter[str]:
    return sum((_crashed(shop, store, commits=each) for each in (False, True)), Counter())


def _crashed(shop: Workshop, store: Store, *, commits: bool) -> Counter[str]:
    source = f"{textwrap.dedent(PRELUDE)}\n{textwrap.dedent(store.program)}"
    with LiveDisk(shop) as live:
        home = live.root / "watched"
        _run(store.setup, home, {})
        live.sync()
        live.mark("start")
        with committing(live) if commits else nullcontext():
            _run(source, home, live.variables())
    found: Counter[str] = Counter()
    with CrashedDisk(shop) as crashed:
        for crash in crashes(live.log(), shop.blank, random.Random(0)):
            with crashed.mounted(crash.blocks) as root:
                found[store.judge(root / "watched", crash.done)] += 1
    return found


@contextmanager
def committing(live: LiveDisk) -> Iterator[None]:
    """The commit timer at its worst."""
    over = threading.Event()

    def commit() -> None:
        while not over.is_set():
            live.commit()

    thread = threading.Thread(target=commit)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def in_the_model(store: Store, profile: Profile, place: Path) -> Counter[str]:
    (place / "run").mkdir(parents=True)
    (place / "stage").mkdir()
    recorded = stores.record(place / "run", store.setup, store.program)
    return stores.verdicts(recorded, profile, store.judge, place / "stage", BUDGET)


def _run(source: str, directory: Path, more: dict[str, str]) -> None:
    command = [sys.executable, "-c", textwrap.dedent(source)]
    subprocess.run(command, cwd=directory, env={**os.environ, **more}, check=True)
