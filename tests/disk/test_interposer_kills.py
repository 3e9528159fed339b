"""A kill at operation K leaves the first K operations, and nothing comes after it."""

from __future__ import annotations

import os
import signal

import pytest

from chaoskit.disk import interposer
from chaoskit.disk.trace import records
from chaoskit.inside.layout import FLAG_TORN
from tests.disk.replayer import assert_replay_is_the_directory, replay
from tests.disk.watching import Watched, Zygote, empty, kinds, needs_interposer, tree

pytestmark = needs_interposer


SMALL_SQLITE = """
    import sqlite3
    db = sqlite3.connect("a.db", isolation_level=None)
    db.execute("pragma journal_mode={mode}")
    db.execute("create table t(x)")
    db.execute("insert into t values('one')")
    db.execute("insert into t values('two')")
    db.close()
"""


@pytest.mark.parametrize("mode", ["delete", "wal", "truncate"])
def test_a_kill_at_every_operation_leaves_the_prefix(mode: str, watched: Watched, zygote: Zygote) -> None:
    code = SMALL_SQLITE.format(mode=mode)
    watched.arm()
    assert zygote.run(watched, code) == 0
    full = watched.trace
    assert len(full.ops) > 20
    for at, op in enumerate(full.ops):
        for when, length in (("before", at), ("after", at + 1), ("half", at + 1)):
            empty(watched.directory)
            watched.arm("record", interposer.kill(at, when))  # type: ignore[arg-type]
            status = zygote.run(watched, code)
            trace = watched.trace
            divisible = op.kind == "write" and op.length > 1
            if when == "half" and not divisible:
                assert (status, watched.control.fired) == (0, "not applicable")
                assert kinds(trace) == kinds(full)
                continue
            assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
            assert (watched.control.fired, watched.counter("fired_index")) == ("yes", at)
            assert kinds(trace) == kinds(full)[:length]
            if when == "half":
                assert trace.ops[-1].length == op.length // 2
                assert list(records(watched.control.raw_trace().data))[-1].flags & FLAG_TORN
            assert replay(trace) == tree(watched.directory)


def test_a_kill_takes_the_whole_group_and_nothing_comes_after(watched: Watched) -> None:
    done = watched.run(
        """
        import os, subprocess, sys, threading
        ready, here = os.pipe()
        gate, opener = os.pipe()  # nobody goes on before all are there
        def forever(name):
            fd = os.open(name, os.O_CREAT | os.O_WRONLY)
            os.write(here, b"!")
            os.read(gate, 1)
            while True: os.write(fd, b"x")
        threading.Thread(target=forever, args=("thread",), daemon=True).start()
        if os.fork() == 0:
            os.close(opener)
            forever("child")
        other = f"import os; fd = os.open('exec', os.O_CREAT | os.O_WRONLY); os.write({here}, b'!')"
        other += f"\\nos.read({gate}, 1)\\nwhile True: os.write(fd, b'y')"
        subprocess.Popen([sys.executable, "-c", other], pass_fds=[here, gate])
        for _ in range(3): os.read(ready, 1)
        os.close(opener)
        fd = os.open("main", os.O_CREAT | os.O_WRONLY)
        while True: os.write(fd, b"x")
        """,
        action=interposer.kill(30000, "after"),
    )
    assert done.returncode == -signal.SIGKILL
    # The pipes' write ends were inherited by all: end of file above means that all are dead.
    assert watched.control.position == len(watched.trace.ops) == 30001
    assert len({op.pid for op in watched.trace.ops}) == 3
    assert_replay_is_the_directory(watched)


def test_a_process_that_left_the_group_dies_at_its_next_operation(watched: Watched) -> None:
    done = watched.run(
        """
        import os
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.close(writer)
            os.setsid()
            os.read(reader, 1)          # end of file: the parent is dead
            open("too late", "w")
            os._exit(0)
        os.close(reader)
        open("last", "w")
        """,
        action=interposer.kill(0, "after"),
    )
    assert done.returncode == -signal.SIGKILL
    assert tree(watched.directory) == {"last": b""}


def test_a_vectored_write_and_a_kernel_copy_can_be_cut_in_half(watched: Watched) -> None:
    vector = "import os; os.writev(os.open('v', os.O_CREAT | os.O_WRONLY), [b'abc', b'defgh'])"
    assert watched.run(vector, action=interposer.kill(1, "half")).returncode == -signal.SIGKILL
    assert tree(watched.directory) == {"v": b"abcd"}
    empty(watched.directory)
    (watched.directory / "source").write_bytes(b"0123456789")
    copy = "import shutil; shutil.copyfile('source', 'copy')"
    assert watched.run(copy, action=interposer.kill(1, "half")).returncode == -signal.SIGKILL
    assert tree(watched.directory) == {"source": b"0123456789", "copy": b"01234"}
    assert_replay_is_the_directory(watched)
