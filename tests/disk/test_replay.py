"""Kill states: the prefix of a trace, and what lies inside a write."""

from __future__ import annotations

from hypothesis import given, settings

from chaoskit.disk.apply import apply, initial_image
from chaoskit.disk.kill_states import kill_states
from tests.disk.listings import listing
from tests.disk.positions import image_at
from tests.disk.programs import PROGRAMS, run
from tests.disk.traces import Disk


def contents(disk: Disk):
    return [(s.position, s.written, listing(s.image)) for s in kill_states(disk.trace())]


def test_a_kill_leaves_the_prefix_of_the_trace_and_the_half_of_a_write():
    disk = Disk()
    disk.create("a")
    disk.write("a", b"1234")
    assert contents(disk) == [
        (0, None, {}),
        (1, None, {"a": b""}),
        (1, 2, {"a": b"12"}),
        (2, None, {"a": b"1234"}),
    ]


def test_a_write_of_one_byte_has_no_half():
    disk = Disk(a=b"")
    disk.write("a", b"1")
    assert len(contents(disk)) == 2


def test_syncs_do_not_change_kill_states():
    disk = Disk(a=b"1")
    disk.fsync("a")
    disk.sync()
    assert len({image.image.digest for image in kill_states(disk.trace())}) == 1


def test_a_file_without_a_name_gets_one_by_link_and_a_file_may_come_from_outside():
    disk = Disk()
    disk.numbers["nameless"] = 7
    disk._op("create", "nameless", parent=-1)
    disk.write("nameless", b"x")
    disk._op("link", "nameless", parent=-1, parent2=0, name2="named")
    disk._op("rename", "nameless", parent=0, name="named", parent2=-1)
    listings = [found for _, _, found in contents(disk)]
    assert listings == [{}, {}, {}, {"named": b"x"}, {}]


@settings(max_examples=60, deadline=None)
@given(PROGRAMS)
def test_a_state_is_the_same_whether_reached_stepwise_or_rebuilt(steps):
    trace = run(steps).trace()
    whole = [state for state in kill_states(trace) if state.written is None]
    assert [s.position for s in whole] == list(range(len(trace.ops) + 1))
    for state in whole:
        assert state.image.digest == image_at(trace, state.position).digest


def test_a_step_copies_only_what_it_changes():
    disk = Disk(**{f"f{n}": bytes([n]) * 5000 for n in range(50)})
    disk.write("f7", b"x", 4500)
    before = initial_image(disk.trace())
    after = apply(before, disk.ops[0])
    assert [number for number, _, _ in before.nodes.diff(after.nodes)] == [0, disk.numbers["f7"]]
    changed = before.data(disk.numbers["f7"]).pages.diff(after.data(disk.numbers["f7"]).pages)
    assert [page for page, _, _ in changed] == [1]
