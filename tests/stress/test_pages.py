"""Every command on every page is run as a reader would run it, and prints what the page shows.

A block of `console` is a session: lines that begin with `$ ` are commands, the others are what they print.
`...` stands for any lines, at the end of a line for the rest of it. A command exits with 0 unless its comment
says `exit code N`.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "docs" / "examples" / "getting-started"
PAGES = sorted((ROOT / "docs").glob("*.md"))
# Its commands share a shell, with a server in the background: test_docs.py runs them and compares each line.
ELSEWHERE = {"service.md"}


def sessions(page):
    return re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)


def steps(session):
    """Each command with its exit code and the lines that are shown below it."""
    found = []
    for line in session.splitlines():
        if line.startswith("$ "):
            command, _, comment = line[2:].partition(" #")
            code = re.search(r"exit code (\d+)", comment)
            found.append((command.strip(), int(code[1]) if code else 0, []))
        else:
            found[-1][2].append(line)
    return found


def environment():
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "COLUMNS": "80", "PYTEST_ADDOPTS": "-p no:cacheprovider"}


def follow(session, directory):
    for command, code, shown in steps(session):
        done = subprocess.run(
            ["/bin/bash", "-c", command],
            cwd=directory,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, (command, done.stdout[-2000:], done.stderr[-2000:])
        assert_shown(shown, done.stdout, command)


def assert_shown(shown, printed, command):
    lines = iter(printed.splitlines())
    for line in shown:
        assert line == "..." or any(is_line(line, other) for other in lines), (command, line, printed)


def is_line(shown, printed):
    return printed.startswith(shown.removesuffix("...")) if shown.endswith("...") else printed == shown


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    return tmp_path


def pages_with_commands():
    return [page for page in PAGES if sessions(page) and page.name not in ELSEWHERE]


@pytest.mark.stress
@pytest.mark.parametrize("page", pages_with_commands(), ids=lambda page: page.stem)
def test_the_commands_on_a_page_print_what_it_shows(page, directory):
    if page.stem == "getting-started":
        follow_getting_started(page, directory)
        return
    for session in sessions(page):
        follow(session, directory)


def follow_getting_started(page, directory):
    """A reader saves the two files, then changes one of them."""
    text, safe = page.read_text(), (EXAMPLE / "safe_notes.py").read_text()
    for name in ("notes.py", "test_notes.py"):
        assert (EXAMPLE / name).read_text() in text, f"{name} is not the example that runs"
        shutil.copy(EXAMPLE / name, directory)
    (fix,) = re.findall(r"```python\n(    def save.*?)```", text, re.DOTALL)
    assert fix in safe, "the fix is not the one that runs"
    first, *rest = sessions(page)
    follow(first, directory)
    (directory / "notes.py").write_text(safe)
    for session in rest:
        follow(session, directory)


def test_what_a_page_shows_is_compared():
    assert_shown(["...", "b", "c ..."], "a\nb\nc and more\n", "x")
    for wrong in (["b", "a"], ["d"], ["c"]):
        with pytest.raises(AssertionError):
            assert_shown(wrong, "a\nb\nc and more\n", "x")


def test_a_command_has_an_exit_code_and_what_it_prints():
    session = "$ chaoskit run x --mutant y  # a bug: exit code 1\nverdict: ...\n$ true\n"
    assert steps(session) == [("chaoskit run x --mutant y", 1, ["verdict: ..."]), ("true", 0, [])]
