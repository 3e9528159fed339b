"""The order of kill states when there is not enough time for all of them."""

from __future__ import annotations

from itertools import islice

from chaoskit.faults.kill import states
from chaoskit.faults.kind import StateSource
from chaoskit.model import Ack
from chaoskit.recording import Recording
from tests.disk.traces import Disk

SAVES = 6


def recording():
    """A long schema, then saves that are all alike."""
    disk, acks = Disk(), []
    disk.create("db")
    for step in range(40):
        disk.write("db", b"s" * (step + 1), step * 100)
    for save in range(SAVES):
        disk.write("db", b"1" * 10, 5000 + save)
        disk.write("db", b"2" * 10, 6000 + save)
        acks.append(disk.at)
    return Recording(disk.trace(), tuple(Ack(0, at, "changed", {}) for at in acks)), acks


def test_a_long_first_start_does_not_use_up_the_time_of_the_saves():
    recorded, acks = recording()
    tried = list(islice(states(recorded, StateSource(fault="kill", spread=True)), 20))
    schema = [state for state in tried if state.position < acks[0] - 2]
    assert len(schema) < 15
    assert any(state.position > acks[0] for state in tried)


def test_every_state_comes_once_whatever_the_order():
    recorded, _ = recording()
    every = [(s.position, s.fault, s.delivered) for s in states(recorded, StateSource(fault="kill"))]
    spread = [
        (s.position, s.fault, s.delivered) for s in states(recorded, StateSource(fault="kill", spread=True))
    ]
    assert len(spread) == len(set(spread))
    assert set(spread) == set(every)
