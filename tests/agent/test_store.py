"""The store of a session, on each kind: what is written is read again exactly (K1, K4)."""

import sqlite3

import pytest
from hypothesis import given, settings, strategies as st

from reference_agent.messages import Budget, Message, ToolCall
from reference_agent.providers.base import Usage
from reference_agent.store.records import RecordedCall, Request, Run, StoredError
from reference_agent.store.sqlite import stored_to_message
from tests.agent.helpers import Home, entry, play, step
from tests.agent.stores import BOTH, MESSAGES, opened, written_and_read

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


@pytest.mark.requirement("K1")
@pytest.mark.parametrize("table", COLUMNS)
def test_each_of_the_five_tables_has_the_specified_columns(tmp_path, table):
    async def main():
        await (await opened(tmp_path / "db")).close()

    play(main())
    found = {row[1] for row in sqlite3.connect(tmp_path / "db").execute(f"PRAGMA table_info({table})")}
    assert found >= COLUMNS[table]


@pytest.mark.requirement("K4", "O1")
@BOTH
@settings(deadline=None, max_examples=50)
@given(st.lists(MESSAGES, max_size=6))
def test_messages_are_loaded_exactly_as_stored_and_in_order(kind, messages):
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
def test_a_decision_is_loaded_exactly_as_stored(kind, message):
    async def read(store):
        return await store.decision(1), await store.spent_tokens(), await store.decision(2)

    _, found = written_and_read(kind, lambda s: s.record_decision(1, "r", message, Usage(3, 4)), read)
    assert found == (message, 7, None)


@pytest.mark.requirement("K4", "O1")
@BOTH
@settings(deadline=None, max_examples=25)
@given(st.text(), st.text(), st.integers(0, 99))
def test_errors_are_loaded_as_they_were_stored(kind, context, text, attempt):
    async def read(store):
        return await store.errors(), await store.errors(5), await store.errors(6)

    _, found = written_and_read(kind, lambda s: s.add_error(5, "r", context, text, attempt), read)
    error = StoredError(5, context, text, attempt)
    assert found == ([error], [error], [])


CALL = ToolCall("c1", "pay", {"to": "\u2028 \x00 \U0001f600 \x85 \x1c", "n": [2**53, 1e-300]})


@pytest.mark.requirement("H2", "O1")
@BOTH
def test_a_call_is_issued_then_settled_and_found_by_id_and_key(kind):
    async def still_issued(store):
        calls = [await store.call(name) for name in ("c1", "c2", "c3", "c4")]
        return [call.call_id for call in calls if call and call.status == "issued"]

    async def write(store):
        await store.issue_call(CALL, "k")
        await store.issue_call(ToolCall("c2", "post", {}), "k2")
        await store.issue_call(ToolCall("c3", "post", {}), "k3")
        issued = await still_issued(store)
        await store.finish_call("c1", "completed", "a\u2028b\x00")
        await store.finish_call("c2", "unknown", "?")
        await store.record_reading(ToolCall("c4", "look", {}), "k4", "failed", "no")
        return issued

    async def read(store):
        return [
            await store.call("c1"),
            await store.decided_call("k"),
            await still_issued(store),
            [call.call_id for call in await store.open_questions()],
            (await store.decided_call("k2")).status,
            (await store.call("c4")).status,
            await store.call("c9"),
        ]

    issued, found = written_and_read(kind, write, read)
    done = RecordedCall("c1", "pay", CALL.args, "k", "completed", "a\u2028b\x00")
    assert issued == ["c1", "c2", "c3"]
    assert found == [done, done, ["c3"], ["c2"], "unknown", "failed", None]


@pytest.mark.requirement("O1")
@BOTH
def test_a_tool_that_mutates_its_arguments_does_not_change_the_record(kind):
    async def write(store):
        args = {"to": ["a"]}
        await store.issue_call(ToolCall("c", "pay", args), "k")
        args["to"].append("b")
        (await store.call("c")).args["to"].append("c")

    _, found = written_and_read(kind, write, lambda store: store.call("c"))
    assert found.args == {"to": ["a"]}


@pytest.mark.requirement("K2", "O1")
@BOTH
def test_requests_and_runs_are_loaded_with_their_outcomes(kind):
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
def test_a_rollback_is_permanent_and_no_message_id_is_reused(kind):
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
    with pytest.raises(ValueError, match="expected role user, assistant or tool"):
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
    assert "SECRET-PROMPT" in home.asked[0][1]  # the model received it
    for file in tmp_path.iterdir():
        assert b"SECRET-PROMPT" not in file.read_bytes()
