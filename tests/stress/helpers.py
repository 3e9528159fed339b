"""What several stress tests need."""

import re

import msgspec

from chaoskit import registry, repro
from chaoskit.search.baseline import undisturbed
from chaoskit.search.rig import open_rig
from chaoskit.settings import settings_of


def sweep(runs):
    """Every point, and the recoveries that pass other points. `test_exhaustive` crashes all recoveries."""
    return {"runs": runs, "accept_incomplete": True}


def drill(mutant):
    """The options of the campaign that finds it."""
    options = msgspec.structs.asdict(mutant.drill)
    return {**options, "mutant": mutant.name, "seed": 1}


def limit(options):
    return {"runs": 60} if options["plan"] == "sample" else {}


def assert_met_again(witness, times=20):
    """Replaying its token gives the same finding every time."""
    wanted = repro.decode(witness.token)
    if not wanted.schedule.faults:  # it is found without a fault
        return
    with open_rig(registry.resolve(settings_of(wanted))) as (rig, _):
        workload = undisturbed(rig)[1]
        for _ in range(times):
            found = rig.judge(wanted.schedule, workload).judgement.findings
            assert said(witness.finding) in map(said, found)


def caught(chaos, invariant, **options):
    """Run a mutant until the expected invariant is violated: first the short ways, then the whole sweep."""
    for more in ({"until_violation": True, "depth": 1}, {"depth": 1}, {}):
        found = chaos.run(**{**more, **options})
        if invariant in found.findings:
            break
    found.assert_violates(invariant)
    return found


def said(finding):
    """What it says; each run has a directory of its own."""
    return finding.signature, re.sub(r"/\S+/state/", "", finding.message)
