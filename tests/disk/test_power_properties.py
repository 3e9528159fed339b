"""Properties of power-loss states over random programs, against the independent checker."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings, strategies as st

from chaoskit.disk.ops import Profile
from chaoskit.disk.power import lost_operations, model_at, rebuild
from chaoskit.disk.recipe import Recipe
from tests.disk.listings import listing
from tests.disk.membership import could_survive
from tests.disk.positions import image_at, states
from tests.disk.programs import PROGRAMS, run
from tests.disk.traces import not_returned

PROFILES: list[Profile] = ["posix", "ext4", "xfs", "btrfs"]
SLOW = settings(max_examples=int(os.environ.get("MODEL_EXAMPLES", "120")), deadline=None)


@SLOW
@given(PROGRAMS, st.sampled_from(PROFILES), st.integers(0, 3))
def test_every_generated_state_could_survive(steps, profile, seed):
    trace = run(steps).trace()
    for at in {len(trace.ops), len(trace.ops) * 2 // 3}:
        for state in states(trace, at, profile, budget=60, seed=seed):
            under_way = state.recipe.under_way
            shown, when = (not_returned(trace, at), at + 1) if under_way else (trace, at)
            # The checker has no rules of its own for xfs and btrfs: they allow nothing that POSIX forbids.
            rules: Profile = "ext4" if profile == "ext4" else "posix"
            assert could_survive(shown, when, rules, listing(state.image)), state.recipe


@SLOW
@given(PROGRAMS)
def test_every_ext4_state_is_also_a_posix_state(steps):
    trace = run(steps).trace()
    at = len(trace.ops)
    for state in states(trace, at, "ext4", budget=60):
        assert could_survive(trace, at, "posix", listing(state.image)), state.recipe


@SLOW
@given(PROGRAMS, st.sampled_from(PROFILES))
def test_a_kill_is_always_the_first_state(steps, profile):
    trace = run(steps).trace()
    for at in range(len(trace.ops) + 1):
        first = next(states(trace, at, profile))
        assert first.image.digest == image_at(trace, at).digest


@SLOW
@given(PROGRAMS, st.sampled_from(PROFILES))
def test_after_sync_a_kill_is_the_only_state(steps, profile):
    disk = run(steps)
    disk.sync()
    if profile == "xfs":
        disk.create("flushed")  # X6
        disk.fsync("flushed")
    assert len(list(states(disk.trace(), disk.at, profile))) == 1


@SLOW
@given(PROGRAMS, st.sampled_from(PROFILES))
def test_digests_differ_only_when_contents_differ(steps, profile):
    trace = run(steps).trace()
    found = list(states(trace, len(trace.ops), profile, budget=60))
    listings = [repr(listing(state.image)) for state in found]
    linked = any(op.kind == "link" for op in trace.ops)
    assert linked or len(set(listings)) == len(found)


@SLOW
@given(PROGRAMS, st.sampled_from(PROFILES))
def test_dropping_the_lost_operations_again_gives_the_same_state(steps, profile):
    trace = run(steps).trace()
    at = len(trace.ops)
    pending = set(model_at(trace, at, profile).pending())
    for state in states(trace, at, profile, budget=40):
        lost = lost_operations(trace, state)
        assert set(lost) <= pending
        assert state.recipe.way != "without" or set(state.recipe.positions) <= set(lost)


@SLOW
@given(PROGRAMS, st.sampled_from(PROFILES))
def test_dropped_operations_are_lost_and_kept_ones_are_not(steps, profile):
    trace = run(steps).trace()
    model = model_at(trace, len(trace.ops), profile)
    for position in model.pending():
        assert position in model.lost(Recipe("without", (position,)))
        assert position not in model.lost(Recipe("keeping", (position,)))


@pytest.mark.parametrize("profile", PROFILES)
@SLOW
@given(steps=PROGRAMS)
def test_a_recipe_rebuilds_its_state(profile, steps):
    trace = run(steps).trace()
    for state in states(trace, len(trace.ops), profile, budget=30):
        again = rebuild(trace, state.at, profile, state.recipe)
        assert again.image.digest == state.image.digest
