"""What the interposer cannot see is reported in the trace, never ignored."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from chaoskit.disk.interposer import Control
from tests.disk.replayer import assert_replay_is_the_directory
from tests.disk.watching import Watched, empty, kinds, needs_compiler, needs_interposer, tree
from tests.disk.workloads import C_PROGRAM

pytestmark = needs_interposer


def test_a_shared_writable_mapping_of_a_large_file_is_reported_once(watched: Watched) -> None:
    trace = watched.record("""
        import mmap, os
        size = 65 << 20
        fd = os.open("mapped", os.O_CREAT | os.O_RDWR); os.ftruncate(fd, size)
        for _ in range(3): mmap.mmap(fd, size)
        mmap.mmap(fd, size, access=mmap.ACCESS_READ); mmap.mmap(-1, 4096)
    """)
    assert len(trace.blind_spots) == 1
    assert "mapped for shared writing" in str(trace.blind_spots[0])
    assert str(trace.blind_spots[0]).endswith("/mapped")


def test_what_the_trace_cannot_represent_is_reported(watched: Watched, tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    trace = watched.record("""
        import ctypes, mmap, os
        libc = ctypes.CDLL(None)
        open("a", "w").close(); open("b", "w").close()
        assert libc.renameat2(-100, b"a", -100, b"b", 2) == 0    # RENAME_EXCHANGE
        os.mkfifo("fifo")
        os.rename("../dir", "dir")
        fd = os.open("mapped-shm", os.O_CREAT | os.O_RDWR); os.ftruncate(fd, 4096)
        mapping = mmap.mmap(fd, 4096); mapping[0] = 1; mapping.flush(); mapping.flush()
        os.rename("../watched", "../elsewhere")
    """)
    for words in (
        "exchanged",
        "special file",
        "across the border",
        "mapped-shm",
        "msync",
        "watched directory itself",
    ):
        assert len([text for text in map(str, trace.blind_spots) if words in text]) == 1, words


@pytest.mark.usefixtures("sync_turn")
def test_a_program_started_later_works_without_the_watched_directory(watched: Watched) -> None:
    trace = watched.record(f"""
        import os, subprocess
        os.mkdir("a"); os.chdir("/"); os.rmdir("{watched.directory}/a")
        os.rmdir("{watched.directory}")
        subprocess.run(["true"], check=True)
        os.sync()
    """)
    assert kinds(trace) == ["mkdir", "rmdir", "sync"]


STATIC = r"""
#include <stdio.h>
int main(void) { FILE *f = fopen("static", "w"); fputs("unseen", f); fclose(f); return 0; }
"""


@needs_compiler
@pytest.mark.parametrize(
    "way",
    [
        "subprocess.run([p], check=True)",
        "os.posix_spawn(p, [p], {}); os.wait()",
        "os.fork() or os.execlp(os.path.basename(p), p); os.wait()",
        "os.system(p)",
    ],
)
def test_a_static_program_is_reported_and_runs(
    way: str, watched: Watched, compile_c: Callable[..., str]
) -> None:
    program = compile_c(STATIC, "-static", "-no-pie")
    trace = watched.record(f"""
        import os, subprocess
        p = {program!r}
        os.environ["PATH"] = os.path.dirname(p) + ":" + os.environ["PATH"]
        {way}
    """)
    assert tree(watched.directory) == {"static": b"unseen"}
    assert any("statically linked" in text and program in text for text in map(str, trace.blind_spots))


@needs_compiler
def test_a_script_of_a_static_interpreter_is_reported(
    watched: Watched, compile_c: Callable[..., str]
) -> None:
    program = compile_c(STATIC, "-static", "-no-pie")
    script = watched.directory.parent / "script"
    script.write_text(f"#! {program}\n")
    script.chmod(0o755)
    trace = watched.record(f"import subprocess; subprocess.run([{str(script)!r}])")
    assert any(program in text for text in map(str, trace.blind_spots))


@needs_compiler
def test_a_program_at_fixed_addresses_is_covered(watched: Watched, compile_c: Callable[..., str]) -> None:
    program = compile_c(C_PROGRAM, "-no-pie")
    trace = watched.record(f"import subprocess; subprocess.run([{program!r}], check=True)")
    assert [op.data for op in trace.ops if op.kind == "write"][-1] in (b"inline", b"t")
    assert trace.blind_spots == ()
    assert_replay_is_the_directory(watched)


def test_io_uring_is_reported(watched: Watched) -> None:
    trace = watched.record("""
        import ctypes
        libc = ctypes.CDLL(None)
        if libc.syscall(425, 4, ctypes.create_string_buffer(120)) < 0:
            print("no io_uring here")
            libc.syscall(206, 4, ctypes.byref(ctypes.c_ulong(0)))   # io_setup, x86_64
    """)
    if os.uname().machine == "x86_64":
        assert any("io_uring" in text or "libaio" in text for text in map(str, trace.blind_spots))


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="int 0x80 is of x86")
@pytest.mark.parametrize("code", ["53 89f8 89f3 87d1 cd80 5b 4898 c3", "4889f8 0d00000040 0f05 c3"])
def test_calls_by_the_interface_of_another_machine_are_refused_and_reported(
    watched: Watched, code: str
) -> None:
    trace = watched.record(f"""
        import ctypes, mmap
        memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        memory.write(bytes.fromhex("{code}"))
        place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        assert ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)(place)(20) == -38     # ENOSYS
        assert ctypes.CDLL(None).syscall(-1) == -1                                  # no call at all
    """)
    assert ["32-bit system call was refused" in str(spot) for spot in trace.blind_spots] == [True]


def test_extended_attributes_are_reported(watched: Watched, tmp_path: Path) -> None:
    (tmp_path / "outside").touch()
    trace = watched.record(f"""
        import os
        open("f", "w").close()
        os.setxattr({str(tmp_path / "outside")!r}, "user.a", b"1")
        os.setxattr("f", "user.a", b"1")
        fd = os.open("f", os.O_RDONLY); os.setxattr(fd, "user.b", b"1"); os.removexattr(fd, "user.b")
    """)
    assert [spot.subject.rpartition("/")[2] for spot in trace.blind_spots] == ["f"] * 3


def test_without_the_filter_stdio_is_missed_but_python_is_not(watched: Watched) -> None:
    code = """
        import ctypes
        libc = ctypes.CDLL(None)
        libc.fopen.restype = ctypes.c_void_p
        libc.fclose.argtypes = [ctypes.c_void_p]
        libc.fclose(libc.fopen(b"stdio", b"w"))
        open("python", "w").write("x")
    """
    assert kinds(watched.record(code, seccomp=False)) == ["create", "write"]
    empty(watched.directory)
    assert kinds(watched.record(code)) == ["create", "create", "write"]


def test_a_full_trace_is_reported(tmp_path: Path) -> None:
    directory = tmp_path / "watched"
    directory.mkdir()
    with Control(tmp_path / "control", trace_size=8192) as control:
        watched = Watched(directory, control)
        watched.run("f = open('f', 'wb', buffering=0); [f.write(b'x' * 1000) for _ in range(100)]")
        assert control.position == 101
        assert len(watched.trace.ops) < 10
        assert any("trace is full" in text for text in map(str, watched.trace.blind_spots))


def test_a_process_killed_from_outside_does_not_block_the_others(watched: Watched) -> None:
    """The lock's owner may die at any moment; here often enough to hit the critical section."""
    done = watched.run("""
        import os, signal
        for round in range(40):
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                fd = os.open("child", os.O_CREAT | os.O_WRONLY)
                os.write(writer, b"x")
                while True: os.pwrite(fd, b"x" * 100000, 0)
            os.read(reader, 1)
            os.kill(pid, signal.SIGKILL)
            with open("parent", "a") as f: f.write("x")
            os.waitpid(pid, 0)
            os.close(reader); os.close(writer)
    """)
    assert (done.returncode, done.stderr) == (0, "")
    assert (watched.directory / "parent").read_bytes() == b"x" * 40
