import pytest
from notes import Notes


@pytest.mark.stress
def test_notes_survive_a_crash(chaos):
    chaos.certify(Notes, tiers=["process", "torn"]).assert_holds()
