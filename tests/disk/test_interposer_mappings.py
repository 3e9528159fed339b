"""Stores through shared mappings are recorded as writes by the next operation or acknowledgement."""

from __future__ import annotations

import textwrap

import pytest

from chaoskit.disk import interposer
from chaoskit.disk.kill_states import kill_states
from chaoskit.disk.verify import never_synced
from chaoskit.recording import firings_of
from tests.disk.replayer import assert_replay_is_the_directory
from tests.disk.watching import Watched, kinds, needs_interposer, tree

pytestmark = needs_interposer

MAPPED = """
import mmap, os
def mapped(path, size):
    fd = os.open(path, os.O_CREAT | os.O_RDWR); os.ftruncate(fd, size)
    memory = mmap.mmap(fd, size); os.close(fd)
    return memory
"""


def record(watched: Watched, code: str):
    trace = watched.record(MAPPED + textwrap.dedent(code))
    assert trace.blind_spots == ()
    assert_replay_is_the_directory(watched)
    return trace


def test_a_store_is_a_write_and_msync_is_a_sync(watched):
    trace = record(
        watched,
        """
    memory = mapped("m", 5000)
    memory[:5] = b"hello"; memory.flush()
    """,
    )
    assert kinds(trace) == ["create", "truncate", "write", "fdatasync"]
    store = trace.ops[2]
    assert (store.mapped, store.offset, store.data[:6]) == (True, 0, b"hello\0")
    assert never_synced(trace) == []


def test_each_run_of_changed_pages_is_a_write(watched):
    trace = record(
        watched,
        """
    memory = mapped("m", 40960)
    memory[4096] = 1; memory[8192] = 2; memory[32768] = 3; memory.flush()
    """,
    )
    assert [(op.offset, len(op.data)) for op in trace.ops if op.mapped] == [(4096, 8192), (32768, 4096)]


def test_a_store_is_found_by_the_next_operation_on_another_file(watched):
    trace = record(
        watched,
        """
    memory = mapped("m", 100)
    memory[:] = b"x" * 100
    os.mkdir("d"); memory[0] = 0; memory.flush()
    """,
    )
    assert kinds(trace) == ["create", "truncate", "write", "mkdir", "write", "fdatasync"]
    assert [len(op.data) for op in trace.ops if op.mapped] == [100, 100]


def test_what_is_written_by_calls_is_not_recorded_again(watched):
    trace = record(
        watched,
        """
    memory = mapped("m", 10000)
    fd = os.open("m", os.O_RDWR)
    os.pwrite(fd, b"called", 10); os.ftruncate(fd, 3000); os.ftruncate(fd, 9000)
    memory[5] = 1; memory.flush()
    """,
    )
    assert kinds(trace) == ["create", "truncate", "write", "truncate", "truncate", "write", "fdatasync"]
    assert [op.mapped for op in trace.ops if op.kind == "write"] == [False, True]


def test_a_child_process_does_not_record_the_same_store_again(watched):
    trace = record(
        watched,
        """
    memory = mapped("m", 100)
    memory[0] = 1
    if os.fork() == 0:
        os.mkdir("by-child"); memory[1] = 1; os.mkdir("again"); os._exit(0)
    os.wait()
    os.mkdir("by-parent"); memory.flush()
    """,
    )
    expected = ["create", "truncate", "write", "mkdir", "write", "mkdir", "mkdir", "fdatasync"]
    assert kinds(trace) == expected


def test_a_file_that_was_renamed_and_mapped_twice(watched):
    trace = record(
        watched,
        """
    memory = mapped("m", 4096)
    os.rename("m", "n")
    memory[0] = 1; os.mkdir("d")
    more = mapped("n", 12288); more[9000] = 1; memory[1] = 1; more.flush()
    """,
    )
    assert [(op.offset, len(op.data)) for op in trace.ops if op.mapped] == [
        (0, 4096),
        (0, 4096),
        (8192, 4096),
    ]


def test_an_asynchronous_msync_makes_nothing_durable(watched):
    trace = record(
        watched,
        """
    import ctypes
    memory = mapped("m", 4096)
    memory[0] = 1
    place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).msync(ctypes.c_void_p(place), ctypes.c_size_t(4096), 1) == 0   # MS_ASYNC
    os.mkdir("d")
    """,
    )
    assert kinds(trace) == ["create", "truncate", "write", "mkdir"]
    assert never_synced(trace) == ["stores through a mapping of m were never synced (msync)"]


STORES = """
    memory = mapped("m", 8192); other = mapped("o", 4096)
    memory[:] = b"x" * 8192; other[:] = b"y" * 4096
    memory.flush(); other.flush()
"""


@pytest.mark.parametrize(
    ("at", "when", "left"),
    [
        (4, "before", (b"", b"")),
        (5, "after", (b"x" * 8192, b"y" * 4096)),
        (6, "before", (b"x" * 8192, b"y" * 4096)),
    ],
)
def test_a_kill_leaves_all_stores_that_are_found_together_or_none(watched, at, when, left):
    """Operations 4 and 5 are the stores, 6 is the msync that finds them."""
    watched.arm("record", interposer.kill(at, when))
    assert watched.go(MAPPED + textwrap.dedent(STORES)).returncode < 0
    found = tree(watched.directory)
    assert (found["m"].rstrip(b"\0"), found["o"].rstrip(b"\0")) == left
    assert_replay_is_the_directory(watched)


def test_no_kill_state_lies_between_stores_whose_order_is_not_known(watched):
    """Data first, then the header in page 0: no kill shows the header without the data."""
    trace = record(
        watched,
        """
    memory = mapped("m", 16384)
    memory[8192:8197] = b"DATA!"; memory[0:5] = b"VALID"; memory.flush()
    """,
    )
    assert [op.joined for op in trace.ops if op.mapped] == [False, True]
    shown = {(d[:5], d[8192:8197]) for state in kill_states(trace) if (d := _content(state.image))}
    assert shown == {(bytes(5), bytes(5)), (b"VALID", b"DATA!")}
    names = [(firing.point.name, firing.when) for firing in firings_of(trace, (), 0)]
    assert names.count(("store m", "before")) == 1 and ("store m", "half") not in names


def _content(image) -> bytes:
    number = image.entry(0, "m")
    return b"" if number is None else image.data(number).read()


SOUND = {
    "a file that another process cuts off under its new name": """
        m = mapped("m", 8192); m[0] = 1; m.flush(); m.close()
        os.rename("m", "n")
        if os.fork() == 0:
            os.truncate("n", 0); os._exit(0)
        os.wait(); os.mkdir("d")
    """,
    "a lock on a file that was mapped and closed": """
        import fcntl
        fd = os.open("m", os.O_CREAT | os.O_RDWR); os.ftruncate(fd, 4096)
        fcntl.flock(fd, fcntl.LOCK_EX)
        m = mmap.mmap(fd, 4096); m.close(); os.close(fd)
        fd = os.open("m", os.O_RDWR); fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    """,
    "a program that was written through a mapping": """
        import subprocess
        data = open("/bin/true", "rb").read()
        m = mapped("program", len(data)); m[:] = data; m.flush(); m.close()
        os.chmod("program", 0o755); subprocess.run(["./program"], check=True)
    """,
    "a mapping that grows": """
        fd = os.open("m", os.O_CREAT | os.O_RDWR); os.ftruncate(fd, 4096)
        m = mmap.mmap(fd, 4096); m[0] = 1; m.resize(1 << 20); m[5000] = 7; m[1] = 1; m.flush()
    """,
    "a file that grows under a mapping and another name": """
        fd = os.open("m", os.O_CREAT | os.O_RDWR); os.ftruncate(fd, 8192)
        m = mmap.mmap(fd, 8192); os.ftruncate(fd, 4096); os.rename("m", "n")
        os.pwrite(fd, b"x" * 4096, 4096); m[5000] = 65; m.flush()
    """,
    "windows that come and go": """
        m = mapped("m", 4096)
        for n in range(200):
            w = mapped("w", 4096); w[0] = n % 250; w.flush(); w.close()
        m[0] = 1; m.flush()
    """,
    "a file that is gone in the end": """
        m = mapped("scratch", 4096); m[0] = 1; os.unlink("scratch"); m.close()
    """,
}


@pytest.mark.parametrize("what", SOUND)
def test_a_sound_program_is_recorded_whole(watched, what):
    assert never_synced(record(watched, SOUND[what])) == []


UNCERTAIN = {
    "msync of a part": """
        m = mapped("m", 8192); m[0] = 1; m[4096] = 1; m.flush(0, 4096)
    """,
    "a write outside of what msync covers": """
        m = mapped("m", 8192); fd = os.open("m", os.O_RDWR)
        os.pwrite(fd, b"N", 5000); m[0] = 1; m.flush(0, 4096)
    """,
    "two processes map one file": """
        fd = os.open("m", os.O_CREAT | os.O_RDWR); os.ftruncate(fd, 4096)
        if os.fork() == 0:
            mmap.mmap(fd, 4096)[0] = 1; os._exit(0)
        os.wait(); m = mmap.mmap(fd, 4096); m[1] = 1; m.flush()
    """,
    "another process writes to a mapped file": """
        fd = os.open("m", os.O_CREAT | os.O_RDWR); os.ftruncate(fd, 4096)
        if os.fork() == 0:
            m = mmap.mmap(fd, 4096); m[0] = 1; m.flush(); os._exit(0)
        os.wait(); os.pwrite(fd, b"committed", 0); os.fsync(fd)
    """,
    "too many files": """
        all = [mapped(f"m{n}", 4096) for n in range(20)]
        for m in all: m[0] = 1
        for m in all: m.flush()
    """,
}


@pytest.mark.parametrize("what", UNCERTAIN)
def test_what_is_not_certain_is_reported(watched, what):
    assert watched.record(MAPPED + textwrap.dedent(UNCERTAIN[what])).blind_spots


OVERCLAIMED = {
    "an msync of nothing": """
        m[0] = 1
        assert libc.msync(ctypes.c_void_p(place), ctypes.c_size_t(0), 4) == 0
    """,
    "an msync of something else at the same address": """
        m[0] = 1; fd = os.open("../other", os.O_CREAT | os.O_RDWR); os.ftruncate(fd, 4096)
        libc.mmap.restype = ctypes.c_void_p
        fixed = mmap.MAP_SHARED | 0x10
        args = [ctypes.c_void_p(place), ctypes.c_size_t(4096), 3, fixed, fd, ctypes.c_long(0)]
        assert libc.mmap(*args) == place
        assert libc.msync(ctypes.c_void_p(place), ctypes.c_size_t(4096), 4) == 0
    """,
}


@pytest.mark.parametrize("what", OVERCLAIMED)
def test_what_was_not_synced_is_not_taken_for_durable(watched, what):
    setup = """
        import ctypes
        libc = ctypes.CDLL(None); m = mapped("m", 4096)
        place = ctypes.addressof(ctypes.c_char.from_buffer(m))
    """
    trace = watched.record(MAPPED + textwrap.dedent(setup) + textwrap.dedent(OVERCLAIMED[what]))
    assert "fdatasync" not in kinds(trace)
    assert never_synced(trace) == ["stores through a mapping of m were never synced (msync)"]


def test_msync_can_fail(watched):
    watched.arm("record", interposer.fail(5, 5))
    result = watched.go(
        MAPPED
        + """
    memory = mapped("m", 4096); memory[0] = 1; os.mkdir("d"); memory[1] = 1
    try: memory.flush()
    except OSError as error: assert error.errno == 5
    else: raise AssertionError("no error")
    """
    )
    assert result.returncode == 0
