"""Every attack on the command line is answered with one line and a documented exit code."""

import pytest

from tests.hostile.attacks import FILES, NAMES, OPTIONS, TOKENS


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
