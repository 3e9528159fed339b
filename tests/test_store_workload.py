import pytest
from chaoskit_scenarios.store_workload import BULKY, LARGE, LONG, NAMES, Shape, long, usual
from hypothesis import given, strategies as st

shapes = st.builds(
    Shape,
    kinds=st.sampled_from([("save",), ("append",), ("save", "append")]),
    deletes=st.booleans(),
    changes=st.integers(1, 60),
    largest=st.integers(1, LARGE),
    names=st.sampled_from([(), ("x",), ("x", "y", "z")]),
)


@pytest.mark.requirement("C4")
@given(st.integers(), shapes, st.sampled_from([usual, long]))
def test_a_workload_is_what_the_adapter_allows_and_always_the_same(seed, shape, draw):
    steps = draw(seed, shape)
    assert steps == draw(seed, shape)
    assert {step["do"] for step in steps} <= {*shape.kinds, *(["delete"] if shape.deletes else [])}
    assert all(step["size"] <= shape.largest for step in steps if step["do"] != "delete")
    assert not shape.names or {step["session"] for step in steps} <= set(shape.names)


@given(st.integers(), st.booleans())
def test_every_change_has_a_number_of_its_own(seed, deletes):
    steps = usual(seed, Shape(kinds=("save", "append"), deletes=deletes))
    numbers = [step["n"] for step in steps if step["do"] != "delete"]
    assert numbers == sorted(set(numbers))


@given(st.integers())
def test_the_usual_workload_has_similar_names_a_large_save_and_a_deletion(seed):
    steps = usual(seed, Shape(kinds=("save",), deletes=True))
    assert {step["session"] for step in steps} == set(NAMES)
    assert max(step.get("size", 0) for step in steps) == LARGE
    (deleted,) = (step for step in steps if step["do"] == "delete")
    before = [step for step in steps[: steps.index(deleted)] if step["session"] == deleted["session"]]
    assert len(before) > 1


@given(st.integers())
def test_the_long_workload_passes_two_powers_of_two_and_many_sessions(seed):
    steps = long(seed, Shape(kinds=("append",), deletes=False))
    assert len(steps) == LONG > 128
    assert len({step["session"] for step in steps}) > 20
    assert sum(step["size"] for step in steps) > 1000 * 4096 >= 13 * BULKY
