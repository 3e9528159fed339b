"""Nothing is left behind: no process, no temporary directory, however a campaign ends."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from chaoskit.run.workspace import MEMORY, Workspace
from tests.conftest import TARGETS

COMMAND = [
    sys.executable,
    "-m",
    "chaoskit.cli.main",
    "run",
    f"{TARGETS}:COUNTING",
    "--plan",
    "sample",
    "--runs",
    "5000",
    "--jobs",
    "2",
]


@pytest.fixture(autouse=True)
def workspaces(monkeypatch):
    """A directory for this test's workspaces: other tests create theirs at the same time."""
    place = Path(tempfile.mkdtemp(prefix="cleanup-", dir=MEMORY))
    monkeypatch.setenv("CHAOSKIT_TMPDIR", str(place))
    yield place
    place.rmdir()  # which fails if anything was left in it


def in_mid_sweep(
    tmp_path: Path, workspaces: Path
) -> tuple[subprocess.Popen[bytes], list[psutil.Process], Path]:
    """A campaign in progress: the harness, all its processes, its directory."""
    harness = subprocess.Popen(
        COMMAND, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    while True:
        assert harness.poll() is None, "the harness ended before it was killed"
        new = list(workspaces.glob("chaoskit-*"))
        # At least one worker has a run in progress; the other may still be starting.
        runs = {run.name.split("-")[1] for place in new for run in place.glob("run-*")}
        family = psutil.Process(harness.pid).children(recursive=True)
        if runs - {str(harness.pid)} and len(family) >= 5:
            return harness, family, new.pop()
        os.sched_yield()


def wait_until_gone(processes: list[psutil.Process], directory: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        alive = [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
        if not alive and not directory.exists():
            return
        os.sched_yield()
    pytest.fail(f"still there after {seconds} s: {alive} {directory}")


@pytest.mark.requirement("C1")
@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.stress)], ids=["once", "ten times"])
def test_a_killed_harness_leaves_nothing_behind(tmp_path, workspaces, times):
    for _ in range(times):
        harness, family, directory = in_mid_sweep(tmp_path, workspaces)
        harness.kill()
        harness.communicate()
        wait_until_gone(family, directory, seconds=1)


def test_ctrl_c_ends_everything_in_order(tmp_path, workspaces):
    harness, family, directory = in_mid_sweep(tmp_path, workspaces)
    os.killpg(harness.pid, signal.SIGINT)
    _, said = harness.communicate(timeout=20)
    assert harness.returncode == 130
    assert b"interrupted" in said
    assert b"Traceback" not in said
    wait_until_gone(family, directory, seconds=1)


def test_a_normal_campaign_leaves_nothing_behind(chaoskit, workspaces):
    assert chaoskit("run", f"{TARGETS}:COUNTING").returncode == 0
    assert list(workspaces.iterdir()) == []


def test_the_guardian_kills_only_what_carries_the_session():
    sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
    workspace = Workspace()
    with (
        subprocess.Popen(sleeper) as stranger,
        subprocess.Popen(sleeper, env={**os.environ, "CHAOSKIT_SESSION": workspace.session}) as ours,
    ):
        workspace._guardian.communicate()  # as if the harness had died
        assert ours.wait() == -signal.SIGKILL
        assert stranger.poll() is None
        stranger.kill()
    assert not workspace.path.exists()
