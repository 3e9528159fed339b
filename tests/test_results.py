"""Partial results add up in any order and grouping; shards add up to the whole campaign."""

import functools
import json

import msgspec
import pytest
from hypothesis import given, strategies as st

from chaoskit import registry
from chaoskit.faults.disk import DiskError
from chaoskit.faults.kill import Kill
from chaoskit.faults.kind import decode_hook
from chaoskit.faults.power import PowerLoss
from chaoskit.model import Doubt, Finding, Firing, Judgement, PersistPoint, Schedule, Verdict
from chaoskit.search.campaign import run_campaign
from chaoskit.search.outcome import Outcome
from chaoskit.search.result import Accumulator, Coverage, Partial, Tally, with_tokens
from chaoskit.settings import Settings
from tests.conftest import TARGETS

# --- outcomes as they come from runs -----------------------------------------------------------------

CLAIMS = ("durable", "atomic")
POINTS = st.builds(PersistPoint, st.sampled_from(["write", "sync"]), st.integers(1, 2), st.integers(0, 2))
FAULTS = st.one_of(
    st.builds(Kill, POINTS, st.sampled_from(["before", "half"])),
    st.builds(DiskError, POINTS, st.sampled_from(["EIO", "ENOSPC"])),
    st.builds(PowerLoss, POINTS, st.just("ext4"), st.just("nothing")),
)
SCHEDULES = st.builds(Schedule, st.lists(FAULTS, max_size=2).map(tuple))
FINDINGS = st.builds(
    Finding,
    invariant=st.sampled_from(CLAIMS),
    kind=st.sampled_from(["lost", "torn"]),
    message=st.sampled_from(["one", "two"]),
)


@st.composite
def outcomes(draw):
    findings = tuple(draw(st.lists(FINDINGS, max_size=2)))
    broken = {finding.invariant for finding in findings}
    others = st.sampled_from([Verdict.HOLDS, Verdict.UNKNOWN, Verdict.NOT_MEASURED])
    claims = {name: Verdict.VIOLATED if name in broken else draw(others) for name in CLAIMS}
    doubts = tuple(
        draw(st.lists(st.builds(Doubt, st.just("missed-fault"), st.sampled_from("ab")), max_size=1))
    )
    schedule = draw(SCHEDULES)
    judgement = Judgement(
        verdict=Verdict.merge(claims.values()), claims=claims, findings=findings, doubts=doubts
    )
    return Outcome(
        schedule=schedule,
        seed=draw(st.integers(0, 3)),
        judgement=judgement,
        fired=draw(st.integers(0, len(schedule.faults))),
        last_trace=(Firing(draw(POINTS), "before"),),
        recovery=0,
        rebuilt=draw(st.booleans()),
    )


def added(numbered):
    adding = Accumulator(CLAIMS, lambda schedule: schedule.tier)
    for number, outcome in numbered:
        adding.add(outcome, (number,))
    return adding.partial


def merged(parts):
    return functools.reduce(Partial.merge, parts, Partial())


@given(st.lists(outcomes(), max_size=6), st.data())
def test_merging_is_commutative_and_associative(found, data):
    numbered = list(enumerate(found))
    whole = merged([Partial(claims={name: {} for name in CLAIMS}), added(numbered)])
    shuffled = data.draw(st.permutations(numbered))
    groups = [[] for _ in range(data.draw(st.integers(1, 4)))]
    for each in shuffled:
        data.draw(st.sampled_from(groups)).append(each)
    assert merged(map(added, groups)) == whole
    assert merged(added([each]) for each in shuffled).merge(Partial()) == merged(
        added([each]) for each in numbered
    )


COVERAGES = st.builds(
    Coverage,
    states=st.integers(0, 9),
    complete=st.booleans(),
    cut_short=st.booleans(),
    possible=st.none() | st.integers(0, 9),
)


@given(st.lists(COVERAGES, min_size=1, max_size=4))
def test_coverage_adds_up_and_one_incomplete_part_makes_it_incomplete(parts):
    whole = functools.reduce(Coverage.plus, parts)
    assert whole == functools.reduce(Coverage.plus, reversed(parts))
    assert whole.complete == all(part.complete for part in parts)
    assert whole.cut_short == any(part.cut_short for part in parts)
    known = [part.possible for part in parts if part.possible is not None]
    assert whole.possible == (sum(known) if known else None)


def test_a_tally_counts_the_runs_with_its_worst_verdict():
    good, bad = (Tally(runs=1, verdict=v, times=1) for v in (Verdict.HOLDS, Verdict.VIOLATED))
    assert good.plus(bad).plus(bad) == Tally(runs=3, verdict=Verdict.VIOLATED, times=2)


@given(st.lists(outcomes(), max_size=4))
def test_a_partial_result_survives_its_json(found):
    partial = with_tokens(added(enumerate(found)), Settings(scenario="x"))
    encoded = msgspec.json.encode(partial)
    assert msgspec.json.decode(encoded, type=Partial, dec_hook=decode_hook) == partial


@given(st.lists(outcomes(), min_size=1, max_size=6), st.lists(outcomes(), min_size=1, max_size=6))
def test_merging_changes_neither_side(found, others):
    one, other = added(enumerate(found)), added(enumerate(others, 10))
    before = json.loads(msgspec.json.encode([one, other]))
    one.merge(other)
    assert json.loads(msgspec.json.encode([one, other])) == before


# --- shards --------------------------------------------------------------------------------------------


def campaign(scenario, **options):
    return run_campaign(registry.resolve(Settings(scenario=scenario, seed=3, **options))).found


def comparable(found):
    """Coverage is complete only once all parts are merged; a single part cannot know it."""
    return msgspec.structs.replace(found, tiers={name: part.states for name, part in found.tiers.items()})


@pytest.mark.requirement("C5")
@pytest.mark.parametrize("parts", [2, 3, 4])
@pytest.mark.parametrize(
    ("scenario", "options"),
    [
        (f"{TARGETS}:DELIBERATE", {}),  # a sweep whose second round depends on the first
        (f"{TARGETS}:COUNTING", {"plan": "sample", "runs": 15}),
        ("store-snapshot-unsynced", {"faults": ("power",), "runs": 60}),
        ("store-jsonl", {"faults": ("disk",)}),
        (f"{TARGETS}:BRITTLE_CROWD", {"plan": "sample", "agents": 4, "runs": 40}),
    ],
    ids=["sweep", "sample", "power", "disk", "fuzz"],
)
def test_the_shards_of_a_campaign_add_up_to_exactly_the_campaign(scenario, options, parts):
    whole = campaign(scenario, **options)
    shards = [campaign(scenario, shard=(number, parts), **options) for number in range(parts)]
    assert comparable(merged(shards)) == comparable(whole)
    assert sum(shard.runs for shard in shards) == whole.runs > parts


def test_the_sweep_above_has_a_second_round():
    assert campaign(f"{TARGETS}:DELIBERATE").tiers["recovery"].states > 4


def test_a_fuzz_has_several_rounds_in_each_lane():
    """Enough runs for the bias to matter: 40 are too few."""
    options = {"plan": "sample", "agents": 3, "runs": 160}
    whole = campaign(f"{TARGETS}:CROWD", **options)
    shards = [campaign(f"{TARGETS}:CROWD", shard=(number, 2), **options) for number in range(2)]
    assert comparable(merged(shards)) == comparable(whole)
