"""Stores through shared mappings are recorded as writes by the next operation or acknowledgement."""

from __future__ import annotations

import pytest

from chaoskit.disk import interposer
from chaoskit.disk.verify import never_synced
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
    trace = watched.record(MAPPED + code)
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
        (4, "half", (b"x" * 4096, b"")),
        (4, "after", (b"x" * 8192, b"")),
        (5, "half", (b"x" * 8192, b"y" * 2048)),
        (6, "before", (b"x" * 8192, b"y" * 4096)),
    ],
)
def test_a_kill_leaves_the_stores_before_it(watched, at, when, left):
    """Operations 4 and 5 are the stores, 6 is the msync that finds them."""
    watched.arm("record", interposer.kill(at, when))
    assert watched.go(MAPPED + STORES).returncode < 0
    found = tree(watched.directory)
    assert (found["m"].rstrip(b"\0"), found["o"].rstrip(b"\0")) == left


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
