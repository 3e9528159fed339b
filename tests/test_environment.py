"""Environments: one per set of requirements, created once and completely."""

import json
import sys

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


def test_a_cached_environment_needs_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("CHAOSKIT_CACHE", str(tmp_path))
    monkeypatch.setattr(environment, "_make", lambda *_: pytest.fail("made again"))
    place = place_of(["not-here==1"])
    place.mkdir(parents=True)
    (place / environment.MARK).write_text("{}")
    assert interpreter(["not-here==1"]) == str(place / "bin" / "python")


def test_an_interrupted_environment_is_rebuilt(tmp_path, monkeypatch):
    monkeypatch.setenv("CHAOSKIT_CACHE", str(tmp_path))
    made = []

    def make(place, wanted):
        assert not (place / "half").exists()
        place.mkdir()
        made.append(list(wanted))

    monkeypatch.setattr(environment, "_make", make)
    place = place_of(["not-here==1"])
    place.mkdir(parents=True)
    (place / "half").write_text("")
    said = []
    interpreter(["not-here==1"], said.append)
    assert made == [["not-here==1"]]
    assert "not-here==1" in said[0]
    assert json.loads((place / environment.MARK).read_text()) == {"requirements": ["not-here==1"]}


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
