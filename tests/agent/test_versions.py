"""Versions of a session (H1, H6): each stays loadable, cheap to write, and complete in the next life."""

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from reference_agent.messages import Budget, Message, Plan, Step
from tests.agent.helpers import Home, entry, play, step
from tests.agent.stores import BOTH, BUDGETS, MESSAGES, PLANS, Place, fresh, written_and_read


@pytest.mark.requirement("H1")
@pytest.mark.requirement("H6")
@BOTH
@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.lists(MESSAGES, min_size=1, max_size=2), PLANS, BUDGETS), max_size=5))
def test_every_version_stays_loadable_and_unchanged(kind, turns):
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
def test_each_session_counts_and_sees_only_its_own_versions(tmp_path, kind):
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
    # An occasional page split; never proportional to the transcript (60 kB at the end).
    assert max(size for _rows, size in written[1:]) <= 8 * 4120 + 32


@pytest.mark.requirement("H1", "O1")
def test_a_checkpoint_on_files_is_one_line_whose_length_varies_only_with_its_numbers(tmp_path):
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
def test_plan_budget_and_timestamps_are_restored_in_the_next_life(tmp_path, kind):
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
def test_a_moved_state_directory_keeps_its_scratchpads(tmp_path):
    # BUG found by this test: the path was stored as absolute, and pointed to the old location.
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
