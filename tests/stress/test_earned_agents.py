"""Small agents, broken and sound, each for one rule: who is caught, and who is cleared."""

from pathlib import Path

import pytest

from chaoskit.certify.certification import certify, settings_for
from chaoskit.search.rig import CannotTest

pytestmark = [pytest.mark.stress, pytest.mark.requirement("C4")]
AGENTS = Path(__file__).parent.parent / "targets" / "agents.py"
TIERS = ("process", "torn", "disk-full", "recovery", "power-ext4")


def examined(name, *tiers):
    return certify(settings_for(f"{AGENTS}:{name}", runs=60), tiers or TIERS)


@pytest.mark.parametrize("name", ["Careful", "AsksTheUser", "AsksAgain"])
def test_a_sound_agent_is_cleared(name):
    certificate = examined(name)
    assert certificate.verdict.value == "HOLDS", (certificate.headline(), certificate.reasons())
    assert certificate.cell("resumes", "disk-full").value == "HOLDS"  # not only unmeasured


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("BlamesEverything", {"surfaced/needless"}),
        ("BlamesTheLast", {"surfaced/needless"}),
        ("AsksAboutEverything", {"surfaced/needless", "effects-kept/lost"}),
    ],
)
def test_a_question_about_what_is_known_excuses_nothing(name, found):
    certificate = examined(name, "process")
    signatures = {f"{f.claim}/{f.kind}" for f in certificate.broken}
    assert (certificate.verdict.value, signatures) == ("VIOLATED", found)


def test_an_agent_that_asks_in_advance_is_wrong_without_a_crash():
    with pytest.raises(CannotTest, match="surfaced/needless without any crash"):
        examined("AsksInAdvance", "process")


def test_an_agent_that_a_full_disk_stops_for_good_does_not_resume():
    certificate = examined("NeedsRepair", "disk-full")
    assert {f"{f.claim}/{f.kind}" for f in certificate.broken} == {"resumes/stuck"}
