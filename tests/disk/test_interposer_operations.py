"""The rarer ways to change a directory, and what does not count as an operation."""

from __future__ import annotations

from pathlib import Path

from tests.disk.replayer import assert_replay_is_the_directory
from tests.disk.watching import Watched, kinds, needs_interposer, tree

pytestmark = needs_interposer


def test_every_rarer_way_to_change_a_file_is_rebuilt_exactly(watched: Watched) -> None:
    trace = watched.record("""
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        fd = os.open("f", os.O_CREAT | os.O_RDWR)
        os.write(fd, b"0123456789" * 1000)
        PUNCH, KEEP, ZERO = 2, 1, 16
        fallocate = libc.fallocate
        fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
        assert fallocate(fd, PUNCH | KEEP, 100, 200) == 0
        assert fallocate(fd, 0, 9000, 2000) == 0
        assert fallocate(fd, KEEP, 0, 50000) == 0
        fallocate(fd, ZERO, 5000, 10); fallocate(fd, ZERO, 10990, 100)   # not on every file system
        os.posix_fallocate(fd, 20000, 5)
        os.lseek(fd, 3, os.SEEK_SET)
        target = os.open("target", os.O_CREAT | os.O_RDWR)
        assert os.copy_file_range(fd, target, 20) == 20
        assert os.copy_file_range(fd, target, 7, 0, 40) == 7
        assert os.sendfile(target, fd, 50, 9) == 9
        reader, writer = os.pipe(); os.write(writer, b"through a pipe")
        assert os.splice(reader, target, 100, offset_dst=5) == 14
        durable = os.open("durable", os.O_CREAT | os.O_WRONLY | os.O_DSYNC)
        os.write(durable, b"on disk")
        appended = os.open("f", os.O_WRONLY | os.O_APPEND)
        os.pwrite(appended, b"at the end, whatever the offset says", 3)
        os.pwritev(target, [b"now"], 2, os.RWF_DSYNC)
        os.truncate("durable", 3)
        os.mknod("node", 0o600)
        os.symlink("not yet", "dangling"); open("dangling", "w").write("through the link")
    """)
    assert_replay_is_the_directory(watched)
    assert [op.kind for op in trace.ops if op.durable] == ["write", "write"]
    assert [op.keep_size for op in trace.ops if op.kind == "allocate"] == [False, True, False]
    assert "not yet" in tree(watched.directory)


def test_a_file_without_a_name_gets_one_by_a_link(watched: Watched) -> None:
    trace = watched.record("""
        import os
        fd = os.open(".", os.O_TMPFILE | os.O_RDWR)
        os.write(fd, b"secret")
        root = os.open("/", os.O_RDONLY)   # makes os.link use linkat, which can follow
        os.link("/proc/self/fd/%d" % fd, "named", src_dir_fd=root, follow_symlinks=True)
        os.write(fd, b" no more")
    """)
    assert [(op.kind, op.parent) for op in trace.ops[:3]] == [("create", -1), ("write", -1), ("link", -1)]
    assert tree(watched.directory) == {"named": b"secret no more"}
    assert_replay_is_the_directory(watched)


def test_an_inode_that_is_used_again_is_a_new_object(watched: Watched) -> None:
    trace = watched.record("""
        import os
        for i in range(20):
            open("f", "w").write(str(i)); os.unlink("f")
        fd = os.open("open", os.O_CREAT | os.O_RDWR); os.unlink("open")
        os.write(fd, b"nobody sees this"); os.fsync(fd)
    """)
    created = [op.file for op in trace.ops if op.kind == "create"]
    assert len(set(created)) == 21
    assert [op.file for op in trace.ops[-3:]] == [created[-1]] * 3
    assert tree(watched.directory) == {}


def test_files_outside_and_special_files_are_not_operations(watched: Watched, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    trace = watched.record(f"""
        import os, socket
        open({str(outside)!r}, "w").write("x"); os.unlink({str(outside)!r})
        open("/dev/null", "w").write("x"); print("stdout")
        a, b = socket.socketpair(); a.send(b"x"); os.write(a.fileno(), b"y")
        open("inside", "w").write("")
        open("inside").read()
        open("inside", "w").close()
    """)
    assert kinds(trace) == ["create"]


def test_what_crosses_the_border_of_the_watched_directory_is_reported(
    watched: Watched, tmp_path: Path
) -> None:
    (tmp_path / "incoming").write_bytes(b"from outside")
    (tmp_path / "linked").write_bytes(b"linked from outside")
    (watched.directory / "replaced").write_bytes(b"old")
    (watched.directory / "leaving").write_bytes(b"bye")
    trace = watched.record("""
        import os
        os.replace("../incoming", "replaced")
        os.link("../linked", "linked")
        os.rename("leaving", "../gone")
        open("../gone", "a").write("not seen any more")
        open("replaced", "a").write(" and more")
    """)
    assert kinds(trace) == ["rename", "link", "unlink", "write"]
    assert len(trace.blind_spots) == 3
    assert_replay_is_the_directory(watched)


def test_closed_files_are_noted_between_the_operations(watched: Watched) -> None:
    trace = watched.record("""
        import ctypes, os
        with open("a", "w") as file:
            file.write("written when it is closed")
        kept = open("b", "w"); kept.write("x"); kept.flush()
        libc = ctypes.CDLL(None)
        libc.fopen.restype = ctypes.c_void_p
        stream = libc.fopen(b"c", b"w")
        libc.fputs(b"buffered", ctypes.c_void_p(stream)); libc.fclose(ctypes.c_void_p(stream))
        os.close(os.open("a", os.O_RDONLY))
        os._exit(0)
    """)
    assert kinds(trace) == ["create", "write", "create", "write", "create", "write"]
    names = {op.file: op.name for op in trace.ops if op.kind == "create"}
    assert [(at, names[file]) for at, file in trace.closes] == [(2, "a"), (6, "c"), (6, "a")]
