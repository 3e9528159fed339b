"""The session store: its tables, its inverse, its versions, and the damage that it refuses to touch."""

import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import aiosqlite
import pytest
from chaoskit_scenarios import inloop
from hypothesis import given, settings, strategies as st

from reference_agent.messages import Budget, Message, Plan, Reasoning, Step, ToolCall
from reference_agent.providers.base import Usage
from reference_agent.store.database import CorruptStore, Database, NewerStore
from reference_agent.store.event_log import DamagedLog, EventLog
from reference_agent.store.kinds import Location, Opening, open_store
from reference_agent.store.protocol import SessionStore
from reference_agent.store.records import RecordedCall, Request, Run, StoredError
from reference_agent.store.registry import STORES
from reference_agent.store.sqlite import SqliteStore, stored_to_message
from tests.agent.helpers import Home, entry, play, step

COLUMNS = {
    "sessions": {"id", "agent_id", "model", "provider", "created_at"},
    "messages": {
        "id",
        "session_id",
        "agent_id",
        "turn",
        "role",
        "content",
        "tool_call_id",
        "tool_name",
        "tool_args",
        "created_at",
    },
    "token_usage": {"id", "session_id", "agent_id", "turn", "input_tokens", "output_tokens", "created_at"},
    "errors": {"id", "session_id", "agent_id", "turn", "context", "message", "attempt", "created_at"},
    "checkpoints": {"id", "session_id", "agent_id", "turn", "last_msg_id", "created_at"},
}

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
    """What `read` finds right after `write`, and again when the session was closed in between."""

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


@pytest.mark.requirement("K1")
@pytest.mark.parametrize("table", COLUMNS)
def test_each_of_the_five_tables_has_the_columns_of_the_seed(tmp_path, table):
    async def main():
        await (await opened(tmp_path / "db")).close()

    play(main())
    found = {row[1] for row in sqlite3.connect(tmp_path / "db").execute(f"PRAGMA table_info({table})")}
    assert found >= COLUMNS[table]


# --- K4: the store is the inverse of itself


@pytest.mark.requirement("K4", "O1")
@BOTH
@settings(deadline=None, max_examples=50)
@given(st.lists(MESSAGES, max_size=6))
def test_what_is_stored_is_loaded_again_exactly_and_in_order(kind, messages):
    async def write(store):
        for turn, message in enumerate(messages):
            await store.add_message(message, turn)

    _, found = written_and_read(kind, write, lambda store: store.messages())
    assert [each.message for each in found] == messages
    assert [each.turn for each in found] == list(range(len(messages)))
    assert {each.created_at for each in found} <= {1000}


@pytest.mark.requirement("K4", "O1")
@BOTH
@settings(deadline=None, max_examples=25)
@given(MESSAGES.filter(lambda message: message.role == "assistant"))
def test_a_decision_is_remembered_exactly(kind, message):
    async def read(store):
        return await store.decision(1), await store.spent_tokens(), await store.decision(2)

    _, found = written_and_read(kind, lambda s: s.record_decision(1, message, Usage(3, 4)), read)
    assert found == (message, 7, None)


@pytest.mark.requirement("K4", "O1")
@BOTH
@settings(deadline=None, max_examples=25)
@given(st.text(), st.text(), st.integers(0, 99))
def test_errors_are_loaded_as_they_were_stored(kind, context, text, attempt):
    async def read(store):
        return await store.errors(), await store.errors(5), await store.errors(6)

    _, found = written_and_read(kind, lambda s: s.add_error(5, context, text, attempt), read)
    error = StoredError(5, context, text, attempt)
    assert found == ([error], [error], [])


CALL = ToolCall("c1", "pay", {"to": "\u2028 \x00 \U0001f600 \x85 \x1c", "n": [2**53, 1e-300]})


@pytest.mark.requirement("H2", "O1")
@BOTH
def test_a_call_goes_from_issued_to_its_end_and_is_found_by_id_and_key(kind):
    async def write(store):
        await store.issue_call(CALL, "k")
        await store.issue_call(ToolCall("c2", "post", {}), "k2")
        await store.issue_call(ToolCall("c3", "post", {}), "k3")
        issued = [call.call_id for call in await store.pending_calls()]
        await store.finish_call("c1", "completed", "a\u2028b\x00")
        await store.finish_call("c2", "unknown", "?")
        await store.record_reading(ToolCall("c4", "look", {}), "k4", "failed", "no")
        return issued

    async def read(store):
        return [
            await store.call("c1"),
            await store.decided_call("k"),
            await store.completed_call("k"),
            [call.call_id for call in await store.pending_calls()],
            [call.call_id for call in await store.open_questions()],
            (await store.decided_call("k2")).status,
            await store.completed_call("k2"),
            (await store.call("c4")).status,
            await store.call("c9"),
        ]

    issued, found = written_and_read(kind, write, read)
    done = RecordedCall("c1", "pay", CALL.args, "k", "completed", "a\u2028b\x00")
    assert issued == ["c1", "c2", "c3"]
    assert found == [done, done, done, ["c3"], ["c2"], "unknown", None, "failed", None]


@pytest.mark.requirement("O1")
@BOTH
def test_what_a_tool_does_to_its_arguments_is_not_on_record(kind):
    async def write(store):
        args = {"to": ["a"]}
        await store.issue_call(ToolCall("c", "pay", args), "k")
        args["to"].append("b")
        (await store.call("c")).args["to"].append("c")

    _, found = written_and_read(kind, write, lambda store: store.call("c"))
    assert found.args == {"to": ["a"]}


@pytest.mark.requirement("K2", "O1")
@BOTH
def test_requests_and_runs_are_what_became_of_them(kind):
    async def write(store):
        for name in ("one", "two", "three"):
            await store.start_run(Run(f"run-{name}", name, "boot"), Request(name, f"do {name}", 1))
        await store.complete_run(Run("run-one", "one", "boot"), "done")
        await store.end_run(Run("run-two", "two", "boot"), "failed", "no budget")
        await store.end_run(Run("run-three", "three", "boot"), "interrupted", "process_restart")
        await store.start_run(Run("run-again", "one", "boot"), Request("one", "other words", 7))

    async def read(store):
        return (
            await store.request("one"),
            await store.request("nobody"),
            await store.last_run(),
            await store.unfinished_requests(),
        )

    _, found = written_and_read(kind, write, read)
    assert found == (
        Request("one", "do one", 7, "done"),
        None,
        (Run("run-again", "one", "boot"), "running"),
        [Request("three", "do three", 1)],
    )


@pytest.mark.requirement("K2", "O1")
@BOTH
def test_a_rollback_is_for_good_and_no_message_id_is_given_twice(kind):
    async def write(store):
        for text in ("a", "b", "c"):
            await store.add_message(Message("user", text), 1)
            if text == "a":
                await store.write_checkpoint(1, None, Budget())
        before = [each.id for each in await store.messages()]
        await store.roll_back_to((await store.latest_checkpoint()).last_msg_id)
        await store.add_message(Message("user", "d"), 2)
        return before

    before, found = written_and_read(kind, write, lambda store: store.messages())
    assert [each.message.content for each in found] == ["a", "d"]
    assert found[0].id == before[0]
    assert found[1].id > max(before)


@pytest.mark.requirement("K4")
@pytest.mark.parametrize("role", ["system", "developer", ""])
def test_a_stored_system_message_is_an_error(role):
    with pytest.raises(ValueError, match="expected a message of user, assistant or tool"):
        stored_to_message([role, "be good", None, None, None, 0, None])


@pytest.mark.requirement("K4")
@BOTH
def test_the_system_prompt_is_in_no_table_and_no_file(tmp_path, kind):
    home = Home(tmp_path, entry([step("act")]), system="SECRET-PROMPT", store=kind)
    home.tools = [home.acting()]

    async def main():
        async with home.life() as agent:
            await agent.say("go", request_id="r")

    play(main())
    assert "SECRET-PROMPT" in home.asked[0][1]  # the model was told
    for file in tmp_path.iterdir():
        assert b"SECRET-PROMPT" not in file.read_bytes()


# --- H1, H6: versions


@pytest.mark.requirement("H1")
@pytest.mark.requirement("H6")
@BOTH
@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.lists(MESSAGES, min_size=1, max_size=2), PLANS, BUDGETS), max_size=5))
def test_every_version_stays_loadable_exactly_as_it_was(kind, turns):
    async def write(store):
        said = []
        taken = []
        for number, (messages, plan, budget) in enumerate(turns, 1):
            for message in messages:
                await store.add_message(message, number)
                said.append(message)
            taken.append((await store.write_checkpoint(number, plan, budget), list(said), plan, budget))
            await store.add_message(Message("assistant", "half a turn"), number)
            await store.roll_back_to((await store.latest_checkpoint()).last_msg_id)
        return taken

    async def read(store):
        versions = await store.versions()
        loaded = [await store.load_version(version) for version in versions]
        return loaded, versions, await store.load_version(len(versions) + 1)

    taken, (loaded, versions, beyond) = written_and_read(kind, write, read)
    assert versions == list(range(1, len(turns) + 1))
    assert beyond is None
    for (version, said, plan, budget), snapshot in zip(taken, loaded, strict=True):
        assert snapshot.version == version
        assert [each.message for each in snapshot.transcript] == said
        assert snapshot.plan == plan
        assert snapshot.budget == budget


@pytest.mark.requirement("H1")
@BOTH
def test_versions_of_two_sessions_count_for_themselves_and_see_only_their_own(tmp_path, kind):
    async def main():
        found = []
        for session in ("a", "b"):
            async with Place(kind, tmp_path, session).open() as store:
                await store.add_message(Message("user", session), 1)
                version = await store.write_checkpoint(1, None, Budget())
                transcript = (await store.load_version(version)).transcript
                found.append((version, [each.message.content for each in transcript]))
        return found

    assert play(main()) == [(1, ["a"]), (1, ["b"])]


@pytest.mark.requirement("H1")
def test_a_deleted_middle_version_does_not_break_resume_nor_the_count(tmp_path):
    home = Home(tmp_path, entry([step("act", n=1)], [step("act", n=2)]), entry(answer="Again."))
    home.tools = [home.acting()]

    async def main():
        async with home.life() as agent:
            await agent.say("go", request_id="r")
        home.change("DELETE FROM checkpoints WHERE version = 2")
        async with home.life() as agent:
            before = list(agent.conversation)
            answer = await agent.say("more", request_id="r2")
            return before, answer, await agent._store.versions()

    before, answer, versions = play(main())
    assert [message.role for message in before] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert answer == "Again. []"
    assert versions == [1, 3, 4]


@pytest.mark.requirement("H1")
def test_a_checkpoint_costs_the_same_however_long_the_transcript_is(tmp_path):
    written = []

    async def main():
        store = await fresh(tmp_path / "db")
        raw = store._db._connection._conn
        wal = tmp_path / "db-wal"
        plan = Plan((Step("x" * 1000),))
        for turn in range(1, 121):
            await store.add_message(Message("user", "x" * 500), turn)
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            changes = raw.total_changes
            await store.write_checkpoint(turn, plan, Budget(turn))
            written.append((raw.total_changes - changes, wal.stat().st_size))
        await store.close()

    play(main())
    assert {rows for rows, _bytes in written[1:]} == {1}  # the plan is kept once
    # A page split now and then; never in proportion to what was said (60 kB at the end).
    assert max(size for _rows, size in written[1:]) <= 8 * 4120 + 32


@pytest.mark.requirement("H1", "O1")
def test_a_checkpoint_on_files_is_one_line_of_the_same_length_but_for_its_numbers(tmp_path):
    path = tmp_path / "s.messages.jsonl"
    sizes = []

    async def main():
        async with Place("files", tmp_path).open() as store:
            for turn in range(1, 121):
                await store.add_message(Message("user", "x" * 500), turn)
                before = path.stat().st_size
                await store.write_checkpoint(turn, Plan((Step("x" * 1000),)), Budget(turn))
                sizes.append(path.stat().st_size - before)

    play(main())
    assert max(sizes[1:]) <= 220  # the plan is kept once


@pytest.mark.requirement("H6")
@BOTH
def test_plan_budget_and_time_stamps_come_back_in_the_next_life(tmp_path, kind):
    home = Home(tmp_path, entry([step("act")]), limit_tokens=10_000, store=kind)
    home.tools = [home.acting()]
    plan = Plan((Step("a", done=True, postcondition="b", evidence="c"), Step("d")))

    async def main():
        async with home.life() as agent:
            agent.plan = plan
            await agent.say("go", request_id="r")
            budget = (await agent.status()).budget
        home.now = 5000.0
        async with home.life() as agent:
            stamps = {each.created_at for each in await agent._store.messages()}
            return agent.plan, budget, (await agent.status()).budget, stamps

    found, before, after, stamps = play(main())
    assert found == plan
    assert before == after
    assert before.spent_tokens > 0
    assert stamps == {1000}


@pytest.mark.requirement("H6")
@BOTH
def test_a_session_has_its_own_scratchpad_and_finds_it_again(tmp_path, kind):
    one, other = (Home(tmp_path, session=name, store=kind) for name in ("one", "other"))

    async def main():
        async with one.life() as agent:
            first = await agent.scratchpad()
            (first / "note").write_text("hello")
        async with one.life() as agent, other.life() as agent2:
            return (await agent.scratchpad() / "note").read_text(), first, await agent2.scratchpad()

    text, first, second = play(main())
    assert text == "hello"
    assert first != second


@pytest.mark.requirement("H6")
def test_a_state_directory_that_is_moved_takes_its_scratchpads_along(tmp_path):
    # BUG found by this test: the path was stored whole, and led to where the directory had been.
    async def noted(home: Home) -> Path:
        async with home.life() as agent:
            return await agent.scratchpad() / "note"

    (tmp_path / "here").mkdir()
    play(noted(Home(tmp_path / "here"))).write_text("hello")
    (tmp_path / "here").rename(tmp_path / "there")
    (tmp_path / "here").mkdir()  # somebody else's now
    note = play(noted(Home(tmp_path / "there")))
    assert note.is_relative_to(tmp_path / "there")
    assert note.read_text() == "hello"


@pytest.mark.requirement("H6")
@pytest.mark.parametrize("there_still", [True, False])
def test_a_scratchpad_that_was_stored_as_an_absolute_path_is_found(tmp_path, there_still):
    old = tmp_path / "old" / "s.scratch"
    home = Home(tmp_path)
    if there_still:
        old.parent.mkdir()

    async def main():
        async with home.life():
            pass
        home.change("UPDATE sessions SET scratchpad = ?", str(old))
        async with home.life() as agent:
            return await agent.scratchpad()

    assert play(main()) == (old if there_still else tmp_path / "s.scratch")


# --- damage


def whole_database(path: Path) -> bytes:
    async def main():
        store = await fresh(path)
        for turn in range(40):
            await store.add_message(Message("user", "x" * 900), turn)
        await store.close()

    play(main())
    return path.read_bytes()


def garbage_header(content: bytes) -> bytes:
    return b"not a database at all" + content[21:]


def flipped_page(content: bytes) -> bytes:
    """Every page but the first begins with nonsense in place of its kind."""
    pages = bytearray(content)
    for start in range(4096, len(pages), 4096):
        pages[start] ^= 0x55
    return bytes(pages)


def one_flipped_page(content: bytes) -> bytes:
    """Of some messages: nothing that opening reads, unless it reads all."""
    page = content.rindex(b"x" * 900) // 4096 * 4096
    return content[:page] + bytes([content[page] ^ 0x55]) + content[page + 1 :]


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def in_mid_page(content: bytes) -> bytes:
    return content[: len(content) // 2 + 100]


DAMAGES = [garbage_header, flipped_page, one_flipped_page, truncated, in_mid_page]


@pytest.mark.requirement("K3")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_named_and_left_as_it_is(tmp_path, damage):
    path = tmp_path / "sessions.db"
    content = damage(whole_database(path))
    path.write_bytes(content)
    with pytest.raises(CorruptStore, match=r"sessions\.db is damaged.*Restore"):
        play(opened(path))
    assert path.read_bytes() == content


@pytest.mark.requirement("K3")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_left_as_it_is_with_its_write_ahead_log(tmp_path, damage):
    # BUG found by this test: closing the connection moved the log into the damaged file.
    live = tmp_path / "live.db"
    whole_database(live)
    keep = sqlite3.connect(live)
    keep.execute("INSERT INTO plans VALUES ('a', 'b')")
    keep.commit()
    path, wal = tmp_path / "sessions.db", tmp_path / "sessions.db-wal"
    path.write_bytes(damage(live.read_bytes()))
    wal.write_bytes((tmp_path / "live.db-wal").read_bytes())
    keep.close()
    before = path.read_bytes(), wal.read_bytes()
    with pytest.raises(CorruptStore):
        play(opened(path))
    assert wal.exists()
    assert (path.read_bytes(), wal.read_bytes()) == before


@pytest.mark.requirement("K3")
def test_what_was_found_is_said_even_if_nobody_can_look_again(tmp_path):
    path = tmp_path / "sessions.db"
    path.write_bytes(flipped_page(whole_database(path)))
    opened_for_good = []

    def connect(database, **options):
        if "mode=ro" in str(database):
            raise sqlite3.OperationalError("unable to open database file")
        opened_for_good.append(aiosqlite.connect(database, **options))
        return opened_for_good[-1]

    with pytest.raises(CorruptStore, match="is damaged"):
        play(Database.open(path, connect))
    assert [connection._connection for connection in opened_for_good] == [None]  # and so is closed


@pytest.mark.requirement("K3")
def test_a_whole_database_is_not_called_damaged(tmp_path):
    whole_database(tmp_path / "db")

    async def main():
        store = await opened(tmp_path / "db")
        found = await store.messages()
        await store.close()
        return found

    assert len(play(main())) == 40


@pytest.mark.requirement("K3")
def test_a_database_of_a_later_release_is_refused(tmp_path):
    whole_database(tmp_path / "db")
    db = sqlite3.connect(tmp_path / "db")
    db.execute("PRAGMA user_version = 99")
    db.close()
    before = (tmp_path / "db").read_bytes()
    with pytest.raises(NewerStore, match="version 99"):
        play(opened(tmp_path / "db"))
    assert (tmp_path / "db").read_bytes() == before


# --- the event log


def log_of(path: Path, kinds=("a", "b", "c")) -> bytes:
    log = EventLog(path, lambda: 0.0)
    for kind in kinds:
        log.append(kind, text="ü" * 3)
    log.close()
    return path.read_bytes()


@pytest.mark.requirement("K2")
def test_a_torn_last_line_is_cut_off_wherever_it_was_torn(tmp_path):
    path = tmp_path / "log"
    content = log_of(path)
    whole = content[: content[:-1].rindex(b"\n") + 1]
    for size in range(len(whole), len(content)):
        path.write_bytes(content[:size])
        log = EventLog(path, lambda: 0.0)
        assert [event["kind"] for event in log.events] == ["a", "b"]
        assert path.read_bytes() == whole
        assert log.append("d") == 3
        log.close()


@pytest.mark.requirement("K2")
@pytest.mark.parametrize(
    ("line", "bad"),
    [
        (1, b"rubbish"),
        (2, b""),
        (2, b"[]"),
        (3, b'{"seq": 7}'),
        (2, b'{"seq": 1}'),
        (3, b'{"kind": "no seq"}'),
        (2, b'{"seq": 2, "kind": "\xff"}'),
        (1, b"\x00" * 20),
    ],
)
@pytest.mark.parametrize("tail", [b"", b'{"seq": 4, "ki'])
def test_any_other_damage_names_file_and_line_and_is_left_as_it_is(tmp_path, line, bad, tail):
    # BUG found by this test: with a torn last line as well, the file was cut before it was judged.
    path = tmp_path / "s.messages.jsonl"
    lines = log_of(path).split(b"\n")
    lines[line - 1] = bad
    content = b"\n".join(lines) + tail
    path.write_bytes(content)
    with pytest.raises(DamagedLog, match=rf"s\.messages\.jsonl, line {line}:"):
        EventLog(path, lambda: 0.0)
    assert path.read_bytes() == content


@pytest.mark.requirement("K2")
def test_a_session_that_could_not_be_opened_is_free_once_it_is_repaired(tmp_path):
    # BUG found by this test: the lock stayed with a process that had nothing open.
    home = Home(tmp_path, entry())
    path = tmp_path / "s.messages.jsonl"
    path.write_bytes(b"rubbish\n")

    async def main():
        with pytest.raises(DamagedLog):
            await home.open()
        path.unlink()
        async with home.life() as agent:
            return await agent.say("go", request_id="r")

    assert play(main()) == "Done. []"
