"""A change that failed and was repeated may be stored at either place: neither violates a claim."""

from typing import Any

import pytest
from chaoskit_invariants.claims import stores

from chaoskit.model import Ack, Event, History, Invariant, Invoke, Probe


def ask(n: int, life: int = 0, *, done: bool = True) -> list[Event]:
    step = {"do": "save", "session": "a", "n": n}
    asked: list[Event] = [Invoke(life=life, at=0, op=n, name="change", args=step)]
    return [*asked, Ack(life=life, at=0, name="changed", data=step)] if done else asked


def look(**found: Any) -> Event:
    return Probe(life=1, at=0, name="end", data={"sessions": {"a": found}})


REFUSED = [*ask(1), *ask(2, done=False), *ask(3), *ask(2, life=1)]


@pytest.mark.parametrize("kept", [[1, 2, 3], [1, 3, 2]])
@pytest.mark.parametrize("claim", [stores.DURABLE, stores.PREFIX])
def test_a_repeated_save_may_or_may_not_be_the_latest(kept: list[int], claim: Invariant) -> None:
    events = [*REFUSED, look(load=[kept[-1]], history=[[n] for n in kept])]
    assert not list(claim.check(history_of(events)))


def test_an_older_save_may_not_be_the_latest() -> None:
    events = [*REFUSED, look(load=[1], history=[[1], [2], [3]])]
    assert [v.kind for v in stores.DURABLE.check(history_of(events))] == ["lost"]


def test_a_save_made_after_the_repeated_one_is_the_latest() -> None:
    events = [*REFUSED, *ask(4, life=1), look(load=[2], history=[[1], [3], [2], [4]])]
    assert [v.kind for v in stores.DURABLE.check(history_of(events))] == ["lost"]


def history_of(events: list[Event]) -> History:
    return History(tuple(events))
