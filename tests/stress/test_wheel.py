"""The wheel as a user gets it: in an environment of its own, in a project that has taken the generic names.

The project has packages `scenarios`, `invariants` and `tests` and a `conftest.py` of its own. chaoskit
must neither shadow them nor import them by mistake. The test needs a package index that pip can reach.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from chaoskit.disk import compiling

pytestmark = [pytest.mark.stress, pytest.mark.requirement("C7")]
ROOT = Path(__file__).parent.parent.parent
UNREACHABLE = re.compile("No matching distribution found|NewConnectionError|name resolution", re.IGNORECASE)

FILES = {
    "scenarios/__init__.py": "OWNER = 'the project'\n",
    "invariants/__init__.py": "OWNER = 'the project'\n",
    "tests/__init__.py": "",
    "conftest.py": "import pytest\n@pytest.fixture\ndef owner():\n    return 'the project'\n",
    "json_store.py": '''
"""One JSON file for each session: written aside, synced, renamed."""
import json, os
from pathlib import Path

class JsonStore:
    def open(self, directory):
        self.directory = Path(directory)
    def save(self, session, state):
        with open(self.directory / "aside", "w") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, self.directory / f"{session}.json")
        handle = os.open(self.directory, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    def load(self, session):
        path = self.directory / f"{session}.json"
        return json.loads(path.read_text()) if path.exists() else None
    def close(self):
        pass
''',
    "tests/test_payments.py": """
import invariants, pytest, scenarios

@pytest.mark.parametrize("number", range(2))
def test_holds(chaos, owner, number):
    assert scenarios.OWNER == invariants.OWNER == owner
    chaos.run("payments", plan="sample", runs=8).assert_holds()

def test_a_mutant_does_not(chaos):
    chaos.run("payments", mutant="forgets-pending", until_violation=True).assert_violates("exactly-once")
""",
}


def pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip("pip cannot reach a package registry")
    assert done.returncode == 0, done.stderr


def environment(**more: str) -> dict[str, str]:
    """The environment variables, without those that expose chaoskit's sources or another environment."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "COVERAGE_PROCESS_START")
    rest = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**rest, **more}


class Project:
    def __init__(self, directory: Path, python: Path) -> None:
        self.directory = directory
        self.python = python
        for name, text in FILES.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        program, *arguments = command
        return subprocess.run(
            [str(self.python.with_name(program)), *arguments],
            cwd=self.directory,
            env=environment(CHAOSKIT_CACHE=str(self.directory / ".cache")),
            capture_output=True,
            text=True,
            check=False,
        )

    def chaoskit(self, *arguments: str) -> tuple[int, dict]:
        done = self.run("chaoskit", *arguments, "--json", "-")
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    pip(Path(sys.executable), "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT))
    (found,) = tmp_path.glob("*.whl")
    return found


def test_the_wheel_installs_no_generic_name(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    ours = {"chaoskit", "chaoskit_invariants", "chaoskit_scenarios", "reference_agent"}
    assert {top for top in tops if not re.fullmatch(r"chaoskit-[\w.]+\.dist-info", top)} == ours
    with_library = f"chaoskit/disk/{compiling.LIBRARY_NAME}" in names
    assert with_library == (sys.platform.startswith("linux") and compiling.find_compiler() is not None)


def test_it_works_in_a_project_that_uses_the_generic_names(wheel, tmp_path):
    """One test, because creating the environment is slow, and xdist would create one per worker."""
    python = tmp_path / "environment" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "environment")], check=True)
    pip(python, "install", str(wheel))
    project = Project(tmp_path / "project", python)
    assert_the_project_keeps_its_own_names(project)
    assert_a_broken_agent_is_reproduced_from_its_token(project)
    assert_an_adapter_of_the_project_is_certified(project)
    pip(python, "install", "pytest", "pytest-xdist")
    assert_the_fixture_works_in_the_projects_tests(project)
    assert_the_fixture_works_in_the_projects_tests(project, "-n", "2")


def assert_the_project_keeps_its_own_names(project: Project) -> None:
    script = "import scenarios, invariants, tests, chaoskit; print(scenarios.OWNER, chaoskit.__file__)"
    owner, _, place = project.run("python", "-c", script).stdout.strip().rpartition(" ")
    assert owner == "the project"
    assert str(project.python.parent.parent) in place


def assert_a_broken_agent_is_reproduced_from_its_token(project: Project) -> None:
    code, sound = project.chaoskit("run", "payments", "--seed", "1", "--depth", "1")
    assert (code, sound["verdict"]) == (0, "HOLDS")
    code, broken = project.chaoskit(
        "run", "payments", "--seed", "1", "--mutant", "forgets-pending", "--depth", "1"
    )
    assert (code, broken["verdict"]) == (1, "VIOLATED")
    code, again = project.chaoskit("replay", broken["findings"][0]["repro"])
    assert (code, again["verdict"]) == (1, "VIOLATED")


def assert_an_adapter_of_the_project_is_certified(project: Project) -> None:
    code, certificate = project.chaoskit("certify", "./json_store.py:JsonStore", "--runs", "100")
    assert (code, certificate["verdict"]) == (0, "HOLDS")


def assert_the_fixture_works_in_the_projects_tests(project: Project, *options: str) -> None:
    done = project.run("pytest", "-q", "--chaos-seed", "1", "-p", "no:cacheprovider", *options)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
