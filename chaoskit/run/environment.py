"""Environments: one per set of requirements, cached, so that conflicting libraries can coexist.

Created once, with uv if it is installed, else with venv and pip; no network is needed afterwards. The last
step of the installation writes a mark; an environment without it was interrupted and is created again.
If this interpreter satisfies the requirements, it is used directly.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.requirements import Requirement

from chaoskit.cache import cache_directory

MARK = "chaoskit-complete.json"
Say = Callable[[str], None]


class NoEnvironment(Exception):
    """The requirements cannot be installed; the message names them and has the installer's error."""


def satisfied_here(wanted: Sequence[str]) -> bool:
    for requirement in map(Requirement, wanted):
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            return False
        if not requirement.specifier.contains(version, prereleases=True):
            return False
    return True


def place_of(wanted: Sequence[str]) -> Path:
    text = json.dumps([sorted(wanted), sys.version_info[:2]])
    return cache_directory() / "environments" / hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def interpreter(wanted: Sequence[str], say: Say = lambda _words: None) -> str:
    """A Python that satisfies these requirements; its environment is created if missing."""
    if satisfied_here(wanted):
        return sys.executable
    place = place_of(wanted)
    python = place / "bin" / "python"
    if not (place / MARK).exists():
        say(f"creating an environment with {', '.join(wanted)} (once, then cached)")
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        _make(place, wanted)
        (place / MARK).write_text(json.dumps({"requirements": list(wanted)}))
    return str(python)


def versions(python: str, wanted: Sequence[str]) -> dict[str, str]:
    """The installed versions of the required packages."""
    names = [Requirement(text).name for text in wanted]
    script = (
        "import sys, json, importlib.metadata as m;"
        "print(json.dumps({name: m.version(name) for name in sys.argv[1:]}))"
    )
    done = subprocess.run([python, "-c", script, *names], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def only_inside() -> str:
    """A directory from which only chaoskit can be imported, and nothing else of this environment."""
    package = Path(__file__).parent.parent
    name = hashlib.blake2b(str(package).encode(), digest_size=8).hexdigest()
    place = cache_directory() / "inside" / name
    place.mkdir(parents=True, exist_ok=True)
    link = place / package.name
    if not link.is_symlink():
        aside = place / f"{package.name}-{os.getpid()}"
        aside.symlink_to(package)
        aside.rename(link)  # if two processes race, both links are the same
    return str(place)


def installer() -> str:
    """How environments are created and where they are cached. Raises NoEnvironment."""
    cached = f"cached in {cache_directory()}"
    if shutil.which("uv"):
        return f"uv, {cached}"
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            raise NoEnvironment(f"neither uv nor Python's {module} is installed")
    return f"venv and pip, {cached}"


def _make(place: Path, wanted: Sequence[str]) -> None:
    uv = shutil.which("uv")
    python = str(place / "bin" / "python")
    if uv:
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(place)], wanted)
        _run([uv, "pip", "install", "--quiet", "--python", python, *wanted], wanted)
        return
    _run([sys.executable, "-m", "venv", str(place)], wanted)
    options = ["--quiet", "--disable-pip-version-check", "--no-input"]
    _run([python, "-m", "pip", "install", *options, *wanted], wanted)


def _run(command: list[str], wanted: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        errors = [line for line in words if "error" in line.lower()] or words[-1:]
        raise NoEnvironment(
            f"cannot install {', '.join(wanted)}: {errors[0] if errors else 'no reason given'}"
            " (without a network, only cached environments can be used)"
        )
