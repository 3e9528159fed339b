"""The interposer is switched on and off in warm and cold processes, and is otherwise invisible."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from chaoskit.disk import compiling, interposer
from chaoskit.disk.interposer import Mode
from tests.disk.strace import events_of
from tests.disk.watching import (
    COMPILER,
    REPOSITORY,
    Watched,
    Zygote,
    command_of,
    empty,
    kinds,
    needs_interposer,
    tree,
)
from tests.disk.workloads import SQLITE, WORKLOADS

pytestmark = needs_interposer


def test_a_target_that_masks_or_takes_sigsys_is_still_seen(watched: Watched) -> None:
    trace = watched.record("""
        import ctypes, faulthandler, os, signal
        faulthandler.enable()   # gives the thread a small stack for signals
        libc = ctypes.CDLL(None)
        libc.fopen.restype = ctypes.c_void_p
        libc.fclose.argtypes = [ctypes.c_void_p]
        def stdio(name): libc.fclose(libc.fopen(name, b"w"))
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        stdio(b"masked")
        signal.signal(signal.SIGSYS, signal.SIG_DFL)
        stdio(b"default")
        signal.signal(signal.SIGSYS, lambda *_: None)
        stdio(b"handler")
        libc.signal(31, 1)
        stdio(b"ignored")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
        signal.signal(signal.SIGUSR1, lambda *_: stdio(b"inside a handler"))
        os.kill(os.getpid(), signal.SIGUSR1)
    """)
    assert [op.name for op in trace.ops] == ["masked", "default", "handler", "ignored", "inside a handler"]


def test_warm_and_cold_starts_agree(watched: Watched, zygote: Zygote) -> None:
    code = WORKLOADS["replace"]
    cold = watched.record(code)
    empty(watched.directory)
    watched.arm()
    assert zygote.run(watched, code) == 0
    assert events_of(watched.trace) == events_of(cold)


def test_counts_are_the_same_in_every_mode_and_every_time(watched: Watched, zygote: Zygote) -> None:
    counts = set()
    modes: list[Mode] = ["count", "record", "count", "record"]
    for mode in modes:
        empty(watched.directory)
        watched.arm(mode)
        assert zygote.run(watched, SQLITE.format(mode="wal")) == 0
        counts.add(watched.control.position)
        assert bool(watched.trace.ops) == (mode == "record")
    assert len(counts) == 1
    assert counts.pop() > 30


def test_the_position_advances_until_the_interposer_is_stopped(watched: Watched, zygote: Zygote) -> None:
    watched.arm()
    status = zygote.run(
        watched,
        """
        assert inside.position() == 0
        open("a", "w").write("x")
        assert inside.position() == 2
        inside.stop()
        open("b", "w").write("y")
        assert inside.position() == 2
    """,
    )
    assert status == 0
    assert kinds(watched.trace) == ["create", "write"]


def test_one_process_can_be_activated_again_and_again(watched: Watched, zygote: Zygote) -> None:
    watched.arm()
    second = watched.directory.parent / "second"
    second.mkdir()
    with interposer.new_control(trace_size=1 << 20) as other:
        other.arm(second)
        code = f"""
            open("a", "w").close()
            inside.start({str(second)!r}, {str(other.path)!r})
            open("b", "w").close(); open({str(second / "c")!r}, "w").close()
        """
        assert zygote.run(watched, code) == 0
        assert (watched.control.position, other.position) == (1, 1)


def test_an_inactive_interposer_does_nothing(watched: Watched) -> None:
    watched.arm()
    subprocess.run(
        command_of("open('a', 'w').write('x')"), cwd=watched.directory, env=interposer.preload(), check=True
    )
    assert watched.control.position == 0
    assert tree(watched.directory) == {"a": b"x"}


def test_activation_errors_say_what_is_wrong(watched: Watched, zygote: Zygote) -> None:
    watched.arm()
    status = zygote.run(
        watched,
        f"""
        import errno
        inside.stop()
        for directory, control, expected in (
            ("/nowhere", {str(watched.control.path)!r}, errno.ENOENT),
            (".", "/nowhere", errno.ENOENT),
            (".", "/dev/null", errno.EINVAL),
        ):
            try:
                inside.start(directory, control)
            except OSError as error:
                assert error.errno == expected, (directory, control, error)
            else:
                raise AssertionError(directory)
    """,
    )
    assert status == 0
    bare = subprocess.run(
        command_of("from chaoskit.inside import interposer as inside; inside.start('.', '/nowhere')"),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "LD_PRELOAD" in bare.stderr


def test_other_signals_work_as_before(watched: Watched) -> None:
    done = watched.run("""
        import signal, os
        hits = []
        signal.signal(signal.SIGALRM, lambda *_: hits.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        signal.pause()
        print(len(hits), signal.getsignal(signal.SIGSYS) == signal.SIG_DFL)
    """)
    assert done.stdout == "1 True\n"


def test_it_builds_without_warnings(tmp_path: Path) -> None:
    if COMPILER is None:
        pytest.skip("no C compiler")
    compiling.compile_library(COMPILER, str(interposer.SOURCE), str(tmp_path / "x.so"), "-Werror")
    assert (tmp_path / "x.so").exists()
