"""The loop: when it checkpoints, what it takes up again, what it may spend, and who may open it."""

import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter

import pytest

from reference_agent.ids import BadSessionId
from reference_agent.messages import Message
from reference_agent.store.event_log import EventLog
from reference_agent.store.lock import SessionBusy
from reference_agent.store.registry import STORES
from reference_agent.turn import hooks
from reference_agent.turn.agent import GaveUp
from reference_agent.turn.cadence import Cadence
from reference_agent.turn.hooks import HookRegistry
from reference_agent.turn.tools import Tool
from tests.agent.helpers import Death, Home, Points, entry, play, step

TWO_TURNS = entry([step("act", n=1), step("act", n=2)], [step("act", n=3)])


def say(home, *requests: str):
    """One life that asks for each of these in turn; its answers, or None where it died."""

    async def main():
        async with home.life() as agent:
            answers = [await agent.say("go", request_id=request) for request in requests or ("r",)]
        return None if home.dead else answers

    return play(main())


def on(kind, handler, **options) -> HookRegistry:
    registry = HookRegistry()
    registry.register(kind, handler, **options)
    return registry


def events(home) -> list[dict]:
    log = EventLog(home.path / f"{home.session}.messages.jsonl", lambda: 0.0)
    log.close()
    return log.events


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
        # All the turns that are complete, but for the one whose row is just about to be written.
        assert turns in (done, done[:-1]), (name, roles)
        assert [last for _turn, last in checkpoints] == list(complete)[: len(turns)]
    assert [turn for turn, _last in seen[-1][2]] == [1, 2, 3]


@pytest.mark.requirement("K1")
def test_a_turn_is_told_when_its_checkpoint_is_durable_and_not_before(tmp_path):
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


# --- K2: what is taken up again


@pytest.mark.requirement("K2")
def test_resuming_removes_what_lies_beyond_the_last_checkpoint_for_good(tmp_path):
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
def test_the_latest_checkpoint_is_the_one_that_counts(tmp_path):
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
def test_a_request_that_was_answered_is_answered_from_memory(tmp_path):
    home = Home(tmp_path, TWO_TURNS)
    home.tools = [home.acting()]
    first = say(home)
    asked = len(home.asked)
    assert say(home, "r", "r") == first * 2
    assert len(home.asked) == asked


# --- H5: cadence


TURNS = entry(*([step("act", n=n)] for n in range(1, 6)))  # and the answer is turn 6


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
def test_each_cadence_checkpoints_the_turns_that_it_says(tmp_path, cadence, turns):
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
def test_a_turn_that_a_crash_cut_between_two_calls_is_not_called_completed(tmp_path):
    # BUG found by this test: recovery took every checkpoint for the end of a turn.
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


# --- H8: a model that never answers the same way twice, killed everywhere


FICKLE = entry([step("act", n=1, noise="memo"), step("act", n=2)], [step("look")], [step("act", n=3)])
CADENCES = [Cadence(), Cadence("call"), Cadence("periodic", turns=3)]


def fickle_home(path, cadence, store) -> Home:
    path.mkdir()
    home = Home(path, FICKLE, entry([step("act", n=4)]), fickle=True, cadence=cadence, store=store)

    async def look(args, key):
        return "looked"

    async def happened(args, key):
        done = [done["n"] for _name, done in home.effects]
        return f"effect {done.index(args['n']) + 1}" if args["n"] in done else None

    home.tools = [
        home.acting(verify=happened, key=lambda args, _id: str(args["n"])),
        Tool(name="look", run=look),
    ]
    return home


class Bomb:
    """Goes off at the nth step of a life: each persist point, before and after, and each telling."""

    def __init__(self, home: Home, points: Points, at: int) -> None:
        self.left = at
        self.home = home
        points.at = lambda _name, _when: self.tick()
        home.on_tell = lambda _name, _facts: self.tick()
        home.on_ask = self.tick

    def tick(self) -> None:
        if self.home.dead:
            raise Death
        self.left -= 1
        if self.left == 0:
            self.home.die()


@pytest.mark.requirement("H8")
@pytest.mark.requirement("K2")
@pytest.mark.parametrize("store", STORES.names())
@pytest.mark.parametrize("cadence", CADENCES, ids=["turn", "call", "periodic"])
def test_after_a_crash_at_any_step_every_effect_is_done_once_and_no_decision_is_asked_for_again(
    tmp_path, monkeypatch, cadence, store
):
    points = Points(monkeypatch)
    fired = 0
    while True:
        home = fickle_home(tmp_path / str(fired), cadence, store)
        decided = []

        async def main(home=home, decided=decided, at=fired + 1):
            async with home.life() as agent:
                bomb = Bomb(home, points, at)
                await agent.say("go", request_id="r")
                await agent.say("more", request_id="r2")
            home.on_tell, home.on_ask = (lambda *_: None), (lambda: None)
            points.at = lambda *_: None
            decided += [facts["turn"] for name, facts in home.told if name == "decided"]
            if home.dead:
                home.asked_before = len(home.asked)
                async with home.life() as agent:
                    await agent.say("go", request_id="r")
                    await agent.say("more", request_id="r2")
            return bomb.left <= 0

        went_off = play(main())
        assert sorted(args["n"] for _name, args in home.effects) == [1, 2, 3, 4]
        # Turn n is asked for with n - 1 answers before it: never again once it was decided.
        asked = Counter(
            1 + sum(message.role == "assistant" for message in said) for said, _system in home.asked
        )
        assert all(asked[turn] == 1 for turn in decided)
        assert sum(asked.values()) <= 6 + 1
        seen = home.seen()
        assert [turn for turn, _tokens in seen["usage"]] == list(range(1, 7))
        kinds = Counter((event["kind"], event.get("run_id")) for event in events(home))
        assert max(kinds[kind, run] for kind, run in kinds if run) == 1
        assert None not in seen["answers"].values()
        if not went_off:
            break
        fired += 1
    assert fired > 80  # there were that many steps, and the bomb went off at each


# --- money and patience


@pytest.mark.requirement("H6")
def test_a_budget_that_is_spent_ends_the_request_before_the_model_is_asked(tmp_path):
    home = Home(tmp_path, TURNS, limit_tokens=30)
    home.tools = [home.acting()]
    with pytest.raises(GaveUp, match="the budget is spent"):
        say(home)
    spent = home.rows("SELECT SUM(input_tokens + output_tokens) FROM token_usage")[0][0]
    last = home.rows("SELECT input_tokens + output_tokens FROM token_usage ORDER BY id DESC")[0][0]
    assert spent >= 30 > spent - last
    assert len(home.asked) < 6
    assert [event["kind"] for event in events(home)][-1] == "run.failed"


@pytest.mark.requirement("H6")
def test_a_budget_is_not_counted_twice_after_a_crash(tmp_path):
    def spent(path, deadly):
        path.mkdir()
        home = Home(path, TWO_TURNS)
        home.tools = [home.acting(repeatable=True)]
        if deadly:
            home.on_tell = lambda name, _facts: home.die() if name == "decided" else None
            assert say(home) is None
            home.on_tell = lambda _name, _facts: None

        async def main():
            async with home.life() as agent:
                await agent.say("go", request_id="r")
                return (await agent.status()).budget.spent_tokens

        return play(main())

    assert spent(tmp_path / "a", True) == spent(tmp_path / "b", False) > 0


@pytest.mark.requirement("K1")
@pytest.mark.parametrize(("turns", "enough"), [(5, False), (6, True)])
def test_a_request_has_so_many_turns_and_no_more(tmp_path, turns, enough):
    home = Home(tmp_path, TURNS, max_turns=turns)
    home.tools = [home.acting()]
    if enough:
        say(home)
    else:
        with pytest.raises(GaveUp, match="no answer within 5 turns"):
            say(home)
    assert len(home.asked) == turns


@pytest.mark.requirement("K2")
def test_a_crash_gives_a_request_no_more_turns(tmp_path):
    # BUG found by this test: each life counted its turns from 0 again.
    home = Home(tmp_path, TURNS, max_turns=5)
    home.tools = [home.acting()]
    third = ("turn", 3)
    home.on_tell = lambda name, facts: home.die() if (name, facts.get("turn")) == third else None
    assert say(home) is None
    home.on_tell = lambda _name, _facts: None
    for _ in range(2):  # asking again does not help either
        with pytest.raises(GaveUp, match="no answer within 5 turns"):
            say(home)
    assert len(home.asked) == 5


@pytest.mark.requirement("K2")
def test_a_request_that_was_given_up_leaves_its_decisions_to_nobody_else(tmp_path):
    # BUG found by this test: its turns were rolled back, and the next request got its decisions.
    home = Home(
        tmp_path,
        entry(answer="First."),
        TURNS,
        entry(answer="Other."),
        max_turns=2,
        cadence=Cadence("periodic", turns=10),
    )
    home.tools = [home.acting()]
    say(home, "first")
    with pytest.raises(GaveUp, match="no answer within 2 turns"):
        say(home, "long")
    assert len(home.effects) == 2
    assert say(home, "other") == ["Other. []"]


@pytest.mark.requirement("K2")
def test_a_request_that_was_given_up_and_is_asked_again_gets_its_own_answer(tmp_path):
    # BUG found by this test: it was answered with what was said last to somebody else.
    home = Home(tmp_path, entry(answer="B."), entry(answer="A."))
    stopping = [hooks.Stop("not now")]
    home.registry = on(hooks.AgentStart, lambda _event: stopping[0])

    async def main():
        async with home.life() as agent:
            with pytest.raises(GaveUp, match="not now"):
                await agent.say("a", request_id="a")
            stopping[0] = None
            return [await agent.say("b", request_id="b"), await agent.say("a", request_id="a")]

    assert play(main()) == ["B. []", "A. []"]
    assert home.rows("SELECT content FROM messages WHERE role = 'user'") == [("b",), ("a",)]


@pytest.mark.requirement("H3")
def test_a_model_that_uses_the_same_call_id_again_gets_both_calls_done(tmp_path):
    # BUG found by this test: the second call was answered with the result of the first.
    home = Home(tmp_path, entry([step("act", n=1)], [step("act", n=2)]))
    home.tools = [home.acting()]

    async def main():
        async with home.life() as agent:
            model = agent._model._provider._model
            honest = model.complete

            async def complete(conversation, **options):
                answer = await honest(conversation, **options)
                calls = tuple(type(c)("call_0", c.name, c.args) for c in answer.message.calls)
                message = Message("assistant", answer.message.content, calls)
                return type(answer)(message, answer.usage)

            model.complete = complete
            return await agent.say("go", request_id="r")

    assert play(main()) == "Done. [effect 1; effect 2]"


# --- hooks


@pytest.mark.requirement("K8")
def test_a_denied_tool_is_not_run_and_the_denial_stays_after_a_restart(tmp_path):
    home = Home(tmp_path, entry([step("act", n=1)]))
    home.tools = [home.acting()]
    home.registry = on(hooks.PreToolUse, lambda _event: hooks.Deny("too much"))
    home.on_sql = lambda sql: home.die() if "INTO checkpoints" in sql else None
    assert say(home) is None
    home.on_sql = lambda _sql: None
    home.registry = None  # it would be allowed now
    assert say(home) == ["Done. [error: denied: too much]"]
    assert home.effects == []


@pytest.mark.requirement("K8")
def test_a_tool_runs_with_the_arguments_of_a_hook_also_after_a_crash(tmp_path):
    home = Home(tmp_path, entry([step("act", n=1)]))
    ran = []

    async def run(args, key):
        ran.append((args, key))
        if len(ran) == 1:
            home.die()
        return "ok"

    home.tools = [Tool(name="act", run=run, mutating=True, repeatable=True)]
    home.registry = on(hooks.PreToolUse, lambda event: hooks.ModifyArgs({"n": event.args["n"] + 1}))
    assert say(home) is None
    home.registry = on(hooks.PreToolUse, lambda event: hooks.ModifyArgs({"n": 99}))
    assert say(home) == ["Done. [ok]"]
    assert [args for args, _key in ran] == [{"n": 2}, {"n": 2}]
    assert len({key for _args, key in ran}) == 1


@pytest.mark.requirement("K8")
@pytest.mark.parametrize(
    "kind", [hooks.AgentStart, hooks.TurnStart, hooks.TurnEnd, hooks.PostToolUse, hooks.PostToolUseFailure]
)
def test_a_hook_may_end_the_request(tmp_path, kind):
    # BUG found by this test: what hooks said after a tool was thrown away.
    home = Home(tmp_path, entry([step("act", n=1), step("no such tool"), step("fail")], [step("act")]))

    async def fail(args, key):
        raise ValueError

    home.tools = [home.acting(), Tool(name="fail", run=fail)]
    home.registry = on(kind, lambda _event: hooks.Stop("enough"))
    with pytest.raises(GaveUp, match="stopped by a hook: enough"):
        say(home)
    assert home.rows("SELECT status, reason FROM runs")[0][0] == "failed"
    assert len(home.asked) == (0 if kind in (hooks.AgentStart, hooks.TurnStart) else 1)
    home.registry = None
    assert say(home)[0].startswith("Done. [effect 1; error: there is no tool")  # it can be continued


@pytest.mark.requirement("K8")
@pytest.mark.parametrize("kind", [hooks.AgentStart, hooks.TurnStart, hooks.TurnEnd, hooks.PostToolUse])
@pytest.mark.parametrize("decision", [hooks.SystemMessage, hooks.AppendContext])
def test_what_a_hook_says_reaches_the_model_once_and_no_table(tmp_path, kind, decision):
    # BUG found by this test: what hooks said after a tool was thrown away.
    home = Home(tmp_path, entry([step("act", n=1)], [step("act", n=2)]))
    home.tools = [home.acting()]
    left = [decision("BE-BRIEF")]
    home.registry = on(kind, lambda _event: left.pop() if left else None)
    say(home)
    assert [("BE-BRIEF" in system) for _said, system in home.asked].count(True) == 1
    assert not any("BE-BRIEF" in message.content for said, _system in home.asked for message in said)
    for file in tmp_path.iterdir():
        assert b"BE-BRIEF" not in file.read_bytes()


@pytest.mark.requirement("K8")
def test_a_request_fires_its_events_in_order(tmp_path):
    home = Home(tmp_path, entry([step("act", n=1)]))
    home.tools = [home.acting()]
    heard = []
    home.registry = on(hooks.EVENTS, lambda event: heard.append(type(event).__name__))
    say(home)
    assert heard == [
        "AgentStart",
        "TurnStart",
        "PreToolUse",
        "PostToolUse",
        "TurnEnd",
        "TurnStart",
        "TurnEnd",
        "AgentStop",
    ]


# --- one process per session


HOLDER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from reference_agent.store.lock import SessionLock
    lock = SessionLock(Path(sys.argv[1]))
    print("held", flush=True)
    sys.stdin.read()
""")


@pytest.mark.requirement("K2")
def test_a_session_that_another_process_has_open_is_refused_until_that_one_is_killed(tmp_path):
    home = Home(tmp_path, entry())
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "s.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout.readline() == b"held\n"
            with pytest.raises(SessionBusy, match=rf"session s is open .*pid {holder.pid}\)"):
                say(home)
            assert not (tmp_path / "sessions.db").exists()  # refused before anything was touched
        finally:
            os.kill(holder.pid, signal.SIGKILL)
    assert say(home) == ["Done. []"]


@pytest.mark.requirement("K2")
def test_two_sessions_of_one_directory_are_open_at_once_and_one_is_not_open_twice(tmp_path):
    one, other = Home(tmp_path, entry(), session="one"), Home(tmp_path, entry(), session="other")

    async def main():
        async with one.life() as first, other.life() as second:
            with pytest.raises(SessionBusy):
                await Home(tmp_path, entry(), session="one").open()
            return await first.say("go", request_id="r"), await second.say("go", request_id="r")

    assert play(main()) == ("Done. []", "Done. []")


# --- what it costs to import


@pytest.mark.parametrize(
    "session", ["", ".", "..", "../other", "/etc/passwd", "a/b", "a\\b", "nul\0", "a\n", "x" * 65, "\ud800"]
)
def test_a_session_id_that_is_no_file_name_is_refused_before_anything_is_made(tmp_path, session):
    with pytest.raises(BadSessionId, match="expected 1 to 64 letters, digits, - and _"):
        play(Home(tmp_path, session=session).open())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("session", ["a", "A-1_b", "x" * 64])
def test_a_session_id_that_is_one_is_taken(tmp_path, session):
    home = Home(tmp_path, entry(answer="Yes."), session=session)
    assert say(home) == ["Yes. []"]


@pytest.mark.requirement("C1")
def test_importing_the_agent_imports_nothing_that_it_does_not_need():
    heavy = {"click", "rich", "rich_click", "pydantic", "faker", "psutil", "httpx2", "chaoskit"}
    imported = "reference_agent.turn.agent, reference_agent.store.sqlite_kind"
    program = f"import sys, {imported}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "aiosqlite" in loaded
    assert not loaded & heavy
