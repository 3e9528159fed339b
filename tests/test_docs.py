"""The documents stay true: tables come from the registries, examples are files that run."""

import re
import runpy
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_tables_come_from_the_registries():
    page = runpy.run_path(str(ROOT / "ci" / "tables.py"))["page"]()
    assert (ROOT / "docs" / "registry.md").read_text() == page, "run: python ci/tables.py"


def test_the_scenario_in_the_readme_is_the_example_that_runs(chaoskit):
    example = ROOT / "docs" / "examples" / "ledger.py"
    assert example.read_text() in blocks("python")
    assert chaoskit("run", f"{example}:SCENARIO").returncode == 0


def test_the_transcript_in_the_readme_is_what_the_demo_prints(chaoskit):
    """The second half of it: every line but the time and the place where the run was kept."""
    result = chaoskit(
        "run", "payments", "--seed", "1", "--jobs", "2", "--mutant", "forgets-pending"
    )
    assert result.returncode == 1
    (transcript,) = blocks("text")
    shown = transcript.splitlines()
    for line in result.stdout.splitlines():
        if not line.startswith(
            ("verdict:", "payments: ")
        ):  # its time, and progress when it is slow
            assert line in shown


@pytest.mark.stress
def test_every_command_in_the_readme_works(chaoskit, tmp_path):
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    commands = [line[2:] for block in blocks("console") for line in block.splitlines()]
    tried = [shlex.split(c, comments=True) for c in commands if c.startswith("chaoskit")]
    assert len(tried) >= 10
    for _, *args in tried:
        if args[0] != "replay":
            expected = 1 if {"--mutant", "store-snapshot-unsynced"} & set(args) else 0
            assert chaoskit(*args).returncode == expected, args
