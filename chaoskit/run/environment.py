"""Environments: one per set of requirements, cached, so that conflicting libraries can coexist.

Created once, with uv if it is installed, else with venv and pip; no network is needed afterwards.
If this interpreter satisfies the requirements, it is used directly.

    environments/KEY           a symbolic link to the complete environment
    environments/KEY-RANDOM    where it was built: an environment has its own path in its scripts, so it
                               is not moved; the link is renamed into place after it was verified
    environments/KEY.lock      held while it is built; the kernel frees it when its owner dies

An installation that is killed leaves a directory without a link: never used, and removed by the next build.
Its installer is ended by the guardian (see `workspace`).
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from packaging.requirements import Requirement

from chaoskit.cache import cache_directory
from chaoskit.run.workspace import SESSION_VARIABLE, Workspace

LOCK = ".lock"
MARK = "chaoskit-complete.json"
Say = Callable[[str], None]


class NoEnvironment(Exception):
    """The requirements cannot be installed; the message names them and has the installer's error."""


def applicable(wanted: Sequence[str]) -> list[Requirement]:
    """Without those that are meant for another platform or another version of Python."""
    found = map(Requirement, wanted)
    return [each for each in found if each.marker is None or each.marker.evaluate({"extra": ""})]


def satisfied_here(wanted: Sequence[str]) -> bool:
    for requirement in applicable(wanted):
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
    if not _is_complete(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        with _locked(place, lambda: say(f"waiting for another process that installs {', '.join(wanted)}")):
            if not _is_complete(place):
                say(f"creating an environment with {', '.join(wanted)} (once, then cached)")
                _build(place, wanted)
    return str(_python(place))


def _python(place: Path) -> Path:
    return place / "bin" / "python"


def _is_complete(place: Path) -> bool:
    return (place / MARK).exists() and os.access(_python(place), os.X_OK)


@contextmanager
def _locked(place: Path, when_busy: Callable[[], None]) -> Iterator[None]:
    """At most one process builds this environment. The lock ends with its owner, however it ends."""
    with place.with_name(place.name + LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            when_busy()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(place: Path, wanted: Sequence[str]) -> None:
    """Under the lock. Everything in `place` or beside it is a leftover."""
    _remove_leftovers(place)
    aside = place.with_name(f"{place.name}-{secrets.token_hex(4)}")
    try:
        with Workspace(place.parent) as scratch:
            own = {SESSION_VARIABLE: scratch.session, "TMPDIR": str(scratch.path)}
            _make(aside, wanted, {**for_installers(os.environ), **own})
        _verify(str(_python(aside)), wanted)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    (aside / MARK).write_text(json.dumps({"requirements": list(wanted)}))
    link = aside.with_name(f"{aside.name}.link")
    link.symlink_to(aside.name)
    link.rename(place)


def _remove_leftovers(place: Path) -> None:
    if place.is_symlink():
        place.unlink()
    for leftover in (place, *place.parent.glob(f"{place.name}-*")):
        if leftover.is_symlink():
            leftover.unlink()
        else:
            shutil.rmtree(leftover, ignore_errors=True)


def _verify(python: str, wanted: Sequence[str]) -> None:
    """An installer may report success and leave less than it was asked for."""
    found = versions(python, wanted)
    for requirement in applicable(wanted):
        version = found[requirement.name]
        if not requirement.specifier.contains(version, prereleases=True):
            raise NoEnvironment(f"expected {requirement} after its installation, found {version}")


def versions(python: str, wanted: Sequence[str]) -> dict[str, str]:
    """The installed versions of the required packages."""
    names = [each.name for each in applicable(wanted)]
    script = (
        "import sys, json, importlib.metadata as m;"
        "print(json.dumps({name: m.version(name) for name in sys.argv[1:]}))"
    )
    done = subprocess.run([python, "-c", script, *names], capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise NoEnvironment(
            f"the environment of {python} is damaged: {last[0] if last else f'exit code {done.returncode}'};"
            " remove its directory, and it is created again"
        )
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


# What installers are configured with. A package that is built runs code, which must not see anything else.
CONFIGURES = {
    *("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "CC", "CFLAGS", "LDFLAGS"),
    *("NETRC", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
}
PREFIXES = ("PIP_", "UV_", "LC_", "XDG_", "CARGO_", "RUSTUP_")


def for_installers(variables: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in variables.items()
        if name in CONFIGURES or name.startswith(PREFIXES) or name.lower().endswith("_proxy")
    }


def _make(place: Path, wanted: Sequence[str], variables: dict[str, str]) -> None:
    uv = shutil.which("uv")
    python = str(_python(place))
    if uv:
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(place)], wanted, variables)
        _run([uv, "pip", "install", "--quiet", "--python", python, *wanted], wanted, variables)
        return
    _run([sys.executable, "-m", "venv", str(place)], wanted, variables)
    options = ["--quiet", "--disable-pip-version-check", "--no-input"]
    _run([python, "-m", "pip", "install", *options, *wanted], wanted, variables)


def _run(command: list[str], wanted: Sequence[str], variables: dict[str, str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        errors = [line for line in words if "error" in line.lower()] or words[-1:]
        raise NoEnvironment(
            f"cannot install {', '.join(wanted)}: {errors[0] if errors else 'no reason given'}"
            " (without a network, only cached environments can be used)"
        )
