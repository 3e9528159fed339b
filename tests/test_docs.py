"""The documents stay true: tables are generated from the registries, examples are run."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chaoskit import registry
from tests.agent.test_serve import free_port

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = {path.name: path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}


def blocks(language, page=README):
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def test_the_tables_are_generated_from_the_registries():
    page = runpy.run_path(str(ROOT / "ci" / "tables.py"))["page"]()
    assert PAGES["registry.md"] == page, "run: python ci/tables.py"


def test_the_table_of_power_losses_is_what_was_measured():
    with_tables = runpy.run_path(str(ROOT / "ci" / "tables.py"))["with_tables"]
    for page in ("power-loss.md", "fire-drill.md"):
        assert PAGES[page] == with_tables(PAGES[page]), "run: python ci/tables.py"


def test_every_promise_of_the_agent_has_a_mutant_that_an_invariant_must_catch():
    promises = runpy.run_path(str(ROOT / "ci" / "tables.py"))["promises"]()
    scenarios = registry.scenarios()
    mutants = [mutant for scenario in scenarios.values() for mutant in scenario.mutants]
    assert set(promises) == {name for mutant in mutants for name in mutant.violates}
    for mutant in mutants:
        assert mutant.violates, f"{mutant.name} violates nothing"
        assert mutant.breaks in scenarios[mutant.drill.scenario].invariants, mutant.name
        assert mutant in scenarios[mutant.drill.scenario].mutants, mutant.name


def test_the_code_on_the_page_about_power_loss_works(tmp_path):
    code: dict[str, Any] = {"os": os, "Path": Path}
    for block in blocks("python", PAGES["power-loss.md"]):
        exec(block, code)  # noqa: S102 - the code on our own page
    code["replace"](tmp_path / "file", b"one")
    code["replace"](tmp_path / "file", b"two")
    for line in (b"1", b"2"):
        code["append"](tmp_path / "log", line)
    with (tmp_path / "log").open("ab") as log:
        log.write(b"a line that was cut")
    assert (tmp_path / "file").read_bytes() == b"two"
    assert code["lines"](tmp_path / "log") == [b"1", b"2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "log"]


@pytest.mark.parametrize(
    ("name", "options"), [("ledger", ()), ("generated_ledger", ("--plan", "sample", "--runs", "30"))]
)
def test_the_scenario_on_its_page_is_the_example_that_runs(chaoskit, name, options):
    example = ROOT / "docs" / "examples" / f"{name}.py"
    assert example.read_text() in blocks("python", PAGES["your-own-scenario.md"])
    assert chaoskit("run", f"{example}:SCENARIO", *options).returncode == 0


def test_the_transcript_in_the_readme_is_what_the_demo_prints(chaoskit):
    """Shortened: each line that is shown is printed, in this order; times differ."""
    result = chaoskit(
        "run", "payments", "--seed", "1", "--jobs", "2", "--mutant", "forgets-pending", "--depth", "1"
    )
    assert result.returncode == 1
    (transcript,) = blocks("text")
    printed = iter(without_times(result.stdout).splitlines())
    for line in without_times(transcript).splitlines():
        assert line == "..." or line in printed, f"not printed there: {line}"


def without_times(text):
    return re.sub(r"[\d.]+ s \(\d+ runs/s\)", "some time", text)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_broken_links(name):
    home = ROOT if name == "README.md" else ROOT / "docs"
    linked = re.findall(r"\]\((?!https?:)([^)#]+)", PAGES[name])
    assert [link for link in linked if not (home / link).exists()] == []


@pytest.mark.parametrize("name", [n for n in PAGES if n not in ("README.md", "registry.md")])
def test_a_page_begins_with_what_its_reader_can_do_afterwards(name):
    assert PAGES[name].split("\n\n")[1].startswith("After this page you can ")


def without_chance(text, port="8420"):
    """Without ids, secrets, times and the port, which differ every time."""
    text = re.sub(r"\b(boot|run|call|rt)_[0-9a-f]{12}", r"\1_x", text)
    text = re.sub(r"rt_x\.[\w-]{43}", "rt_x.secret", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "then", text)
    return text.replace(f":{port}", ":8420")


@pytest.mark.requirement("O7")
def test_the_service_behaves_as_its_page_shows(tmp_path):
    shown = "".join(blocks("console", PAGES["service.md"]))
    port, out, starts = str(free_port()), tmp_path / "out", 0
    script = ["trap 'kill -9 $(jobs -p) 2>/dev/null' EXIT"]
    for command in re.findall(r"^\$ (.*)", shown, re.MULTILINE):
        script.append(f"echo {shlex.quote('$ ' + command)}")
        script.append(command.replace("serve", f"serve --port {port}").replace("8420", port))
        if command.endswith("&"):  # as a person would
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
