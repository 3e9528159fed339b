"""Small stores, recorded as they run, and a judge for each: what did a crash state keep of what
had been acknowledged?"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from chaoskit.disk import interposer
from chaoskit.disk.ops import Profile, Trace
from chaoskit.disk.power_states import power_states
from chaoskit.disk.staging import StagingDirectory
from chaoskit.disk.trace import decode, snapshot

REPOSITORY = Path(interposer.__file__).parents[2]
Judge = Callable[[Path, int], str]  # (directory, acknowledged) -> "holds", "lost" or "corrupt"

SQLITE_SETUP = """
    import sqlite3
    db = sqlite3.connect("db")
    db.execute("PRAGMA journal_mode={journal}")
    db.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, filler TEXT)")
    db.commit()
    db.close()
"""
SQLITE_COMMITS = """
    import sqlite3
    db = sqlite3.connect("db")
    db.execute("PRAGMA synchronous={level}")
    for n in range({commits}):
        db.execute("INSERT INTO t VALUES (?, ?)", (n, "x" * 700))
        db.commit()
        acknowledge()
    db.close()
"""
SNAPSHOT_SETUP = """
    import os
    with open("data", "w") as file:
        file.write("0 " * 600)
        os.fsync(file.fileno())
"""
SNAPSHOTS_ASIDE = """
    import os
    for n in range(1, {commits} + 1):
        with open("data.tmp", "w") as file:
            file.write(f"{{n}} " * 600)
            file.flush()
            if {sync_file}:
                os.fsync(file.fileno())
        os.replace("data.tmp", "data")
        if {sync_directory}:
            home = os.open(".", os.O_RDONLY)
            os.fsync(home)
            os.close(home)
        acknowledge()
"""
SNAPSHOTS_IN_PLACE = """
    import os
    for n in range(1, {commits} + 1):
        with open("data", "w") as file:
            file.write(f"{{n}} " * 600)
            file.flush()
            os.fsync(file.fileno())
        acknowledge()
"""
PRELUDE = """
    import json
    from chaoskit.inside.interposer import position
    acks = []
    def acknowledge():
        acks.append(position())
"""


def record(directory: Path, setup: str, program: str) -> tuple[Trace, list[int]]:
    """The trace of a program, and the positions of its acknowledgements."""
    _run(setup, directory, dict(os.environ))
    with interposer.new_control() as control:
        start = snapshot(directory)
        control.arm(directory, "record")
        source = "\n".join(map(textwrap.dedent, (PRELUDE, program, "print(json.dumps(acks))")))
        printed = _run(source, directory, interposer.environment(control))
        return decode(control.raw_trace(), start), json.loads(printed)


def killed(directory: Path, setup: str, program: str, action: interposer.Action) -> Trace:
    """The trace of a program that was really killed midway."""
    _run(setup, directory, dict(os.environ))
    with interposer.new_control() as control:
        start = snapshot(directory)
        control.arm(directory, "record", action)
        source = "\n".join(map(textwrap.dedent, (PRELUDE, program)))
        _run(source, directory, interposer.environment(control), expected=-signal.SIGKILL)
        assert control.fired == "yes"
        return decode(control.raw_trace(), start)


def _run(source: str, directory: Path, environment: dict[str, str], expected: int = 0) -> str:
    environment["PYTHONPATH"] = str(REPOSITORY)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        process_group=0,
    )
    assert done.returncode == expected, done.stderr
    return done.stdout


def judge_sqlite(directory: Path, acknowledged: int) -> str:
    db = sqlite3.connect(directory / "db")
    try:
        rows = [n for (n,) in db.execute("SELECT n FROM t ORDER BY n")]
        if db.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            return "corrupt"
    except sqlite3.DatabaseError:
        return "corrupt"
    finally:
        db.close()
    if rows != list(range(len(rows))):
        return "corrupt"
    return "holds" if len(rows) >= acknowledged else "lost"


def judge_snapshot(directory: Path, acknowledged: int) -> str:
    try:
        words = (directory / "data").read_bytes().split()
    except FileNotFoundError:
        return "corrupt"
    if len(words) != 600 or len(set(words)) != 1 or not words[0].isdigit():
        return "corrupt"
    return "holds" if int(words[0]) >= acknowledged else "lost"


def verdicts(
    recorded: tuple[Trace, list[int]], profile: Profile, judge: Judge, stage: Path, budget: int
) -> Counter[str]:
    trace, acks = recorded
    found: Counter[str] = Counter()
    shown = StagingDirectory(stage)
    for state in power_states(trace, acks, profile, budget):
        shown.show(state.image)
        found[judge(stage, state.acknowledged)] += 1
    return found
