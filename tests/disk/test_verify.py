"""What the interposer did not see is found by comparing the trace with the files."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

import pytest

from chaoskit.disk.filedata import PAGE, file_data
from chaoskit.disk.verify import is_shared_memory, links_out, surprises, written_elsewhere
from tests.disk.watching import Watched, needs_interposer

UNSEEN = """
    import ctypes, mmap, os
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    def unseen(path, data):
        fd = os.open(path, os.O_RDWR); os.ftruncate(fd, len(data))
        place = ctypes.c_void_p(libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0))
        assert libc.mprotect(place, 4096, mmap.PROT_READ | mmap.PROT_WRITE) == 0
        ctypes.memmove(place, data, len(data))
        os.close(fd)
    fd = os.open("f", os.O_CREAT | os.O_RDWR); os.write(fd, b"seen!")
    {change}
"""


def checked(watched: Watched, code: str) -> list[str]:
    watched.arm(check=True)
    assert watched.go(code).returncode == 0
    return surprises(watched.trace)


@needs_interposer
@pytest.mark.parametrize(
    "change",
    [
        "unseen('f', b'other'); os.pwrite(fd, b'SEEN!', 0)",
        "unseen('f', b'other'); os.ftruncate(fd, 0)",
        "unseen('f', b'other'); os.truncate('f', 2)",
        "unseen('f', b'other'); open('f', 'w').close()",
        "unseen('f', b'other'); os.unlink('f')",
        "unseen('f', b'other'); os.rename('f', 'g')",
        "unseen('f', b'other'); open('g', 'w').close(); os.rename('g', 'f')",
        "unseen('f', b'other'); os.rename('f', 'f-shm')",
        "unseen('f', b'other'); s = os.open('f', os.O_RDONLY); os.copy_file_range(s, fd, 2, 2, 0)",
    ],
)
def test_content_that_changed_unseen_is_found_when_it_is_replaced(watched: Watched, change: str) -> None:
    (line,) = checked(watched, UNSEEN.format(change=change))
    assert line.endswith("f had content that no operation wrote")


@needs_interposer
def test_what_was_seen_is_no_surprise(watched: Watched) -> None:
    code = """
        import os, sqlite3
        fd = os.open("f", os.O_CREAT | os.O_RDWR)
        os.write(fd, b"x" * 10_000); os.pwrite(fd, b"y" * 5000, 3000); os.ftruncate(fd, 6000)
        os.pwrite(fd, b"z", 20_000); os.link("f", "g"); os.rename("g", "h"); os.unlink("f")
        with open("h", "a") as file: file.write("more")
        with open("h", "r+") as file: file.write("less"); file.truncate(2)
        db = sqlite3.connect("db"); db.execute("PRAGMA journal_mode=WAL"); db.execute("CREATE TABLE t (x)")
        for n in range(50): db.execute("INSERT INTO t VALUES (?)", ("x" * n * 50,)); db.commit()
        db.execute("DELETE FROM t"); db.commit(); db.execute("VACUUM"); db.close()
    """
    assert checked(watched, code) == []
    assert len(watched.trace.found) > 5


@needs_interposer
def test_files_elsewhere_are_named_if_they_last(watched: Watched, tmp_path: Path) -> None:
    lasting, gone = tmp_path / "lasting", tmp_path / "gone"
    trace = watched.record(f"""
        import os
        for path in ({str(lasting)!r}, {str(gone)!r}):
            with open(path, "w", buffering=1) as file: file.write("a\\n"); file.write("b\\n")
        os.unlink({str(gone)!r})
    """)
    assert sorted(trace.elsewhere) == [str(gone), str(lasting)]
    assert written_elsewhere(trace, Path("/nowhere")) == [
        f"{lasting} was written to, outside of the directory"
    ]
    assert written_elsewhere(trace, tmp_path) == []  # the harness' own directory


@needs_interposer
def test_symbolic_links_that_lead_out_are_found(watched: Watched) -> None:
    trace = watched.record("""
        import os
        os.mkdir("a"); os.mkdir("a/b")
        os.symlink("../../f", "a/b/inside"); os.symlink("b", "a/below")
        os.symlink("../../f", "a/out"); os.symlink("/etc", "etc")
    """)
    assert [line.split()[3] for line in links_out(trace)] == ["a/out", "etc"]


def test_only_a_database_s_own_shared_memory_is_exempt(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "db")
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("CREATE TABLE t (x)")
    assert is_shared_memory(tmp_path / "db-shm")
    (tmp_path / "mine-shm").write_bytes(b"state")
    assert not is_shared_memory(tmp_path / "mine-shm")
    assert not is_shared_memory(tmp_path / "db")
    db.close()


def test_lmdb_s_locks_are_exempt_too(tmp_path: Path) -> None:
    magic = (0xBEEFC0DE).to_bytes(4, sys.byteorder)
    (tmp_path / "lock.mdb").write_bytes(magic + bytes(60))
    (tmp_path / "mine-lock").write_bytes(b"state")
    assert is_shared_memory(tmp_path / "lock.mdb")
    assert not is_shared_memory(tmp_path / "mine-lock")
    (tmp_path / "mine").write_bytes(bytes(16) + magic)
    assert is_shared_memory(tmp_path / "mine-lock")


def test_a_range_of_a_file_s_data() -> None:
    content = os.urandom(100) + bytes(PAGE) + os.urandom(PAGE)
    data = file_data(content)
    for offset, length in (
        (0, 10),
        (50, 2 * PAGE),
        (PAGE, PAGE),
        (PAGE + 7, 9999),
        (len(content), 5),
        (9**9, 1),
    ):
        assert data.read_range(offset, length) == content[offset : offset + length]


CLOCK = """
    import ctypes, datetime, os, time
    from chaoskit.inside import interposer
    real, quick = time.time(), time.monotonic()
    interposer.set_clock(1_000_000_000)
    looks = [time.time(), datetime.datetime.now().timestamp(), time.time_ns() / 1e9]
    assert [round(look - 1e9, 3) for look in looks] == [0.001, 0.002, 0.003], looks
    assert ctypes.CDLL(None).time(None) == 1_000_000_000
    assert 0 <= time.monotonic() - quick < 60
    interposer.set_clock(0)
    assert 0 <= time.time() - real < 60
"""


@needs_interposer
def test_the_wall_clock_can_be_seeded_below_python(watched: Watched) -> None:
    watched.record(CLOCK)
