"""Every known target, with its library, through a short certificate: `pytest -m targets`."""

import pytest

from chaoskit import registry
from chaoskit.certify.certification import certify, settings_for
from chaoskit.model import Verdict
from chaoskit.run.environment import NoEnvironment


@pytest.mark.targets
@pytest.mark.requirement("C4")
@pytest.mark.parametrize("name", sorted(registry.targets()))
def test_a_target_can_be_certified(name):
    try:
        made = certify(settings_for(name, runs=100, seconds=20))
    except NoEnvironment as error:
        pytest.skip(str(error))
    assert any(part.states for part in made.coverage.values())
    assert made.measured()
    assert not made.unknown
    if name.startswith("reference-agent"):
        assert made.verdict is Verdict.HOLDS
