"""Programs whose operations are compared, counted and interrupted."""

from __future__ import annotations

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
