"""The control stores: every store in every tier gets the verdict in the table."""

import pytest
from chaoskit_scenarios.stores.controls import CONTROLS, TIERS

from chaoskit.model import Verdict
from tests.stress.helpers import sweep

pytestmark = pytest.mark.stress


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_every_cell_of_the_table(chaos, control):
    found: dict[str, list[Verdict]] = {}
    for options in (
        {"points": "syscalls", **sweep(200)},
        {"faults": ("power",), "profile": "ext4", "runs": 400},
        {"faults": ("power",), "profile": "posix", "runs": 400},
    ):
        result = chaos.run(f"store-{control.name}", seed=1, **options).result
        assert not result.doubts
        assert result.found.missed == 0
        for tiers in result.claims.values():
            for tier, verdict in tiers.items():
                found.setdefault(tier, []).append(verdict)
    told = tuple(Verdict.merge(found[tier]).value for tier in TIERS)
    assert dict(zip(TIERS, told, strict=True)) == dict(zip(TIERS, control.expected, strict=True))
