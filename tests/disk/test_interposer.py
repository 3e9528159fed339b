"""The interposer against reality: strace for what happened, the directory for what is left.

Every test starts real processes, and none of them sleeps. The replayer below is deliberately not
the product's: it is the second opinion.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from chaoskit.disk import compiling, interposer
from chaoskit.disk.interposer import Action, Control, Mode
from chaoskit.disk.ops import Op, Trace
from chaoskit.disk.trace import Snapshot, decode, records, snapshot
from chaoskit.inside.layout import FLAG_TORN

pytestmark = pytest.mark.skipif(interposer.available() is not None, reason=str(interposer.available()))
REPOSITORY = Path(interposer.__file__).parents[2]
COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler")
STRACE = shutil.which("strace") or ""
needs_strace = pytest.mark.skipif(not STRACE, reason="no strace")


# ---- helpers ------------------------------------------------------------------------------------


class Watched:
    """A directory, a control, and a way to run programs that are watched from the start."""

    def __init__(self, directory: Path, control: Control) -> None:
        self.directory = directory
        self.control = control
        self.start: Snapshot = snapshot(directory)

    def arm(self, mode: Mode = "record", action: Action | None = None, *, seccomp: bool = True) -> None:
        self.start = snapshot(self.directory)
        self.control.arm(self.directory, mode, action, seccomp=seccomp)

    def run(
        self,
        program: str | Sequence[str],
        mode: Mode = "record",
        action: Action | None = None,
        *,
        seccomp: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        self.arm(mode, action, seccomp=seccomp)
        return subprocess.run(
            command_of(program),
            cwd=self.directory,
            env=interposer.environment(self.control),
            capture_output=True,
            text=True,
            check=False,
            process_group=0,
        )

    @property
    def trace(self) -> Trace:
        return decode(self.control.raw_trace(), self.start)

    def counter(self, name: str) -> int:
        """One that the interposer keeps in the control page and the product does not read."""
        return self.control._get(name)

    def record(self, program: str | Sequence[str], *, seccomp: bool = True) -> Trace:
        done = self.run(program, seccomp=seccomp)
        assert done.returncode == 0, done.stderr
        assert self.control.position == len(self.trace.ops)
        return self.trace


def command_of(program: str | Sequence[str]) -> list[str]:
    if isinstance(program, str):
        return [sys.executable, "-c", textwrap.dedent(program)]
    return list(program)


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    with interposer.new_control(trace_size=1 << 26) as made:
        yield made


@pytest.fixture
def watched(tmp_path: Path, control: Control) -> Watched:
    directory = tmp_path / "watched"
    directory.mkdir()
    return Watched(directory, control)


@pytest.fixture
def compile_c(tmp_path: Path) -> Callable[..., str]:
    def build(source: str, *flags: str) -> str:
        assert COMPILER is not None
        (tmp_path / "program.c").write_text(source)
        target = str(tmp_path / f"program{len(flags)}")
        subprocess.run([COMPILER, str(tmp_path / "program.c"), "-o", target, *flags], check=True)
        return target

    return build


Tree = dict[str, bytes | None]


def tree(directory: Path) -> Tree:
    """Path to content; None for a directory. SQLite's -shm is left out: it is mapped."""
    found: Tree = {}
    for path in sorted(directory.rglob("*")):
        if path.name.endswith("-shm"):
            continue
        name = str(path.relative_to(directory))
        if path.is_symlink():
            found[name] = b"-> " + os.fsencode(path.readlink())
        else:
            found[name] = None if path.is_dir() else path.read_bytes()
    return found


def joined(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


class Replayer:
    """The trace, carried out in memory."""

    def __init__(self, trace: Trace) -> None:
        self.content: dict[int, bytearray] = {}
        self.entries: dict[int, dict[str, int]] = {}
        self.links: set[int] = set()
        self.last_path: dict[int, str] = {0: ""}
        for node in trace.initial:
            if node.kind == "dir":
                self.entries[node.file] = {}
            else:
                self.content[node.file] = bytearray(node.data)
            if node.kind == "symlink":
                self.links.add(node.file)
        for node in trace.initial:
            for parent, name in node.names:
                self.enter(parent, name, node.file)

    def enter(self, parent: int, name: str, number: int) -> None:
        self.entries[parent][name] = number
        self.last_path[number] = joined(self.last_path[parent], name)

    def apply(self, op: Op) -> None:
        if op.kind in ("create", "symlink"):
            self.content[op.file] = bytearray(op.data)
        if op.kind == "symlink":
            self.links.add(op.file)
        if op.kind == "mkdir":
            self.entries[op.file] = {}
        if op.kind in ("create", "mkdir", "symlink") and op.parent >= 0:
            self.enter(op.parent, op.name, op.file)
        if op.kind in ("unlink", "rmdir", "rename") and op.parent >= 0:
            assert self.entries[op.parent].pop(op.name) == op.file
        if op.kind in ("rename", "link"):
            assert self.entries[op.parent2].get(op.name2, -1) == op.replaced
            self.enter(op.parent2, op.name2, op.file)
        if op.kind in ("write", "truncate", "allocate", "punch"):
            self.change(op, self.content[op.file])

    def change(self, op: Op, content: bytearray) -> None:
        end = op.offset + op.length
        if op.kind == "truncate":
            content[op.length :] = bytes(max(0, op.length - len(content)))
        elif op.kind == "write":
            assert len(op.data) == op.length
            content.extend(bytes(max(0, op.offset - len(content))))
            content[op.offset : end] = op.data
        elif op.kind == "punch":
            stop = min(end, len(content))
            content[op.offset : stop] = bytes(max(0, stop - op.offset))
        elif not op.keep_size:
            content.extend(bytes(max(0, end - len(content))))

    def tree(self, number: int = 0, prefix: str = "") -> Tree:
        found: Tree = {}
        for name, child in self.entries[number].items():
            if name.endswith("-shm"):
                continue
            path = joined(prefix, name)
            if child in self.entries:
                found |= {path: None} | self.tree(child, path)
            else:
                mark = b"-> " if child in self.links else b""
                found[path] = mark + bytes(self.content[child])
        return found


def replay(trace: Trace, length: int | None = None) -> Tree:
    replayer = Replayer(trace)
    for op in trace.ops[:length]:
        replayer.apply(op)
    return replayer.tree()


def assert_replay_is_the_directory(watched: Watched) -> None:
    assert replay(watched.trace) == tree(watched.directory)


def kinds(trace: Trace) -> list[str]:
    return [op.kind for op in trace.ops]


# ---- agreement with strace ----------------------------------------------------------------------

Event = tuple[str, str, str, int | None, int]  # kind, path, other path, offset if known, length

STRACED = (
    "open,openat,creat,write,pwrite64,writev,pwritev,pwritev2,truncate,ftruncate,fallocate,fsync,"
    "fdatasync,sync,syncfs,rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,"
    "rmdir,mkdir,mkdirat,sendfile,copy_file_range,splice"
)
ARGUMENT = re.compile(
    r"""(?:AT_FDCWD|-?\d+)<[^>]*>(?:\(deleted\))?|"(?:[^"\\]|\\.)*"(?:\.\.\.)?|\[[^\]]*\]|[^,\s]+"""
)


class Strace:
    """Runs a program bare under strace, and says what it did in the interposer's words."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.sizes = {str(path): path.stat().st_size for path in directory.rglob("*") if path.is_file()}
        self.events: list[Event] = []

    def run(self, program: str | Sequence[str], log: Path) -> list[Event]:
        subprocess.run(
            [STRACE, "-f", "-y", "-s0", "-o", str(log), f"-etrace={STRACED}", *command_of(program)],
            cwd=self.directory,
            check=True,
            capture_output=True,
        )
        unfinished: dict[str, str] = {}
        for line in log.read_text().splitlines():
            pid, text = line.split(maxsplit=1)
            if text.endswith("<unfinished ...>"):
                unfinished[pid] = text.removesuffix("<unfinished ...>")
                continue
            if text.startswith("<..."):
                text = unfinished.pop(pid) + text.split("resumed>", 1)[1]
            matched = re.match(r"(\w+)\((.*)\)\s+= (-?\d+)", text)
            if matched and int(matched[3]) >= 0:
                self.note(matched[1], ARGUMENT.findall(matched[2]), int(matched[3]))
        return self.events

    def path(self, text: str, directory: str = "") -> str:
        return os.path.normpath(Path(directory or self.directory, text.strip('"')))

    def of_fd(self, argument: str) -> str:
        return argument[argument.index("<") + 1 : argument.rindex(">")]

    def add(self, kind: str, path: str, other: str = "", offset: int | None = None, length: int = 0) -> None:
        if (path + "/").startswith(self.directory + "/"):
            short = [p and os.path.relpath(p, self.directory).strip(".") for p in (path, other)]
            self.events.append((kind, short[0], short[1], offset, length))

    def note(self, call: str, a: list[str], result: int) -> None:
        if call in ("open", "openat", "creat"):
            at = call == "openat"
            path = self.path(a[at], self.of_fd(a[0]) if at else "")
            self.opened(path, "O_CREAT|O_TRUNC" if call == "creat" else a[at + 1])
        elif call in ("write", "writev", "pwrite64", "pwritev", "pwritev2", "sendfile"):
            positioned = call.startswith("pwrite")
            self.wrote(self.of_fd(a[0]), int(a[3]) if positioned else None, result)
        elif call in ("copy_file_range", "splice"):
            self.wrote(self.of_fd(a[2]), None, result)
        elif call in ("fsync", "fdatasync"):
            self.add(call, self.of_fd(a[0]))
        elif call == "ftruncate":
            self.add("truncate", self.of_fd(a[0]), length=int(a[1]))
            self.sizes[self.of_fd(a[0])] = int(a[1])
        else:
            self.named(call, a)

    def opened(self, path: str, flags: str) -> None:
        if "O_CREAT" in flags and path not in self.sizes:
            self.add("create", path)
            self.sizes[path] = 0
        elif "O_TRUNC" in flags and self.sizes.get(path):
            self.add("truncate", path)
            self.sizes[path] = 0

    def wrote(self, path: str, offset: int | None, length: int) -> None:
        if length:
            self.add("write", path, "", offset, length)
            self.sizes[path] = max(1, self.sizes.get(path, 0))

    def named(self, call: str, a: list[str]) -> None:
        name = call.removesuffix("2").removesuffix("at")
        if call.endswith(("at", "at2")):
            kind_of = {"unlink": "rmdir"} if "AT_REMOVEDIR" in a else {}
            first = [self.path(a[1], self.of_fd(a[0]))]
            if name in ("rename", "link"):
                first.append(self.path(a[3], self.of_fd(a[2])))
            self.renamed(kind_of.get(name, name), first)
        else:
            paths = a[1:] if name == "symlink" else a[:2] if name in ("rename", "link") else a[:1]
            self.renamed(name, [self.path(path) for path in paths])

    def renamed(self, kind: str, paths: list[str]) -> None:
        self.add(kind, paths[0], paths[1] if len(paths) > 1 else "")
        if kind in ("rename", "unlink"):
            size = self.sizes.pop(paths[0], 0)
            if kind == "rename":
                self.sizes[paths[1]] = size
        elif kind == "link":
            self.sizes[paths[1]] = self.sizes[paths[0]]


def events_of(trace: Trace) -> list[Event]:
    replayer = Replayer(trace)
    events: list[Event] = []
    for op in trace.ops:
        path = replayer.last_path.get(op.file, "")
        if op.parent >= 0:
            path = joined(replayer.last_path[op.parent], op.name)
        other = joined(replayer.last_path[op.parent2], op.name2) if op.parent2 >= 0 else ""
        length = op.length if op.kind in ("write", "truncate") else 0
        events.append((op.kind, path, other, op.offset, length))
        replayer.apply(op)
    return events


def comparable(events: list[Event], offsets_of: list[Event]) -> list[Event]:
    """Random names of temporary files become their order; an offset that strace did not print is
    not compared."""
    seen: dict[str, str] = {}

    def steady(path: str) -> str:
        return re.sub(r"tmp\w{8}", lambda m: seen.setdefault(m[0], f"tmp{len(seen)}"), path)

    offsets = [event[3] for event in offsets_of] + [None] * len(events)
    return [
        (kind, steady(path), steady(other), None if known is None else offset, length)
        for (kind, path, other, offset, length), known in zip(events, offsets, strict=False)
    ]


SQLITE = """
    import sqlite3
    db = sqlite3.connect("a.db", isolation_level=None)
    db.execute("pragma journal_mode={mode}")
    db.execute("pragma synchronous=full")
    db.execute("create table t(x)")
    for i in range(3):
        db.execute("begin")
        db.execute("insert into t values(?)", (str(i) * 3000,))
        db.execute("commit")
    db.execute("delete from t where rowid = 2")
    db.close()
"""
WORKLOADS = {
    **{
        f"sqlite {mode}": SQLITE.format(mode=mode)
        for mode in ("delete", "wal", "truncate", "persist", "memory")
    },
    "apsw": """
        import apsw
        db = apsw.Connection("a.db")
        db.execute("pragma journal_mode=wal; create table t(x)").fetchall()
        for i in range(3):
            db.execute("insert into t values(?)", (i,)).fetchall()
        db.close()
    """,
    "python files": """
        import os
        with open("buffered", "w") as f:
            for i in range(3000):
                f.write("line %d\\n" % i)
        with open("buffered", "a") as f:
            f.write("more")
        with open("buffered", "r+") as f:
            f.seek(10); f.write("inside"); f.flush(); os.fsync(f.fileno()); f.truncate(100)
        with open("buffered", "w") as f:
            pass
        fd = os.open("raw", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(fd, b"abc"); os.writev(fd, [b"de", b"", b"fgh"]); os.close(fd)
        fd = os.open("raw", os.O_RDWR)
        os.pwrite(fd, b"XY", 1); os.pwritev(fd, [b"1", b"23"], 4); os.fdatasync(fd)
        os.truncate(fd, 5); os.write(fd, b"")
        for name in ("missing/x", "."):
            try: os.open(name, os.O_CREAT | os.O_WRONLY)
            except OSError: pass
    """,
    "replace": """
        import os
        for i in range(3):
            with open("state.tmp", "w") as f:
                f.write("state %d" % i); f.flush(); os.fsync(f.fileno())
            os.replace("state.tmp", "state")
            fd = os.open(".", os.O_RDONLY); os.fsync(fd); os.close(fd)
        os.link("state", "second"); os.symlink("state", "soft"); os.unlink("second")
        os.makedirs("a/b/c", exist_ok=True); os.makedirs("a/b/c", exist_ok=True)
        os.rename("a/b", "d"); os.removedirs("d/c")
        try: os.unlink("missing")
        except OSError: pass
        try: os.mkdir("a")
        except OSError: pass
    """,
    "shutil": """
        import os, shutil
        os.mkdir("one"); os.mkdir("one/two")
        for name in ("one/x", "one/two/y"):
            open(name, "wb").write(os.urandom(50000))
        shutil.copyfile("one/x", "copy")
        shutil.copytree("one", "three")
        shutil.move("copy", "three/moved")
        shutil.rmtree("one")
    """,
    "tempfile": """
        import tempfile, os
        with tempfile.NamedTemporaryFile(dir=".") as f:
            f.write(b"x" * 10); f.flush()
        fd, name = tempfile.mkstemp(dir="."); os.write(fd, b"kept"); os.close(fd)
        with tempfile.TemporaryDirectory(dir=".") as d:
            open(os.path.join(d, "inner"), "w").write("y")
    """,
    "fork and subprocess": """
        import os, subprocess, sys
        open("parent", "w").write("1")
        if os.fork() == 0:
            open("child", "w").write("2"); os._exit(0)
        os.wait()
        subprocess.run([sys.executable, "-c", "open('grandchild', 'w').write('3')"], check=True)
        subprocess.run("echo shell > shell; cp shell copied; mv copied moved; rm shell",
                       shell=True, check=True)
        subprocess.run(["sh", "-c", "echo bare > bare"], env={}, check=True)
        subprocess.run(["sh", "-c", "echo spawned > spawned"], close_fds=False, check=True)
        os.system("echo system > system")
        open("parent", "a").write("4")
    """,
}


@needs_strace
@pytest.mark.parametrize("name", WORKLOADS)
def test_it_sees_what_strace_sees(name: str, watched: Watched, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    expected = Strace(bare).run(WORKLOADS[name], tmp_path / "log")
    trace = watched.record(WORKLOADS[name])
    assert len(expected) > 5
    assert comparable(events_of(trace), expected) == comparable(expected, expected)
    assert_replay_is_the_directory(watched)


C_PROGRAM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    FILE *f = fopen("stdio", "w");
    for (int i = 0; i < 2000; i++) fprintf(f, "line %d\n", i);
    fflush(f); fclose(f);
    f = fopen("stdio", "a"); fputs("more", f); fclose(f);
    int fd = syscall(SYS_openat, AT_FDCWD, "raw", O_CREAT | O_WRONLY, 0600);
    syscall(SYS_write, fd, "12345", 5);
    syscall(SYS_pwrite64, fd, "AB", 2, 1L);
    syscall(SYS_fsync, fd);
    char name[] = "tmpXXXXXXXX";
    int temporary = mkstemp(name + 2 - 2);
    if (write(temporary, "t", 1) != 1) return 1;
#ifdef __x86_64__
    long result;  /* no C library at all */
    __asm__ volatile("syscall" : "=a"(result)
                     : "a"(SYS_write), "D"((long)fd), "S"("inline"), "d"(6L)
                     : "rcx", "r11", "memory");
    if (result != 6) return 2;
#endif
    remove(name);
    rename("raw", "cooked");
    return 0;
}
"""


@needs_strace
@needs_compiler
def test_it_sees_stdio_raw_and_inline_system_calls(
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
def test_threads_lose_nothing_and_the_order_is_real(watched: Watched, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    expected = Strace(bare).run(THREADS, tmp_path / "log")
    trace = watched.record(THREADS)
    without_offset = [(e[0], e[1], e[2], e[4]) for e in events_of(trace)]
    assert sorted(without_offset) == sorted((e[0], e[1], e[2], e[4]) for e in expected)
    # All threads append to one file: only the true order and the true offsets rebuild it.
    assert_replay_is_the_directory(watched)


def test_processes_that_write_at_once_are_in_the_true_order(watched: Watched) -> None:
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


# ---- kills --------------------------------------------------------------------------------------

ZYGOTE = """
    import json, os, sys, traceback
    from chaoskit.inside import interposer as inside
    import sqlite3
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                os.chdir(job["directory"])
                inside.start(job["directory"], job["control"])
                exec(job["code"], {"inside": inside})
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        print(os.waitpid(pid, 0)[1], flush=True)
"""


class Zygote:
    """A warm interpreter with the sleeping interposer; one fork for each run."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            command_of(ZYGOTE),
            env=interposer.preload({**os.environ, "PYTHONPATH": str(REPOSITORY)}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, watched: Watched, code: str) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        job = {
            "directory": str(watched.directory),
            "control": str(watched.control.path),
            "code": textwrap.dedent(code),
        }
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.process.communicate()  # end of file: it leaves
    assert made.process.returncode == 0


def empty(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir()


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


def test_half_of_a_vector_and_of_a_copy_inside_the_kernel(watched: Watched) -> None:
    vector = "import os; os.writev(os.open('v', os.O_CREAT | os.O_WRONLY), [b'abc', b'defgh'])"
    assert watched.run(vector, action=interposer.kill(1, "half")).returncode == -signal.SIGKILL
    assert tree(watched.directory) == {"v": b"abcd"}
    empty(watched.directory)
    (watched.directory / "source").write_bytes(b"0123456789")
    copy = "import shutil; shutil.copyfile('source', 'copy')"
    assert watched.run(copy, action=interposer.kill(1, "half")).returncode == -signal.SIGKILL
    assert tree(watched.directory) == {"source": b"0123456789", "copy": b"01234"}
    assert_replay_is_the_directory(watched)


# ---- errors -------------------------------------------------------------------------------------

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


def test_a_short_write_is_told_truthfully(watched: Watched) -> None:
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


def test_every_sync_is_an_operation(watched: Watched) -> None:
    trace = watched.record("""
        import os
        fd = os.open("f", os.O_CREAT | os.O_WRONLY)
        os.write(fd, b"x"); os.fsync(fd); os.fdatasync(fd); os.sync(); os.write(fd, b"y")
    """)
    assert kinds(trace) == ["create", "write", "fsync", "fdatasync", "sync", "write"]


# ---- rarer operations ---------------------------------------------------------------------------


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


def test_outside_and_special_files_are_no_operations(watched: Watched, tmp_path: Path) -> None:
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


def test_what_crosses_the_border_is_told(watched: Watched, tmp_path: Path) -> None:
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
    assert len(trace.warnings) == 3
    assert_replay_is_the_directory(watched)


# ---- what can only be reported ------------------------------------------------------------------


def test_a_shared_writable_mapping_is_reported_once_per_file(watched: Watched) -> None:
    trace = watched.record("""
        import mmap, os
        fd = os.open("mapped", os.O_CREAT | os.O_RDWR); os.ftruncate(fd, 4096)
        for _ in range(3): mmap.mmap(fd, 4096)
        mmap.mmap(fd, 4096, access=mmap.ACCESS_READ); mmap.mmap(-1, 4096)
    """)
    assert len(trace.warnings) == 1
    assert "mapped for shared writing" in trace.warnings[0]
    assert trace.warnings[0].endswith("/mapped")


def test_what_the_trace_cannot_say_is_reported(watched: Watched, tmp_path: Path) -> None:
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
        assert len([text for text in trace.warnings if words in text]) == 1, words


def test_a_later_program_does_not_need_the_directory_to_be_there(watched: Watched) -> None:
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
    assert any("statically linked" in text and program in text for text in trace.warnings)


@needs_compiler
def test_a_script_of_a_static_interpreter_is_reported(
    watched: Watched, compile_c: Callable[..., str]
) -> None:
    program = compile_c(STATIC, "-static", "-no-pie")
    script = watched.directory.parent / "script"
    script.write_text(f"#! {program}\n")
    script.chmod(0o755)
    trace = watched.record(f"import subprocess; subprocess.run([{str(script)!r}])")
    assert any(program in text for text in trace.warnings)


@needs_compiler
def test_a_program_at_fixed_addresses_is_covered(watched: Watched, compile_c: Callable[..., str]) -> None:
    program = compile_c(C_PROGRAM, "-no-pie")
    trace = watched.record(f"import subprocess; subprocess.run([{program!r}], check=True)")
    assert [op.data for op in trace.ops if op.kind == "write"][-1] in (b"inline", b"t")
    assert trace.warnings == ()
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
        assert any("io_uring" in text or "libaio" in text for text in trace.warnings)


def test_without_the_filter_stdio_is_missed_and_python_is_not(watched: Watched) -> None:
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


def test_a_full_trace_is_told_loudly(tmp_path: Path) -> None:
    directory = tmp_path / "watched"
    directory.mkdir()
    with Control(tmp_path / "control", trace_size=8192) as control:
        watched = Watched(directory, control)
        watched.run("f = open('f', 'wb', buffering=0); [f.write(b'x' * 1000) for _ in range(100)]")
        assert control.position == 101
        assert len(watched.trace.ops) < 10
        assert any("trace is full" in text for text in watched.trace.warnings)


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


# ---- signals ------------------------------------------------------------------------------------


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


# ---- activation ---------------------------------------------------------------------------------


def test_the_zygote_way_and_the_cold_way_agree(watched: Watched, zygote: Zygote) -> None:
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


def test_position_and_stop(watched: Watched, zygote: Zygote) -> None:
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


def test_a_sleeping_library_does_nothing(watched: Watched) -> None:
    watched.arm()
    subprocess.run(
        command_of("open('a', 'w').write('x')"), cwd=watched.directory, env=interposer.preload(), check=True
    )
    assert watched.control.position == 0
    assert tree(watched.directory) == {"a": b"x"}


def test_errors_of_activation_say_what_is_wrong(watched: Watched, zygote: Zygote) -> None:
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
