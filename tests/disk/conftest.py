"""A watched directory, a warm interpreter, a C compiler."""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaoskit.disk import interposer
from chaoskit.disk.interposer import Control
from tests.disk.watching import COMPILER, Watched, Zygote


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


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.process.communicate()  # end of file: it exits
    assert made.process.returncode == 0


@pytest.fixture
def sync_turn() -> Iterator[None]:
    """One test at a time, in all of xdist's workers: sync() writes back every file system of the machine.

    For tests that call it, and for those that would fail if a file system of theirs were written back early.
    """
    with Path(tempfile.gettempdir(), "chaoskit-tests-sync").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
