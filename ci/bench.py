"""Benchmarks: ratios measured in one run, because machines are noisy.

Each comparison runs its variants in interleaved rounds and compares medians of wall time and CPU time
(of this process and all it started). This is no test: a number from a loaded machine proves nothing.

    ci/bench [--rounds N] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from bench_daemon import daemon_cost
from chaoskit_scenarios import inloop

from chaoskit import registry
from chaoskit.disk import interposer, power_states as states_of_power
from chaoskit.disk.kill_states import kill_states
from chaoskit.disk.ops import Trace
from chaoskit.disk.power_states import power_states
from chaoskit.disk.staging import StagingDirectory
from chaoskit.disk.trace import decode, snapshot
from chaoskit.faults import kill, power
from chaoskit.faults.kill import Kill
from chaoskit.faults.kind import StateSource
from chaoskit.model import Schedule, Workload
from chaoskit.recording import Recording
from chaoskit.run.workspace import base_directory
from chaoskit.search.baseline import undisturbed
from chaoskit.search.rig import Rig, open_rig
from chaoskit.settings import Settings
from reference_agent.messages import Budget, Message, Plan
from reference_agent.store.sqlite import SqliteStore

Way = Callable[[], int]  # does its work and returns the number of units done
COMMITS = 20_000  # enough that the interpreter's start does not matter
WRITER = """
import sqlite3, sys
db = sqlite3.connect("bench.db", isolation_level=None)
db.execute("pragma journal_mode=wal"); db.execute("pragma synchronous=full")
db.execute("create table t(id integer primary key, body text)")
for i in range(int(sys.argv[1])):
    db.execute("insert into t(body) values(?)", ("x" * 200,))
"""


def cpu_seconds() -> float:
    """Of this process and all it started, including those still running (a zygote, its lives)."""
    uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    mine = sum(use.ru_utime + use.ru_stime for use in uses)
    return mine + sum(map(cpu_of, descendants(os.getpid())))


def descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            yield child
            yield from descendants(child)


def cpu_of(pid: int) -> float:
    """User and system time of a process and of the children it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def compare(title: str, ways: dict[str, Way], rounds: int, goal: str) -> dict[str, object]:
    """Medians per unit of work; the first variant is the reference for the others."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    gc.collect()
    gc.freeze()  # as a campaign's workers do: permanent objects stay out of collections
    for _ in range(rounds):
        for name, way in ways.items():
            wall, cpu = time.perf_counter(), cpu_seconds()
            count = way()
            taken[name].append(((time.perf_counter() - wall) / count, (cpu_seconds() - cpu) / count))
    print(f"\n{title}\n  goal: {goal}")
    rows = {}
    base = [statistics.median(column) for column in zip(*taken[next(iter(ways))], strict=True)]
    for name, times in taken.items():
        wall, cpu = (statistics.median(column) for column in zip(*times, strict=True))
        rows[name] = {
            "per_second": 1 / wall,
            "wall_us": wall * 1e6,
            "cpu_us": cpu * 1e6,
            "wall_ratio": wall / base[0],
        }
        print(
            f"  {name:<42} {1 / wall:>10.1f}/s   wall {wall * 1e6:>10.1f} us  x{wall / base[0]:<6.2f}"
            f"  cpu {cpu * 1e6:>10.1f} us"
        )
    return {"goal": goal, "rows": rows}


# --- recording -----------------------------------------------------------------------------------


def writing(control: interposer.Control, way: str) -> Way:
    def run() -> int:
        with tempfile.TemporaryDirectory(dir=base_directory()) as directory:
            command = [sys.executable, "-c", WRITER, str(COMMITS)]
            env = None
            if way == "record":
                control.arm(directory, "record")
                env = interposer.environment(control)
            commits = COMMITS
            if way == "strace -f":
                commits = COMMITS // 20  # it is that slow
                command = ["strace", "-f", "-o", "/dev/null", *command[:-1], str(commits)]
            subprocess.run(command, cwd=directory, env=env, check=True)
        return commits

    return run


def recording_cost(rounds: int) -> dict[str, object]:
    ways = ["bare", "record"] + (["strace -f"] if shutil.which("strace") else [])
    with interposer.new_control() as control:
        return compare(
            f"recording {COMMITS:,} SQLite commits (WAL, synchronous=FULL)",
            {way: writing(control, way) for way in ways},
            rounds,
            "record at most 1.6 x bare",
        )


# --- crash states of the reference agent ---------------------------------------------------------


@contextmanager
def ready(**options: object) -> Iterator[tuple[Rig, Workload]]:
    settings = Settings(points="syscalls", seed=1, **options)  # type: ignore[arg-type]
    with open_rig(registry.resolve(settings)) as (rig, _):
        yield rig, undisturbed(rig)[1]


@contextmanager
def one_core() -> Iterator[None]:
    """Pins everything started meanwhile to one core: results are per core, whatever the machine has."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def kill_state_cost(rounds: int) -> dict[str, object]:
    with (
        one_core(),
        ready(scenario="payments") as (warm, workload),
        ready(scenario="payments", cold=True) as (cold, _),
    ):
        recording = warm.record(workload)
        states = list(kill.states(recording, StateSource(fault="kill")))[::3]
        faults = [s.fault for s in states if isinstance(s.fault, Kill) and s.fault.point.op is not None]
        few = [Schedule((fault,)) for fault in faults[5 : -5 : max(1, len(faults) // 6)]]

        def rebuilt() -> int:
            for state in states:
                warm.judge_state(recording, state, workload)
            return len(states)

        def real(bench: Rig) -> Way:
            return lambda: sum(bool(bench.judge(schedule, workload)) for schedule in few)

        return compare(
            "kill states of the reference agent, one core",
            {"cold processes": real(cold), "real kills, warm": real(warm), "rebuilt states": rebuilt},
            rounds,
            "rebuilt at least 30 x cold (ratio at most 0.033)",
        )


def power_state_cost(rounds: int) -> dict[str, object]:
    with one_core(), ready(scenario="store-sqlite-wal-full") as (bench, workload):
        recording = bench.record(workload)
        states = list(
            power.states(recording, StateSource(fault="power", profile="posix", budget=400, seed=1))
        )

        def checked() -> int:
            for state in states:
                bench.judge_state(recording, state, workload)
            return len(states)

        return compare(
            "power-loss states of the WAL store, one core",
            {"checked": checked},
            rounds,
            "at least 400 a second",
        )


# --- the model alone -----------------------------------------------------------------------------


def long_trace() -> Recording:
    """A long recording of SQLite commits, made by WRITER."""
    with interposer.new_control() as control, tempfile.TemporaryDirectory(dir=base_directory()) as directory:
        start = snapshot(directory)
        control.arm(directory, "record")
        command = [sys.executable, "-c", WRITER, "3300"]
        subprocess.run(command, cwd=directory, env=interposer.environment(control), check=True)
        return Recording(decode(control.raw_trace(), start), ())


def model_cost(rounds: int) -> dict[str, object]:
    whole = long_trace().trace
    traces = {size: Trace(initial=whole.initial, ops=whole.ops[:size]) for size in (500, 10_000)}

    def staged(trace: Trace) -> int:
        with tempfile.TemporaryDirectory(dir=base_directory()) as directory:
            stage = StagingDirectory(Path(directory))
            count = 0
            for count, state in enumerate(kill_states(trace), 1):  # noqa: B007 - counted on the way
                stage.show(state.image)
            return count

    def distinct(trace: Trace) -> int:
        return sum(1 for _ in power_states(trace, acks_of(trace), "posix", 4 * len(trace.ops)))

    def generated(trace: Trace) -> int:
        wanted = 4 * len(trace.ops)
        every = states_of_power._all(trace, acks_of(trace), "posix", wanted, 0)  # noqa: SLF001 - before dedup
        return sum(1 for state in islice(every, wanted) if state.image.digest)

    return {
        "rebuild": compare(
            "every kill state of a trace, rebuilt on tmpfs",
            {f"{size:,} operations": lambda t=trace: staged(t) for size, trace in traces.items()},
            rounds,
            "10,000 operations at most 1.3 x 500",
        ),
        "generate": compare(
            "power-loss states of a trace (posix)",
            {
                f"{word}, {size:,} operations": lambda t=trace, w=way: w(t)
                for word, way in (("generated", generated), ("distinct", distinct))
                for size, trace in traces.items()
            },
            rounds,
            "at least 10,000 generated a second; 10,000 operations at most 1.3 x 500",
        ),
    }


def acks_of(trace: Trace) -> list[int]:
    """One acknowledgement per commit: after each sync."""
    return [at + 1 for at, op in enumerate(trace.ops) if op.kind in ("fsync", "fdatasync")]


# --- the agent's store -----------------------------------------------------------------------------


async def filled(path: Path, turns: int) -> SqliteStore:
    """A session of `turns` turns, each with two messages and a checkpoint."""
    store = await SqliteStore.open(path, "bench", "agent", time.time, inloop.connect)
    await store.create_session("model", "provider", "scratch")
    for turn in range(1, turns + 1):
        await store.add_message(Message("user", f"question {turn} " * 10), turn)
        await store.add_message(Message("assistant", f"answer {turn} " * 10), turn)
        await store.write_checkpoint(turn, Plan(), Budget(turn))
    return store


def store_cost(rounds: int) -> dict[str, object]:
    """The cost of a checkpoint early and late in a session, and of loading, per message."""

    def checkpoints(store: SqliteStore, turn: int) -> Way:
        async def work() -> int:
            for _ in range(100):
                await store.write_checkpoint(turn, Plan(), Budget(turn))
            return 100

        return lambda: asyncio.run(work())

    def loading(path: Path) -> Way:
        async def work() -> int:
            store = await SqliteStore.open(path, "bench", "agent", time.time, inloop.connect)
            count = len(await store.messages())
            await store.close()
            return count

        return lambda: asyncio.run(work())

    with tempfile.TemporaryDirectory(dir=base_directory()) as directory:
        paths = {turns: Path(directory, f"{turns}.db") for turns in (10, 500, 1000, 5000)}
        stores = {turns: asyncio.run(filled(path, turns)) for turns, path in paths.items()}
        found = {
            "checkpoint": compare(
                "one more checkpoint",
                {f"at turn {turns:,}": checkpoints(stores[turns], turns) for turns in (10, 1000)},
                rounds,
                "no more at turn 1,000 than at turn 10",
            ),
            "resume": compare(
                "opening a session, per message",
                {f"{2 * turns:,} messages": loading(paths[turns]) for turns in (500, 5000)},
                rounds,
                "linear: the same per message",
            ),
        }
        for store in stores.values():
            asyncio.run(store.close())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers as JSON")
    options = parser.parse_args()
    print(f"{options.rounds} interleaved rounds, medians; SQLite {sqlite3.sqlite_version}")
    found = {
        "recording": recording_cost(options.rounds),
        "kill_states": kill_state_cost(options.rounds),
        "power_states": power_state_cost(options.rounds),
        **model_cost(options.rounds),
        **store_cost(options.rounds),
        **daemon_cost(),
    }
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
