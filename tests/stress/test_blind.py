"""Stores that were written without a look at the oracle, from docs/adapters.md alone: as people write them.

Thirty-four are broken, each in its own way, and seventeen are sound. `broken.json` and `sound.json` have the
words of their authors. The first time they were tried, four of the broken ones held: see the changelog.
"""

import json
from pathlib import Path

import pytest

from chaoskit.certify.certification import certify, settings_for
from chaoskit.model import Verdict
from chaoskit.search.rig import CannotTest

pytestmark = [pytest.mark.exhaustive, pytest.mark.requirement("C4")]
BLIND = Path(__file__).parent.parent / "targets" / "blind"
BROKEN = json.loads((BLIND / "broken.json").read_text())
SOUND = json.loads((BLIND / "sound.json").read_text())
CANNOT_BE_TESTED = {"Courier"}  # acknowledges what a thread writes at a moment that no seed decides


def certificate(kind, name, *tiers):
    settings = settings_for(f"{BLIND / kind}.py:{name}", seconds=120, jobs=2, accept_incomplete=True)
    return certify(settings, tiers)


@pytest.mark.stress
@pytest.mark.parametrize(
    ("name", "tier", "found"),
    [
        ("Seesaw", "recovery", "durable/lost"),  # a look after the second crash, before the next save
        ("Folio", "process", "immutable/replaced"),  # another save instead of the interrupted one
        ("Mailroom", "process", "durable/lost"),
        ("Postbox", "disk-full", "durable/lost"),  # a disk that becomes full halfway through a write
    ],
)
def test_what_held_when_it_was_first_tried_is_caught(name, tier, found):
    made = certificate("broken", name, tier)
    assert found in {f"{finding.claim}/{finding.kind}" for finding in made.broken}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_store_is_caught(name):
    if name in CANNOT_BE_TESTED:
        with pytest.raises(CannotTest):
            certificate("broken", name)
        return
    made = certificate("broken", name)
    assert made.verdict is Verdict.VIOLATED, made.headline()


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_store_is_not_accused(name):
    made = certificate("sound", name)
    assert made.verdict is Verdict.HOLDS, made.headline()
