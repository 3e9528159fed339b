"""Environments: one per set of requirements, created once and completely."""

import json
import os
import subprocess
import sys
import time

import psutil
import pytest

from chaoskit.adapter import requirements
from chaoskit.run import environment
from chaoskit.run.environment import NoEnvironment, interpreter, place_of

pytestmark = pytest.mark.requirement("C4")


def test_an_installed_library_is_used_as_it_is():
    assert interpreter(["pytest>=1", "msgspec"]) == sys.executable
    assert not environment.satisfied_here(["pytest<1"])
    assert not environment.satisfied_here(["no-such-package-at-all"])


def test_a_requested_version_replaces_the_required_one():
    assert requirements(["A>=3", "b"], ["a==3.0.0"]) == ("b", "a==3.0.0")
    with pytest.raises(ValueError, match="expected a requirement"):
        requirements(["a"], ["not a requirement!"])


@pytest.fixture
def uv(tmp_path, monkeypatch):
    """An installer named uv that needs no network: it installs not-here 1, and notes each time it does."""
    monkeypatch.setenv("CHAOSKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    program = tmp_path / "uv"
    program.write_text(INSTALLER.format(python=sys.executable, log=tmp_path / "log"))
    program.chmod(0o755)
    monkeypatch.setenv("UV_THEN", "true")
    return tmp_path / "log"


INSTALLER = """#!/bin/sh
for last; do :; done
if [ "$1" = venv ]; then exec {python} -m venv --without-pip "$last"; fi
sleep 1000 >/dev/null 2>&1 </dev/null & child=$!
echo $$ $child >> {log}
$UV_THEN || exit 0
kill $child
for site in "${{5%/bin/python}}"/lib/python*/site-packages; do
  mkdir "$site/not_here-1.dist-info"
  printf 'Name: not-here\\nVersion: 1\\n' > "$site/not_here-1.dist-info/METADATA"
done
"""
WANTED = ["not-here==1", "never-wanted; python_version < '3'"]
INSTALL = f"from chaoskit.run.environment import interpreter; print(interpreter({WANTED!r}))"


def is_running(pid):
    try:
        return psutil.Process(int(pid)).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_cached_environment_needs_no_network(uv):
    python = interpreter(WANTED)
    assert python == str(place_of(WANTED) / "bin" / "python") == interpreter(WANTED)
    assert environment.versions(python, WANTED) == {"not-here": "1"}
    assert len(uv.read_text().splitlines()) == 1


def test_an_environment_of_an_older_version_of_chaoskit_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("CHAOSKIT_CACHE", str(tmp_path))
    monkeypatch.setattr(environment, "_make", lambda *_: pytest.fail("made again"))
    place = place_of(WANTED)
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").symlink_to(sys.executable)
    (place / environment.MARK).write_text("{}")
    assert interpreter(WANTED) == str(place / "bin" / "python")


@pytest.mark.usefixtures("uv")
def test_an_interrupted_environment_is_rebuilt():
    place = place_of(WANTED)
    place.mkdir(parents=True)
    (place / "half").write_text("")
    said = []
    interpreter(WANTED, said.append)
    assert "not-here==1" in said[0]
    assert not (place / "half").exists()
    assert json.loads((place / environment.MARK).read_text()) == {"requirements": WANTED}


def test_two_at_once_share_one_installation(uv):
    both = [
        subprocess.Popen([sys.executable, "-c", INSTALL], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    pythons = [each.communicate()[0].strip() for each in both]
    assert pythons == [str(place_of(WANTED) / "bin" / "python")] * 2
    assert environment.versions(pythons[0], WANTED) == {"not-here": "1"}
    assert len(uv.read_text().splitlines()) == 1


def test_an_installer_that_leaves_nothing_is_not_believed(uv, monkeypatch):
    monkeypatch.setenv("UV_THEN", "false")
    with pytest.raises(NoEnvironment, match="not-here"):
        interpreter(WANTED)
    assert not place_of(WANTED).exists()
    monkeypatch.setenv("UV_THEN", "true")
    assert environment.versions(interpreter(WANTED), WANTED) == {"not-here": "1"}
    assert not any(map(is_running, uv.read_text().split())), "the installer's child was left behind"


def test_a_kill_during_the_installation_leaves_no_installer_and_no_environment(uv, monkeypatch):
    monkeypatch.setenv("UV_THEN", "sleep 1000")
    harness = subprocess.Popen([sys.executable, "-c", INSTALL])
    while not uv.exists() or len(uv.read_text().split()) < 2:
        assert harness.poll() is None
        time.sleep(0.01)
    installers = uv.read_text().split()
    harness.kill()
    harness.wait()
    deadline = time.monotonic() + 20
    while any(map(is_running, installers)):
        assert time.monotonic() < deadline, "the installer is still running"
        time.sleep(0.01)
    assert not place_of(WANTED).exists()
    monkeypatch.setenv("UV_THEN", "true")
    assert environment.versions(interpreter(WANTED), WANTED) == {"not-here": "1"}
    left = {path.name.partition("-")[0] for path in place_of(WANTED).parent.glob("*-*")}
    assert left <= {place_of(WANTED).name, "chaoskit"}
    assert len(list(place_of(WANTED).parent.glob(f"{place_of(WANTED).name}-*"))) == 1


def test_an_uninstallable_requirement_is_reported_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("CHAOSKIT_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(environment.shutil, "which", lambda _name: None)
    with pytest.raises(NoEnvironment, match="cannot install no-such-package-at-all") as caught:
        interpreter(["no-such-package-at-all"])
    assert "\n" not in str(caught.value)


def test_only_chaoskit_inside_can_be_imported_there(tmp_path, monkeypatch):
    monkeypatch.setenv("CHAOSKIT_CACHE", str(tmp_path))
    place = environment.only_inside()
    assert place == environment.only_inside()
    assert [path.name for path in (tmp_path / "inside").rglob("*") if path.is_symlink()] == ["chaoskit"]


def test_code_that_is_built_does_not_see_the_secrets_of_the_user():
    variables = {"API_SECRET": "x", "PIP_INDEX_URL": "u", "https_proxy": "p", "PATH": "/bin", "OTHER": "q"}
    assert environment.for_installers(variables) == {"PIP_INDEX_URL": "u", "https_proxy": "p", "PATH": "/bin"}
