"""The documents stay true: tables come from the registries, examples are files that run."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.test_serve import free_port

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
    result = chaoskit("run", "payments", "--seed", "1", "--jobs", "2", "--mutant", "forgets-pending")
    assert result.returncode == 1
    (transcript,) = blocks("text")
    shown = transcript.splitlines()
    for line in result.stdout.splitlines():
        if not line.startswith(("verdict:", "payments: ")):  # its time, and progress when it is slow
            assert line in shown


def without_chance(text, port="8420"):
    """Ids, secrets and times are others every time; so is the port, here."""
    text = re.sub(r"\b(boot|run|call|rt)_[0-9a-f]{12}", r"\1_x", text)
    text = re.sub(r"rt_x\.[\w-]{43}", "rt_x.secret", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "then", text)
    return text.replace(f":{port}", ":8420")


@pytest.mark.requirement("O7")
def test_the_agent_as_a_service_is_as_the_readme_shows_it(tmp_path):
    section = README.partition("## The agent as a service")[2].partition("\n## ")[0]
    shown = "".join(re.findall(r"```console\n(.*?)```", section, re.DOTALL))
    port, out, starts = str(free_port()), tmp_path / "out", 0
    script = ["trap 'kill -9 $(jobs -p) 2>/dev/null' EXIT"]
    for command in re.findall(r"^\$ (.*)", shown, re.MULTILINE):
        script.append(f"echo {shlex.quote('$ ' + command)}")
        script.append(command.replace("serve", f"serve --port {port}").replace("8420", port))
        if command.endswith("&"):  # what a person does, too
            starts += 1
            script.append(f"until [ $(grep -c ^listening out) = {starts} ]; do sleep 0.05; done")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "no_proxy": "*",
    }
    with out.open("w") as stream:
        command = ["bash", "-c", "\n".join([*script, "wait"])]
        subprocess.run(
            command,
            stdout=stream,
            cwd=tmp_path,
            env=environment,
            timeout=60,
            check=True,
            stderr=subprocess.DEVNULL,
        )
    assert without_chance(out.read_text(), port) == without_chance(shown)


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
