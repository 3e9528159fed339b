"""Every attack on the command line is answered with one line and a documented exit code."""

import json
from pathlib import Path

import pytest

from tests.hostile.attacks import FILES, FOUND, NAMES, OPTIONS, STEERING, TOKENS, naming

SCOREBOARD = Path(__file__).parent.parent.parent / "docs" / "scoreboard"


def short(value):
    return ascii(value)[:40]


pytestmark = pytest.mark.requirement("C7")


@pytest.mark.parametrize(("arguments", "words"), OPTIONS, ids=short)
def test_a_value_that_cannot_be_used_is_named(refused, arguments, words):
    assert words in refused(*arguments)


@pytest.mark.parametrize("name", NAMES, ids=short)
@pytest.mark.parametrize(
    "command", [["run"], ["certify"], ["list", "points"], ["report"], ["scoreboard"]], ids=" ".join
)
def test_a_name_of_any_shape_is_refused(refused, command, name):
    refused(*command, "--", name)


@pytest.mark.parametrize(("token", "words"), TOKENS, ids=short)
def test_a_token_runs_nothing_that_the_user_has_not_agreed_to(refused, token, words):
    assert words in refused("replay", "--", token)


@pytest.mark.parametrize("content", FILES, ids=short)
def test_a_file_that_is_not_a_result_is_refused(attack, tmp_path, content):
    (tmp_path / "result.json").write_bytes(content)
    for arguments in (
        ["compare", "result.json", "result.json"],
        ["report", "."],
        ["scoreboard", "--dir", ".", "--render"],
    ):
        answer = attack(*arguments)
        assert answer.code == 2, answer
        assert answer.err.count("\n") == 1
        assert len(answer.err) < 2000


@pytest.mark.parametrize(("token", "code"), FOUND, ids=short)
def test_a_token_whose_content_fits_nothing(attack, token, code):
    answer = attack("replay", token)
    assert answer.code == code, answer
    assert "\x9b" not in answer.out + answer.err


def test_a_list_of_tokens_that_is_not_text(attack, tmp_path):
    (tmp_path / ".chaoskit").mkdir()
    (tmp_path / ".chaoskit" / "tokens").write_bytes(b"\xff\xfe\x00")
    assert attack("replay", "last").code == 2


@pytest.mark.parametrize("name", ["chaoskit_scenarios.py", "markdown_it.py", "evil.py"])
def test_a_project_runs_nothing_by_being_the_current_directory(attack, tmp_path, name):
    (tmp_path / name).write_text(f"open({str(tmp_path / 'owned')!r}, 'w')\n")
    place = tmp_path / "evil-1.dist-info"
    place.mkdir()
    (place / "METADATA").write_text("Name: evil\nVersion: 1\n")
    (place / "entry_points.txt").write_text("[chaoskit.scenarios]\nevil = evil:S\n")
    assert attack("list", "scenarios").code == 0
    assert attack("replay", naming("payments", seed=-1)).code == 2
    assert not (tmp_path / "owned").exists()


def test_a_certificate_cannot_write_markup(attack, tmp_path):
    known = json.loads(next(SCOREBOARD.glob("*.json")).read_text())
    evil = f"<img src=x onerror=alert(1)>{STEERING}[c](javascript:alert(1))\n\n# h <script>"
    (tmp_path / "x.json").write_text(json.dumps({**known, "target": evil, "summary": evil, "date": evil}))
    assert attack("scoreboard", "--dir", ".", "--render").code == 0
    for page in ("README.md", "index.html"):
        text = (tmp_path / page).read_text()
        assert "<img src=x" not in text
        assert "<script>alert" not in text
    assert "\x1b" not in (tmp_path / "README.md").read_text()
    assert "](javascript" not in (tmp_path / "README.md").read_text()
    assert "\n# h" not in (tmp_path / "README.md").read_text()


def test_a_cache_directory_that_is_none(attack, monkeypatch):
    monkeypatch.setenv("CHAOSKIT_CACHE", "/dev/null")
    assert attack("run", "payments", "--points", "syscalls", "--runs", "1").code == 2
