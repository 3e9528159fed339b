"""Unusual ways of writing: each is recorded, or the verdict is UNKNOWN with the reason; none HOLDS unseen."""

import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from chaoskit.certify.certification import certify, settings_for
from chaoskit.run.workspace import base_directory
from chaoskit.search.rig import NotSeen
from tests.disk.watching import COMPILER

ROUTES = Path(__file__).parent.parent / "targets" / "routes.py"
pytestmark = [
    pytest.mark.stress,
    pytest.mark.requirement("C4"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="its numbers and machine code are of x86-64"),
]

HELPER = """
#include <stdio.h>
int main(int count, char **words) {
    char bytes[65536];
    size_t size;
    FILE *file = fopen(words[count - 1], "w");
    while ((size = fread(bytes, 1, sizeof bytes, stdin)))
        fwrite(bytes, 1, size, file);
    return fclose(file);
}
"""


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch):
    """A directory outside of the workspaces, on their file system, so that hard links reach it."""
    place = tempfile.mkdtemp(prefix="elsewhere-", dir=base_directory())
    monkeypatch.setenv("ELSEWHERE", place)
    yield place
    shutil.rmtree(place)


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    """A process that is not started by the target, and writes for it."""
    address = tmp_path / "daemon"
    monkeypatch.setenv("DAEMON", str(address))
    process = subprocess.Popen([sys.executable, str(ROUTES), str(address)])
    while not address.exists():
        assert process.poll() is None
        time.sleep(0.01)
    yield
    process.kill()
    process.wait()


@pytest.fixture
def helper(tmp_path, monkeypatch):
    if COMPILER is None:
        pytest.skip("no C compiler")
    program = tmp_path / "helper"
    command = [COMPILER, "-static", "-no-pie", "-x", "c", "-", "-o", str(program)]
    subprocess.run(command, input=HELPER, text=True, check=True)
    monkeypatch.setenv("STATIC_HELPER", str(program))


class Text:
    """Equal to a text in which the pattern is found."""

    def __init__(self, pattern):
        self.pattern = pattern

    def __eq__(self, other):
        return re.search(self.pattern, other) is not None

    __hash__ = None

    def __repr__(self):
        return f"a text with {self.pattern!r}"


def verdict_of(name, *tiers):
    """The verdict and its reasons."""
    try:
        settings = settings_for(
            f"{ROUTES}:{name}", runs=60, pass_env=("ELSEWHERE", "STATIC_HELPER", "DAEMON")
        )
        made = certify(settings, tiers or ("process", "torn"))
    except NotSeen as reason:
        return "UNKNOWN", str(reason)
    return made.verdict.value, "; ".join(made.reasons())


@pytest.mark.parametrize(
    "name",
    [
        "RawSyscall",
        "MachineCode",
        "Splice",
        "CopyRange",
        "Direct",
        "Holes",
        "Nameless",
        "ProcFd",
        "LinkedOutside",
        "CleanEnvironment",
        "MappedAndSynced",
    ],
)
def test_what_is_recorded_can_hold(name):
    assert verdict_of(name) == ("HOLDS", "")


CHANGED = "content that no operation wrote"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("LowCode", CHANGED),
        ("X32", "32-bit system call was refused"),
        ("Int80", "32-bit system call was refused"),
        ("LowInt80", CHANGED),
        ("PosixAio", "died of SIGSYS"),
        ("Mapped", "stores through a mapping of .* were never synced"),
        ("MappedDatabaseIndex", "mapped for shared writing"),
        ("MadeWritable", CHANGED),
        ("Attribute", "extended attribute"),
        ("SymlinkOut", "leads out of the directory"),
        ("OutsideDatabase", "starts in an empty directory finds save .*sessions.db was written to"),
        ("OutsideIndex", "sessions was written to, outside of the directory"),
    ],
)
def test_what_is_not_recorded_is_unknown_and_the_reason_is_given(name, reason):
    assert verdict_of(name) == ("UNKNOWN", Text(reason))


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Daemon", "creation was not traced"),
        ("DaemonLog", CHANGED),
        ("PassedDescriptor", "creation was not traced"),
        ("Server", "starts in an empty directory finds save"),
    ],
)
def test_what_another_process_writes_is_unknown(name, reason):
    assert verdict_of(name) == ("UNKNOWN", Text(reason))


@pytest.mark.usefixtures("helper")
def test_a_static_program_is_unknown():
    assert verdict_of("StaticHelper") == ("UNKNOWN", Text("statically linked program"))


def test_io_uring_is_unknown():
    switch = Path("/proc/sys/kernel/io_uring_disabled")
    if not switch.exists() or switch.read_text().strip() != "0":
        pytest.skip("no io_uring here")
    assert verdict_of("IoUring") == ("UNKNOWN", Text("io_uring was set up"))


def test_what_was_overwritten_before_the_end_is_found():
    """Its last state shows nothing, and every state that is rebuilt without the index can be loaded."""
    verdict, reasons = verdict_of("HiddenIndex")
    assert verdict != "HOLDS"
    assert "index had content that no operation wrote" in reasons


def test_a_real_crash_is_compared_with_its_trace():
    verdict, reasons = verdict_of("HiddenIndex", "recovery")
    assert verdict != "HOLDS"
    assert "index has content that no operation wrote" in reasons
