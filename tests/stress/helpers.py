"""What several stress tests need."""

import re

from chaoskit import registry, repro
from chaoskit.search.baseline import undisturbed
from chaoskit.search.rig import open_rig
from chaoskit.settings import settings_of


def assert_met_again(witness, times=20):
    """A replay of its token gives the same finding, however often."""
    wanted = repro.decode(witness.token)
    with open_rig(registry.resolve(settings_of(wanted))) as (rig, _):
        workload = undisturbed(rig)[1]
        if not wanted.schedule.faults:  # it is there without any
            return
        for _ in range(times):
            found = rig.judge(wanted.schedule, workload).judgement.findings
            assert said(witness.finding) in map(said, found)


def caught(chaos, invariant, **options):
    """A mutant's campaign: the first violation is enough, if it is of the invariant meant for it."""
    found = chaos.run(until_violation=True, **options)
    if invariant not in found.findings:
        found = chaos.run(**options)
    found.assert_violates(invariant)
    return found


def said(finding):
    """What it says; each run has a directory of its own."""
    return finding.signature, re.sub(r"/\S+/state/", "", finding.message)
