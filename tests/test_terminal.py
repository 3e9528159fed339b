"""What is printed fits in 80 columns, and breaks between words only."""

import shlex
import sys
from pathlib import Path

import msgspec
import pytest

from chaoskit import registry
from chaoskit.certify import certificate as certificates
from chaoskit.cli import main
from chaoskit.search import campaign
from chaoskit.search.plan import ENOUGH_OF_A_RECOVERY, RECOVERIES
from chaoskit.settings import Settings
from chaoskit.show.certificates import show
from chaoskit.show.terminal import Terminal
from chaoskit.show.wrapping import command, wrapped
from tests.test_findings import entry

CERTIFICATES = sorted((Path(__file__).parent.parent / "docs" / "scoreboard").glob("*.json"))


def printed(capsys):
    return capsys.readouterr().out.splitlines()


def is_address(line):
    """A long address stays whole on a line of its own, so that it can be opened."""
    return line.startswith("(https://") and " " not in line


def words(lines):
    """As a shell reads them: a backslash at the end of a line joins it with the next."""
    return shlex.split("\n".join(lines).replace("\\\n", ""))


@pytest.mark.parametrize("path", CERTIFICATES, ids=lambda path: path.stem)
def test_a_certificate_fits_in_80_columns(path, capsys):
    show(certificates.load(path), Terminal(), verbose=True)
    assert [line for line in printed(capsys) if len(line) > 80 and not is_address(line)] == []


def test_the_header_fits_in_80_columns_and_is_a_command(capsys):
    settings = Settings(scenario="payments", store="sqlite", mutant="forgets-pending", seconds=60, jobs=2)
    Terminal().header(settings)
    lines = printed(capsys)
    assert len(lines) > 1
    assert max(map(len, lines)) <= 80
    assert words(lines) == shlex.split(f"chaoskit run {settings.command_line()}")


def test_a_finding_fits_in_80_columns_whatever_its_message(capsys):
    long = entry(
        message=f"mail.send {'x' * 300} was done {'very ' * 20}often",
        story=("life 0: starts", "  dies: kill before call.finish#2 " + "and so on " * 10),
    )
    other = msgspec.structs.replace(long, signature="prefix/gap")
    Terminal().findings([long, other], verbose=False)
    lines = printed(capsys)
    assert any(line.startswith("  also: prefix/gap: mail.send") for line in lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("tiers", "warned"), [(["power-posix"], True), (["power-ext4", "power-posix"], False)]
)
def test_only_a_finding_of_posix_alone_is_called_a_warning(tiers, warned, capsys):
    Terminal().findings([entry(tier=tier) for tier in tiers], verbose=False)
    assert any("under posix only" in line for line in printed(capsys)) == warned


def test_lines_break_between_words_and_are_indented_below_the_first():
    assert wrapped("  one two three", 10) == ["  one two", "    three"]
    assert wrapped("one\n\n two", 80) == ["one", "", " two"]


def test_a_word_that_is_too_wide_stays_whole():
    assert wrapped("  see abcdefghi now", 10) == ["  see", " abcdefghi", "    now"]
    assert wrapped("see /a/long/path-name/", 10) == ["see", "/a/long/path-name/"]


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_broken_command_is_the_same_command(width):
    whole = "chaoskit certify x --tiers process,torn,power-ext4,power-posix --seed 0 --jobs 2"
    lines = command(whole, width)
    assert max(map(len, lines)) <= width
    assert words(lines) == shlex.split(whole)


@pytest.mark.parametrize(("terminal", "count"), [(True, 2), (False, 1)])
def test_an_error_is_wrapped_on_a_terminal_and_one_line_elsewhere(terminal, count, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with pytest.raises(SystemExit):
        main._fail("no such " * 15, 2)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == count
    assert not terminal or max(map(len, lines)) <= 80


def test_progress_through_power_loss_states_has_a_total():
    told = []
    settings = Settings(scenario="store-jsonl", faults=("power",), runs=12)
    campaign.run_campaign(registry.resolve(settings), told.append)
    planned = {so_far.planned for so_far in told if so_far.phase == "crashing"}
    assert planned == {12 + RECOVERIES * ENOUGH_OF_A_RECOVERY}  # known from the start
