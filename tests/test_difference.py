"""Two runs that should be the same and are not: the first difference, and what it looks like."""

import pytest

from chaoskit.disk.ops import Node, Op, Trace
from chaoskit.search import difference
from chaoskit.search.difference import CLOCK, ID, NUMBER, ORDER, UNCLEAR, cause_of, of_traces


@pytest.mark.parametrize(
    ("one", "other", "cause"),
    [
        ("create 1763434567.json", "create 1763434569.json", CLOCK),
        ("create s-1763434567123456789", "create s-1763434569123456789", CLOCK),
        ('{"at": "2026-11-18T02:30:25"}', '{"at": "2026-11-18T02:30:26"}', CLOCK),
        ("write 20261118-023025.log", "write 20261118-023026.log", CLOCK),
        ("create 3f2a9c1b.tmp", "create 77ab01ce.tmp", ID),
        ("x 0b6ef8a4-9a5c-4b37-8b3e-0c1f6f0a7f11", "x 9b6ef8a4-9a5c-4b37-8b3e-0c1f6f0a7f12", ID),
        ("create lock.31415", "create lock.31416", NUMBER),
        ("write facade", "write decade", ID),  # words of these letters are rare in file names
        ("write a.json", "rename b.json", UNCLEAR),
    ],
)
def test_the_cause_is_read_from_the_difference(one, other, cause):
    assert cause_of(one, other) is cause


def trace(*ops):
    root = Node(file=0, kind="dir", names=())
    made = [
        Op(index=n, kind=kind, file=n + 1, parent=0, name=name, data=data, length=len(data))
        for n, (kind, name, data) in enumerate(ops)
    ]
    return Trace(initial=(root,), ops=tuple(made))


def test_the_same_operations_with_other_bytes():
    one, other = (
        trace(("create", "f", b""), ("write", "f", f'{{"saved": {at}, "n": 1}}'.encode()))
        for at in (1763434567, 1763434569)
    )
    text = of_traces(one, other)
    assert "1763434567" in text
    assert "1763434569" in text
    assert CLOCK in text
    assert of_traces(one, one) == ""


def test_the_same_operations_in_another_order():
    steps = ("create", "alpha", b""), ("create", "omega", b"")
    text = of_traces(trace(*steps), trace(*reversed(steps)))
    assert text.startswith("one run does create alpha where the other does create omega")
    assert ORDER in text


def test_one_run_does_more():
    steps = ("create", "alpha", b""), ("create", "omega", b"")
    assert "one run does create omega where the other does nothing" in of_traces(
        trace(*steps), trace(steps[0])
    )


def test_a_long_text_is_cut_around_the_difference():
    one, other = difference._around_the_difference("x" * 500 + "a" + "y" * 500, "x" * 500 + "b" + "y" * 500)
    assert (len(one), len(other)) == (difference.MOST, difference.MOST)
    assert ("a" in one, "b" in other) == (True, True)
