"""The commands about certificates: what counts, what is written, and what needs no interposer."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chaoskit.certify import certificate as certificates

pytestmark = pytest.mark.requirement("C4")
BOARD = Path(__file__).parent.parent / "docs" / "scoreboard"
ONE_AT_A_TIME = '''
class Lines:
    """Appends to a file, one item in a call"""
    items_per_call = 1
    promises = {"durable": ("it is written", "https://example.org")}
    saves, largest = 5, 100
    def open(self, directory):
        from pathlib import Path
        self.path = Path(directory) / "lines"
    def append(self, session, items):
        import json
        (item,) = items  # one call, one item: more of them are refused
        with self.path.open("a") as file:
            file.write(json.dumps([session, item]) + "\\n")
    def items(self, session):
        import json
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [item for owner, item in map(json.loads, lines) if owner == session]
    def close(self): pass
'''


def test_an_adapter_that_takes_one_item_per_call_gets_one_item_per_call(chaoskit, tmp_path):
    (tmp_path / "lines.py").write_text(ONE_AT_A_TIME)
    done = chaoskit("certify", "./lines.py:Lines", "--tiers", "process", "--jobs", "1", "--json", "c.json")
    assert done.returncode == 0, done.stdout + done.stderr
    made = certificates.load(tmp_path / "c.json")
    assert made.headline().startswith("HOLDS its 1 promise")
    assert made.cell("atomic", "process").value == "HOLDS"


def test_hazards_are_listed_and_count_only_on_request(chaoskit, tmp_path):
    # A kill in the middle of a write leaves half a line, which nobody promised to read.
    (tmp_path / "lines.py").write_text(ONE_AT_A_TIME.replace('"durable"', '"isolated"'))
    command = ("certify", "./lines.py:Lines", "--tiers", "process,torn", "--jobs", "1")
    done = chaoskit(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: HOLDS its 1 promise; " in done.stdout
    assert "hazard" in done.stdout.splitlines()[-1]
    failed = chaoskit(*command, "--fail-on", "hazard")
    assert failed.returncode == 1
    assert failed.stdout.splitlines()[-1].startswith("reproduce: chaoskit replay ")


def test_rendering_the_scoreboard_needs_no_interposer(tmp_path):
    """Nothing is run, so nothing has to be preloaded."""
    (tmp_path / "burr-sqlite.json").write_text((BOARD / "burr-sqlite.json").read_text())
    program = (
        "from chaoskit.disk import interposer\n"
        "interposer.available = lambda: 'there is none'\n"
        "from chaoskit.cli.main import main\nmain()"
    )
    command = [sys.executable, "-c", program, "scoreboard"]
    rendered = subprocess.run(
        [*command, "--render", "--dir", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert rendered.returncode == 0, rendered.stderr
    assert "burr-sqlite" in (tmp_path / "README.md").read_text()
    refused = subprocess.run(
        [*command, "burr-sqlite", "--dir", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "there is none" in refused.stderr


def test_rendering_the_scoreboard_corrects_a_verdict_that_another_rule_gave(chaoskit, tmp_path):
    made = json.loads((BOARD / "dbos-agent.json").read_text())
    assert made["verdict"] == "UNKNOWN"
    (tmp_path / "dbos-agent.json").write_text(json.dumps({**made, "verdict": "HOLDS", "headline": "HOLDS"}))
    assert chaoskit("scoreboard", "--render", "--dir", str(tmp_path)).returncode == 0
    assert json.loads((tmp_path / "dbos-agent.json").read_text()) == made


def test_compare_counts_hazards_by_the_same_rule(chaoskit, tmp_path):
    made = json.loads((BOARD / "burr-sqlite.json").read_text())
    (hazard, *_) = [f for f in made["findings"] if f["promise"] is None]
    better = {**made, "findings": [f for f in made["findings"] if f is not hazard]}
    better["claims"] = {**made["claims"], hazard["claim"]: dict.fromkeys(made["claims"]["durable"], "HOLDS")}
    (tmp_path / "before.json").write_text(json.dumps(better))
    (tmp_path / "after.json").write_text(json.dumps(made))
    done = chaoskit("compare", "before.json", "after.json")
    assert done.returncode == 0, done.stdout
    assert f"broken   {hazard['claim']}" in done.stdout
    assert chaoskit("compare", "before.json", "after.json", "--fail-on", "hazard").returncode == 1
