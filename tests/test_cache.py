"""One place for everything that chaoskit keeps between runs, and the user may choose it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaoskit import cache
from chaoskit.disk import compiling, interposer

ROOT = Path(__file__).parent.parent
MAKE_EVERYTHING = """
from chaoskit.disk import interposer
from chaoskit.run import environment
print(interposer.library())
print(environment.only_inside())
print(environment.place_of(["not-here==1"]))
"""


def test_the_configured_cache_directory_takes_precedence_over_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("CHAOSKIT_CACHE", str(tmp_path / "chosen"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.cache_directory() == tmp_path / "chosen"
    monkeypatch.setenv("CHAOSKIT_CACHE", "")
    assert cache.cache_directory() == tmp_path / "xdg" / "chaoskit"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.cache_directory() == tmp_path / "home" / ".cache" / "chaoskit"


@pytest.mark.skipif(compiling.find_compiler() is None, reason="no C compiler")
@pytest.mark.skipif(
    interposer.SOURCE.with_name(compiling.LIBRARY_NAME).exists(), reason="built with the wheel"
)
def test_with_a_configured_cache_directory_nothing_is_written_to_the_users_cache(tmp_path):
    home, chosen = tmp_path / "home", tmp_path / "chosen"
    home.mkdir()
    environment = {**os.environ, "HOME": str(home), "CHAOSKIT_CACHE": str(chosen)}
    environment.pop("XDG_CACHE_HOME", None)
    command = [sys.executable, "-c", MAKE_EVERYTHING]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert all(line.startswith(f"{chosen}/") for line in done.stdout.splitlines())
    assert Path(done.stdout.splitlines()[0]).exists()
    assert list(home.iterdir()) == []


def test_the_build_hook_has_no_flags_of_its_own():
    hook = (ROOT / "hatch_build.py").read_text()
    assert not [flag for flag in (*compiling.COMPILE_FLAGS, *compiling.LINK_FLAGS) if f'"{flag}"' in hook]
