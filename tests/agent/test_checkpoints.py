"""When a turn is checkpointed (K1, H5), and what a resume keeps (K2)."""

import pytest

from reference_agent.turn.cadence import Cadence
from reference_agent.turn.tools import Tool
from tests.agent.helpers import TURNS, TWO_TURNS, Home, Points, events, play, say

# --- K1: when a checkpoint is written


@pytest.mark.requirement("K1")
def test_a_checkpoint_row_appears_only_when_its_turn_is_complete(tmp_path, monkeypatch):
    home = Home(tmp_path, TWO_TURNS)
    home.tools = [home.acting()]
    seen = []

    def look(name, when):
        if (tmp_path / "sessions.db").exists() and when == "after" and name != "schema.migrate":
            roles = [row[0] for row in home.rows("SELECT role FROM messages ORDER BY id")]
            seen.append((name, roles, home.rows("SELECT turn, last_msg_id FROM checkpoints")))

    Points(monkeypatch).at = look
    say(home)
    complete = {3 + 1: 1, 3 + 1 + 2: 2, 3 + 1 + 2 + 1: 3}  # messages: turn
    for name, roles, checkpoints in seen:
        done = [turn for count, turn in complete.items() if count <= len(roles)]
        turns = [turn for turn, _last in checkpoints]
        # All complete turns except the one whose row is about to be written.
        assert turns in (done, done[:-1]), (name, roles)
        assert [last for _turn, last in checkpoints] == list(complete)[: len(turns)]
    assert [turn for turn, _last in seen[-1][2]] == [1, 2, 3]


@pytest.mark.requirement("K1")
def test_a_turn_is_reported_only_once_its_checkpoint_is_durable(tmp_path):
    home = Home(tmp_path, TWO_TURNS)
    home.tools = [home.acting()]
    seen = []

    def look(name, facts):
        if name == "turn":
            seen.append((facts["turn"], home.rows("SELECT MAX(turn), MAX(last_msg_id) FROM checkpoints")))
            assert facts["messages"] == home.rows("SELECT COUNT(*) FROM messages")[0][0]

    home.on_tell = look
    say(home)
    assert seen == [(1, [(1, 4)]), (2, [(2, 6)]), (3, [(3, 7)])]


# --- K2: what a resume keeps


@pytest.mark.requirement("K2")
def test_resuming_permanently_removes_what_follows_the_last_checkpoint(tmp_path):
    home = Home(tmp_path, TWO_TURNS)
    home.tools = [home.acting()]
    say(home)
    whole = home.rows("SELECT * FROM messages ORDER BY id")
    home.change(
        "INSERT INTO messages (session_id, agent_id, turn, role, content, created_at)"
        " VALUES ('s', 'agent', 4, 'user', 'half a turn', 1)"
    )
    home.change(
        "INSERT INTO messages (session_id, agent_id, turn, role, content, created_at)"
        " VALUES ('other', 'agent', 4, 'user', 'of another session', 1)"
    )

    async def main():
        async with home.life() as agent:
            return list(agent.conversation)

    assert len(play(main())) == len(whole)
    assert home.rows("SELECT * FROM messages WHERE session_id = 's' ORDER BY id") == whole
    assert home.rows("SELECT COUNT(*) FROM messages WHERE session_id = 'other'") == [(1,)]


@pytest.mark.requirement("K2")
def test_resuming_uses_the_latest_checkpoint(tmp_path):
    home = Home(tmp_path, TWO_TURNS)
    home.tools = [home.acting()]
    say(home)
    home.change("DELETE FROM checkpoints WHERE version = 3")

    async def main():
        async with home.life() as agent:
            return [message.role for message in agent.conversation]

    assert play(main()) == ["user", "assistant", "tool", "tool", "assistant", "tool"]


@pytest.mark.requirement("K2")
def test_without_a_checkpoint_all_messages_stay(tmp_path):
    home = Home(tmp_path, TWO_TURNS)
    home.tools = [home.acting()]
    say(home)
    whole = home.rows("SELECT * FROM messages ORDER BY id")
    home.change("DELETE FROM checkpoints")

    async def main():
        async with home.life() as agent:
            return len(agent.conversation)

    assert play(main()) == len(whole)
    assert home.rows("SELECT * FROM messages ORDER BY id") == whole


@pytest.mark.requirement("K2")
def test_a_repeated_request_gets_its_stored_answer(tmp_path):
    home = Home(tmp_path, TWO_TURNS)
    home.tools = [home.acting()]
    first = say(home)
    asked = len(home.asked)
    assert say(home, "r", "r") == first * 2
    assert len(home.asked) == asked


# --- H5: cadence


@pytest.mark.requirement("H5")
@pytest.mark.parametrize(
    ("cadence", "turns"),
    [
        (Cadence(), [1, 2, 3, 4, 5, 6]),
        (Cadence("periodic", turns=2), [2, 4, 6]),
        (Cadence("periodic", turns=4), [4, 6]),
        (Cadence("periodic", turns=100), [6]),
        (Cadence("periodic", seconds=25.0), [3, 6]),
        (Cadence("periodic", turns=2, seconds=10.0), [1, 2, 3, 4, 5, 6]),
        (Cadence("periodic"), [6]),
    ],
)
def test_each_cadence_checkpoints_the_configured_turns(tmp_path, cadence, turns):
    home = Home(tmp_path, TURNS, cadence=cadence)

    async def run(args, key):
        home.now += 10.0
        return "ok"

    home.tools = [Tool(name="act", run=run, mutating=True)]
    say(home)
    assert [row[0] for row in home.rows("SELECT turn FROM checkpoints ORDER BY id")] == turns


@pytest.mark.requirement("H5")
def test_a_checkpoint_per_call_is_written_after_each_result(tmp_path):
    home = Home(tmp_path, TWO_TURNS, cadence=Cadence("call"))
    home.tools = [home.acting()]
    say(home)
    rows = home.rows("SELECT turn, last_msg_id FROM checkpoints ORDER BY id")
    assert rows == [(1, 3), (1, 4), (2, 6), (3, 7)]
    complete = [facts["complete"] for name, facts in home.told if name == "turn"]
    assert complete == [False, True, True, True]


@pytest.mark.requirement("H5")
def test_a_turn_that_crashed_between_two_calls_is_not_recorded_as_completed(tmp_path):
    # BUG found by this test: recovery treated every checkpoint as the end of a turn.
    home = Home(tmp_path, TWO_TURNS, cadence=Cadence("call"))

    async def run(args, key):
        home.effects.append(args["n"])
        if home.effects == [1, 2]:
            home.die()
        return f"effect {args['n']}"

    home.tools = [Tool(name="act", run=run, mutating=True, repeatable=True)]
    assert say(home) is None

    async def main():
        async with home.life():
            return [event["kind"] for event in events(home)]

    assert "turn.completed" not in play(main())
    assert say(home) == ["Done. [effect 1; effect 2; effect 3]"]
    turns = [event["turn"] for event in events(home) if event["kind"] == "turn.completed"]
    assert turns == [1, 2, 3]
