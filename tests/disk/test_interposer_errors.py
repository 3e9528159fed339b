"""Disk errors: operation K fails, is cut short, or loses earlier writes."""

from __future__ import annotations

import errno
import json

import pytest

from chaoskit.disk import interposer
from chaoskit.disk.interposer import Action
from tests.disk.replayer import assert_replay_is_the_directory
from tests.disk.watching import Watched, empty, kinds, needs_interposer, tree

pytestmark = needs_interposer


TRY_ALL = """
    import os, json
    failed = []
    def attempt(name, call, *args):
        try: return call(*args)
        except OSError as error: failed.append([name, error.errno])
    fd = os.open("file", os.O_CREAT | os.O_RDWR)
    attempt("write", os.write, fd, b"abcdef")
    attempt("pwrite", os.pwrite, fd, b"xy", 1)
    attempt("fsync", os.fsync, fd)
    attempt("truncate", os.ftruncate, fd, 3)
    attempt("fdatasync", os.fdatasync, fd)
    attempt("mkdir", os.mkdir, "dir")
    attempt("link", os.link, "file", "second")
    attempt("rename", os.rename, "second", "third")
    attempt("unlink", os.unlink, "third")
    attempt("rmdir", os.rmdir, "dir")
    attempt("symlink", os.symlink, "file", "soft")
    print(json.dumps(failed))
"""
STEPS = [
    "create",
    "write",
    "pwrite",
    "fsync",
    "truncate",
    "fdatasync",
    "mkdir",
    "link",
    "rename",
    "unlink",
    "rmdir",
    "symlink",
]


@pytest.mark.parametrize("at", range(1, len(STEPS)))
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_the_operation_at_k_fails_once_and_changes_nothing(at: int, error: int, watched: Watched) -> None:
    done = watched.run(TRY_ALL, action=interposer.fail(at, error))
    failed = json.loads(done.stdout)
    assert failed[0] == [STEPS[at], error]
    assert (watched.control.fired, watched.counter("fired_index")) == ("yes", at)
    assert watched.counter("fired_times") == 1
    assert_replay_is_the_directory(watched)


def disk_full(at: int, *, count: int = interposer.FOREVER) -> Action:
    return interposer.fail(at, errno.ENOSPC, kinds=interposer.NEEDS_SPACE, count=count)


def test_errors_can_last_for_n_operations_or_for_ever(watched: Watched) -> None:
    code = """
        import os
        fd = os.open("f", os.O_CREAT | os.O_WRONLY)
        outcome = ""
        for i in range(6):
            try: os.write(fd, b"data"); outcome += "+"
            except OSError: outcome += "-"
        os.ftruncate(fd, 0); os.unlink("f")
        print(outcome)
    """
    assert watched.run(code, action=disk_full(2)).stdout == "+-----\n"
    assert kinds(watched.trace) == ["create", "write", "truncate", "unlink"]
    assert watched.run(code, action=disk_full(2, count=3)).stdout == "+---++\n"
    assert watched.counter("fired_times") == 3


def test_a_short_write_returns_the_bytes_written(watched: Watched) -> None:
    code = """
        import os
        fd = os.open("f", os.O_CREAT | os.O_WRONLY)
        print(os.write(fd, b"0123456789"), os.write(fd, b"ab"))
    """
    done = watched.run(code, action=interposer.short_write(1))
    assert done.stdout == "5 2\n"
    assert tree(watched.directory) == {"f": b"01234ab"}
    assert_replay_is_the_directory(watched)
    empty(watched.directory)
    watched.run(code, action=interposer.short_write(0))
    assert watched.control.fired == "not applicable"


@pytest.mark.parametrize(("count", "printed"), [(1, "5 - 2\n"), (interposer.FOREVER, "5 - -\n")])
def test_a_disk_that_fills_takes_half_of_a_write_and_refuses_the_next(
    count: int, printed: str, watched: Watched
) -> None:
    code = """
        import errno, os
        def write(data):
            try: return os.write(fd, data)
            except OSError as error: return "-" if error.errno == errno.ENOSPC else error
        fd = os.open("f", os.O_CREAT | os.O_WRONLY)
        print(write(b"0123456789"), write(b"56789"), write(b"ab"))
        os.ftruncate(fd, 1)
    """
    full = interposer.NEEDS_SPACE
    assert watched.run(code, action=interposer.fill(1, kinds=full, count=count)).stdout == printed
    assert watched.control.fired == "yes"
    assert tree(watched.directory) == {"f": b"0"}
    assert_replay_is_the_directory(watched)


def test_a_failed_fsync_loses_what_was_not_synced(watched: Watched) -> None:
    (watched.directory / "f").write_bytes(b"old old old old")
    done = watched.run(
        """
        import os
        fd = os.open("f", os.O_WRONLY)
        os.pwrite(fd, b"SYNCED", 0); os.fsync(fd)
        os.pwrite(fd, b"lost", 2); os.pwrite(fd, b"LOST AGAIN", 4); os.pwrite(fd, b"beyond", 20)
        other = os.open("other", os.O_CREAT | os.O_WRONLY); os.write(other, b"stays")
        try: os.fsync(fd)
        except OSError as error: print(error.errno)
        os.fsync(fd)
        """,
        action=interposer.lose_on_fsync(7),
    )
    assert (done.stdout, done.stderr) == (f"{errno.EIO}\n", "")
    content = b"SYNCEDd old old" + bytes(11)
    assert tree(watched.directory) == {"f": content, "other": b"stays"}
    assert watched.control.fired == "yes"
    assert_replay_is_the_directory(watched)


@pytest.mark.usefixtures("sync_turn")
def test_every_sync_is_an_operation(watched: Watched) -> None:
    trace = watched.record("""
        import os
        fd = os.open("f", os.O_CREAT | os.O_WRONLY)
        os.write(fd, b"x"); os.fsync(fd); os.fdatasync(fd); os.sync(); os.write(fd, b"y")
    """)
    assert kinds(trace) == ["create", "write", "fsync", "fdatasync", "sync", "write"]
