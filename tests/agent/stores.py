"""A directory with one session, on any store, and strategies for its content."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from chaoskit_scenarios import inloop
from hypothesis import strategies as st

from reference_agent.messages import Budget, Message, Plan, Reasoning, Step, ToolCall
from reference_agent.store.event_log import EventLog
from reference_agent.store.kinds import Location, Opening, open_store
from reference_agent.store.protocol import SessionStore
from reference_agent.store.registry import STORES
from reference_agent.store.sqlite import SqliteStore
from tests.agent.helpers import play

INTEGERS = st.integers(-(2**63), 2**64 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ARGS = st.dictionaries(st.text(), JSON, max_size=4)
CALLS = st.lists(st.builds(ToolCall, st.text(), st.text(), ARGS), min_size=1, max_size=3).map(tuple)
REASONING = st.lists(st.builds(Reasoning, st.text(), ARGS), max_size=2).map(tuple)
MESSAGES = st.one_of(
    st.builds(Message, st.just("user"), st.text()),
    st.builds(Message, st.just("assistant"), st.text(), reasoning=REASONING),
    st.builds(Message, st.just("assistant"), st.text(), CALLS, reasoning=REASONING),
    st.builds(Message, st.just("tool"), st.text(), call_id=st.text(), tool=st.text(), is_error=st.booleans()),
)
PLANS = st.none() | st.builds(
    Plan, st.lists(st.builds(Step, st.text(), st.booleans(), st.text(), st.text())).map(tuple)
)
BUDGETS = st.builds(Budget, st.integers(0, 2**62), st.none() | st.integers(0, 2**62))
BOTH = pytest.mark.parametrize("kind", STORES.names())
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - no waiting for a disk


def opened(path: Path, session: str = "s", now: float = 1000.0):
    return SqliteStore.open(path, session, "agent", lambda: now, inloop.connect)


class Place:
    """A directory with one session in it, which can be opened again and again."""

    def __init__(self, kind: str, directory: Path, session: str = "s") -> None:
        self.kind = kind
        self.directory = directory
        self.session = session

    @asynccontextmanager
    async def open(self) -> AsyncIterator[SessionStore]:
        now = lambda: 1000.0  # noqa: E731
        log = EventLog(self.directory / f"{self.session}.messages.jsonl", now)
        store = await open_store(
            Opening(
                location=Location(self.directory, self.kind, inloop.connect),
                session=self.session,
                log=log,
                clock=now,
            )
        )
        try:
            await store.create_session("m", "p", "pad")
            yield store
        finally:
            await store.close()
            log.close()


@contextmanager
def somewhere(kind: str) -> Iterator[Place]:
    with TemporaryDirectory(dir=MEMORY) as directory:
        yield Place(kind, Path(directory))


def written_and_read(kind: str, write, read):
    """What `read` returns right after `write`, and again after closing and reopening the session."""

    async def main(place):
        async with place.open() as store:
            wrote = await write(store)
            at_once = await read(store)
        async with place.open() as store:
            return wrote, at_once, await read(store)

    with somewhere(kind) as place:
        wrote, at_once, later = play(main(place))
    assert at_once == later
    return wrote, later


async def fresh(path: Path) -> SqliteStore:
    store = await opened(path)
    await store.create_session("m", "p", "pad")
    return store
