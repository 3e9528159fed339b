"""The interposer sees what strace sees, in the order in which it happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.disk.replayer import assert_replay_is_the_directory
from tests.disk.strace import Strace, comparable, events_of, needs_strace
from tests.disk.watching import Watched, needs_compiler, needs_interposer
from tests.disk.workloads import C_PROGRAM, WORKLOADS

pytestmark = needs_interposer


@needs_strace
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_interposer_sees_what_strace_sees(name: str, watched: Watched, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    expected = Strace(bare).run(WORKLOADS[name], tmp_path / "log")
    trace = watched.record(WORKLOADS[name])
    assert len(expected) > 5
    assert comparable(events_of(trace), expected) == comparable(expected, expected)
    assert_replay_is_the_directory(watched)


@needs_strace
@needs_compiler
def test_the_interposer_sees_stdio_raw_and_inline_system_calls(
    watched: Watched, tmp_path: Path, compile_c: Callable[..., str]
) -> None:
    program = [compile_c(C_PROGRAM)]
    bare = tmp_path / "bare"
    bare.mkdir()
    expected = Strace(bare).run(program, tmp_path / "log")
    trace = watched.record(program)
    assert comparable(events_of(trace), expected) == comparable(expected, expected)
    assert watched.counter("trapped") >= 10
    assert_replay_is_the_directory(watched)


THREADS = """
    import os, threading
    def work(n):
        with open("file%d" % n, "wb", buffering=0) as f:
            for i in range(50):
                f.write(b"%d" % i)
                shared.write(b"<%d:%d>" % (n, i))
            os.fsync(f.fileno())
        os.replace("file%d" % n, "done%d" % n)
    shared = open("shared", "ab", buffering=0)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    [t.start() for t in threads]; [t.join() for t in threads]
"""


@needs_strace
def test_operations_of_threads_are_complete_and_in_their_true_order(watched: Watched, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    expected = Strace(bare).run(THREADS, tmp_path / "log")
    trace = watched.record(THREADS)
    without_offset = [(e[0], e[1], e[2], e[4]) for e in events_of(trace)]
    assert sorted(without_offset) == sorted((e[0], e[1], e[2], e[4]) for e in expected)
    # All threads append to one file: only the true order and the true offsets rebuild it.
    assert_replay_is_the_directory(watched)


def test_operations_of_concurrent_processes_are_in_their_true_order(watched: Watched) -> None:
    watched.record("""
        import os
        children = []
        fd = os.open("shared", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        for n in range(6):
            pid = os.fork()
            if pid == 0:
                for i in range(200):
                    os.write(fd, b"<%d:%d>" % (n, i))
                os._exit(0)
            children.append(pid)
        for pid in children:
            assert os.waitpid(pid, 0)[1] == 0
    """)
    assert len({op.pid for op in watched.trace.ops}) == 7
    assert_replay_is_the_directory(watched)
