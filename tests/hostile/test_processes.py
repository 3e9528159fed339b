"""Attacks that need a process: full and closed streams, missing directories, signals, hostile adapters."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from chaoskit.model import Target
from chaoskit.run.zygote import CannotStart, Zygote

STORES = Path(__file__).with_name("hostile_stores.py")
COUNTING = f"{Path(__file__).parent.parent / 'toy_targets.py'}:COUNTING"
FEW = ("run", COUNTING, "--plan", "sample", "--runs", "2", "--jobs", "1")
SECRETS = {"API_SECRET": "x", "OTHER": "SECRET"}
CODES = {0, 1, 2, 3, 4, 130, 143}


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Runs `chaoskit`, or a shell line with it as `$CHAOSKIT`, and checks that nothing is left behind."""
    work = tmp_path / "tmp"
    work.mkdir()

    def run(*arguments, line="", limit=None, **variables):
        program = [sys.executable, "-m", "chaoskit.cli.main"]
        shell = f"set -o pipefail; {line.replace('$CHAOSKIT', ' '.join([*program, *arguments]))}"
        command = ["bash", "-c", shell] if line else [*program, *arguments]
        usual = {**os.environ, "CHAOSKIT_TMPDIR": str(work), "CHAOSKIT_CACHE": str(tmp_path / "cache")}
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={name: value for name, value in {**usual, **variables}.items() if value is not None},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            preexec_fn=limit,
        )
        assert done.returncode in CODES, done
        assert "Traceback" not in done.stdout + done.stderr, done
        assert "\x1b" not in done.stdout + done.stderr
        assert list(work.iterdir()) == []
        return done

    return run


@pytest.fixture
def certified(start, tmp_path):
    """Certifies the hostile store; only tiers that take a moment."""

    def run(how, *options, **variables):
        shutil.copy(STORES, tmp_path / "stores.py")
        (tmp_path / "how").write_text(how)
        tiers = ("--tiers", "first-start", "--jobs", "1", *options)
        return start("certify", "./stores.py:Store", *tiers, **variables)

    return run


# --- streams and places


def test_a_reader_that_leaves_is_no_error(start):
    done = start(*FEW, line="$CHAOSKIT | head -c 1")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_pipe_does_not_change_the_verdict(start):
    broken = FEW[1].replace("COUNTING", "FAILING")
    assert start("run", broken, "--jobs", "1", line="$CHAOSKIT | head -c 1").returncode == 1


@pytest.mark.parametrize("stream", [">/dev/full", ">&-", "2>/dev/full", "2>&-"])
def test_a_stream_that_takes_nothing_is_no_finding(start, stream):
    done = start(*FEW, line=f"$CHAOSKIT {stream}")
    assert done.returncode == (4 if stream == ">/dev/full" else 0)
    if stream == ">/dev/full":
        assert done.stderr == "chaoskit: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize("place", ["", "/nowhere/at/all", "/dev/null"])
def test_a_temporary_directory_that_is_none(start, place):
    done = start(*FEW, CHAOSKIT_TMPDIR=place)
    assert done.returncode == 2
    assert done.stderr.startswith("chaoskit: expected CHAOSKIT_TMPDIR to be a directory")


def test_too_few_descriptors_are_named(start):
    limit = 8
    done = start(*FEW, limit=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
    assert done.returncode == 4
    assert "ulimit -n" in done.stderr


def test_sixty_four_descriptors_are_enough(start):
    done = start(*FEW, limit=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    assert done.returncode == 0


def test_files_that_cannot_grow_are_an_internal_error(start):
    """As on a full disk: a write fails, here with EFBIG."""
    done = start(*FEW, limit=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
    assert done.returncode in (2, 4)
    assert done.stderr.count("\n") == 1


def test_a_home_that_is_missing(start):
    done = start(*FEW, HOME="/nowhere/at/all", CHAOSKIT_CACHE=None, XDG_CACHE_HOME=None)
    assert done.returncode == 0


def test_sigterm_ends_in_order(tmp_path):
    work = tmp_path / "tmp"
    work.mkdir()
    arguments = ("run", COUNTING, "--plan", "sample", "--runs", "5000", "--jobs", "2")
    with subprocess.Popen(
        [sys.executable, "-m", "chaoskit.cli.main", *arguments],
        cwd=tmp_path,
        env={**os.environ, "CHAOSKIT_TMPDIR": str(work)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as harness:
        while not list(work.glob("chaoskit-*/run-*")):
            assert harness.poll() is None
            os.sched_yield()
        family = psutil.Process(harness.pid).children(recursive=True)
        os.killpg(harness.pid, signal.SIGTERM)
        said = harness.communicate(timeout=30)[1]
    assert harness.returncode == 143
    assert said == "chaoskit: terminated: all processes ended, all temporary files removed\n"
    assert psutil.wait_procs(family, timeout=5)[1] == []
    assert list(work.iterdir()) == []


# --- adapters


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("kills its parent", "was killed"),
        ("kills itself", "was killed (signal 9)"),
        ("exits", "ended by itself, with exit code 0"),
        ("raises SystemExit", "SystemExit: bye"),
        ("raises a surrogate", "JSONDecodeError"),
        ("raises KeyboardInterrupt", "KeyboardInterrupt"),
        ("recurses", "RecursionError"),
        ("closes everything", "cannot be started"),
    ],
)
def test_an_adapter_that_cannot_be_imported_cannot_be_tested(certified, how, words):
    done = certified(how)
    assert done.returncode == 2, done
    assert words in done.stderr


@pytest.mark.parametrize("how", ["forks", "prints", "changes the directory", "nothing at all"])
def test_an_adapter_that_misbehaves_harmlessly_is_tested(certified, how):
    done = certified(how)
    assert done.returncode in (0, 3), done


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("cannot be opened", 2),
        ("kills its parent in a life", 2),
        ("fails with surrogates", 2),
        ("shows nan", 0),
    ],
)
def test_an_adapter_that_fails_in_its_life(certified, how, code):
    done = certified(how)
    assert done.returncode == code, done
    assert len(done.stderr) < 5000


def test_an_import_that_hangs_has_a_deadline(tmp_path):
    shutil.copy(STORES, tmp_path / "stores.py")
    (tmp_path / "how").write_text("hangs")
    target = Target(entry=f"{tmp_path / 'stores.py'}:Store")
    zygote = Zygote(target, session="x", home=tmp_path, deadline=0.5)
    with pytest.raises(CannotStart, match=r"not imported after 0\.5 s"):
        zygote.ready()


def test_a_target_does_not_see_the_secrets_of_the_user(certified, tmp_path):
    done = certified("", "--json", "out.json", **SECRETS)
    found = json.loads((tmp_path / "out.json").read_text())["settings"]
    assert found == {"secrets": "{}", "home": "True"}, done


def test_a_target_sees_what_is_passed_on(certified, tmp_path):
    certified("", "--json", "out.json", "--pass-env", "API_SECRET", **SECRETS)
    found = json.loads((tmp_path / "out.json").read_text())["settings"]
    assert json.loads(found["secrets"]) == {"API_SECRET": "x"}


# --- tokens


def test_a_token_of_ones_own_run_needs_no_trust_and_that_of_another_does(start, tmp_path):
    broken = FEW[1].replace("COUNTING", "FAILING")
    found = json.loads(start("run", broken, "--jobs", "1", "--json", "-").stdout)
    token = found["findings"][0]["repro"]
    assert start("replay", token).returncode == 1
    shutil.rmtree(tmp_path / "cache")  # another user's, or another machine
    done = start("replay", token)
    assert done.returncode == 2
    assert "would import" in done.stderr
    assert start("replay", token, "--trust").returncode == 1
