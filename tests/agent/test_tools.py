"""Tool calls: the journal, replay, settling of interrupted calls, and parallel calls."""

import asyncio
import hashlib

import pytest

from reference_agent.ids import ids_from
from reference_agent.messages import idempotency_key
from reference_agent.store.kinds import Location
from reference_agent.turn.agent import Agent
from reference_agent.turn.calls import UNKNOWN_OUTCOME
from reference_agent.turn.runtime import Runtime
from reference_agent.turn.tools import Tool, Toolbox
from tests.agent.helpers import Death, Home, Points, Watched, entry, play, step

CALLS = "SELECT tool_name, status, result_text FROM tool_calls ORDER BY rowid"


def results(agent) -> list[str]:
    return [message.content for message in agent.conversation if message.role == "tool"]


def say(home, *requests: str):
    """One life that sends each of these requests in turn; its answers, or None where it died."""

    async def main():
        async with home.life() as agent:
            answers = [await agent.say("go", request_id=request) for request in requests or ("r",)]
            home.results = results(agent)
            home.status = await agent.status()
        return None if home.dead else answers

    return play(main())


# --- H2: the journal


@pytest.mark.requirement("H2")
def test_a_mutating_call_is_recorded_before_it_runs_and_its_result_after(tmp_path):
    home = Home(tmp_path, entry([step("act", n=1)]))
    seen = []

    async def run(args, key):
        seen.append(home.rows("SELECT status, result_text, idempotency_key = ? FROM tool_calls", key))
        return "done"

    home.tools = [Tool(name="act", run=run, mutating=True)]
    say(home)
    assert seen == [[("issued", None, 1)]]
    assert home.rows(CALLS) == [("act", "completed", "done")]


@pytest.mark.requirement("H2")
def test_a_call_that_raises_is_recorded_as_failed_and_reported_to_the_model(tmp_path):
    home = Home(tmp_path, entry([step("act")]))

    async def run(args, key):
        raise ValueError("no such account")

    home.tools = [Tool(name="act", run=run, mutating=True)]
    assert say(home) == ["Done. [error: ValueError: no such account]"]
    assert home.rows(CALLS) == [("act", "failed", "error: ValueError: no such account")]


@pytest.mark.requirement("H2")
def test_a_call_that_failed_may_be_made_again(tmp_path):
    home = Home(tmp_path, entry([step("act", n=1)], [step("act", n=1)]))
    tries = []

    async def run(args, key):
        tries.append(key)
        if len(tries) == 1:
            raise ValueError("not now")
        return "done"

    home.tools = [Tool(name="act", run=run, mutating=True)]
    assert say(home) == ["Done. [error: ValueError: not now; done]"]
    assert tries[0] == tries[1]


@pytest.mark.requirement("H2")
def test_the_key_depends_only_on_session_tool_and_arguments():
    key = idempotency_key("s", "pay", {"a": 1, "b": {"x": [1, 2], "y": None}})
    assert key == idempotency_key("s", "pay", {"b": {"y": None, "x": [1, 2]}, "a": 1})
    others = [
        ("t", "pay", {"a": 1, "b": {"x": [1, 2], "y": None}}),
        ("s", "buy", {"a": 1, "b": {"x": [1, 2], "y": None}}),
        ("s", "pay", {"a": 2, "b": {"x": [1, 2], "y": None}}),
        ("s", "pay", {"a": "1", "b": {"x": [1, 2], "y": None}}),
        ("s", "pay", {"a": True, "b": {"x": [1, 2], "y": None}}),
        ("s", "pay", {"a": 1, "b": {"x": [2, 1], "y": None}}),
        ("s", "pay", {}),
    ]
    assert len({key, *(idempotency_key(*other) for other in others)}) == 1 + len(others)
    assert len(key) == hashlib.blake2b(digest_size=16).digest_size * 2


@pytest.mark.requirement("H2")
@pytest.mark.parametrize(
    ("own", "times"), [(None, 1), (lambda args, call_id: call_id, 2), (lambda args, call_id: args["to"], 1)]
)
def test_a_tool_may_define_which_calls_are_equal(tmp_path, own, times):
    home = Home(tmp_path, entry([step("act", to="a"), step("act", to="a")]))
    home.tools = [home.acting(key=own)]
    say(home)
    assert len(home.effects) == times


@pytest.mark.requirement("H2")
def test_a_custom_key_equates_calls_with_different_arguments(tmp_path):
    home = Home(
        tmp_path,
        entry(
            [step("act", to="a", memo="x")], [step("act", to="a", memo="y")], [step("act", to="b", memo="x")]
        ),
    )
    home.tools = [home.acting(key=lambda args, _call_id: args["to"])]
    assert say(home) == ["Done. [effect 1; effect 1; effect 2]"]


# --- H3: replay


@pytest.mark.requirement("H3")
def test_a_completed_call_is_replayed_exactly_in_a_later_turn_request_and_life(tmp_path):
    again = entry([step("act", n=1)], [step("act", n=2)])
    home = Home(tmp_path, entry([step("act", n=1)], [step("act", n=1)]), again)
    home.tools = [home.acting()]
    assert say(home) == ["Done. [effect 1; effect 1]"]
    assert say(home, "r2") == ["Done. [effect 1; effect 2]"]
    assert len(home.effects) == 2


@pytest.mark.requirement("H3")
def test_a_session_does_not_replay_the_calls_of_another(tmp_path):
    effects = 0
    for session in ("one", "other"):
        home = Home(tmp_path, entry([step("act", n=1)]), session=session)
        home.tools = [home.acting()]
        say(home)
        effects += len(home.effects)
    assert effects == 2


@pytest.mark.requirement("H3")
def test_a_repeated_read_runs_again(tmp_path):
    home = Home(tmp_path, entry([step("look")], [step("look")]))
    looked = []

    async def run(args, key):
        looked.append(key)
        return f"look {len(looked)}"

    home.tools = [Tool(name="look", run=run)]
    assert say(home) == ["Done. [look 1; look 2]"]


# --- H4: pending calls


def dying_once(home, *, after: bool, **options):
    """A tool whose first run kills the process, before or after it has acted."""
    deaths = []

    async def run(args, key):
        if not deaths and not after:
            deaths.append(key)
            home.die()
        home.effects.append(key)
        if not deaths:
            deaths.append(key)
            home.die()
        return f"effect {len(home.effects)}"

    async def verify(args, key):
        await asyncio.sleep(0)
        return f"verified {key in home.effects}" if key in home.effects else None

    if options.pop("verifiable", False):
        options["verify"] = verify
    return Tool(name="act", run=run, **options)


def hanging_once(home, *, after: bool, **options):
    """A tool whose first run never returns, before or after it has acted."""
    tries = []

    async def run(args, key):
        tries.append(key)
        if len(tries) > 1 or after:
            home.effects.append(key)
        if len(tries) == 1:
            await asyncio.Event().wait()
        return f"effect {len(home.effects)}"

    async def verify(args, key):
        return f"verified {key in home.effects}" if key in home.effects else None

    if options.pop("verifiable", False):
        options["verify"] = verify
    return Tool(name="act", run=run, deadline=30.0, **options)


# (options of the tool, it had acted, results, effects, open questions)
CRASHED = [
    ({}, False, "effect 1", 1, 0),
    ({}, True, "effect 2", 2, 0),  # it only reads: repeating is harmless
    ({"mutating": True, "repeatable": True}, False, "effect 1", 1, 0),
    ({"mutating": True, "repeatable": True}, True, "effect 2", 2, 0),  # under one key: see below
    ({"mutating": True, "verifiable": True}, False, "effect 1", 1, 0),
    ({"mutating": True, "verifiable": True}, True, "verified True", 1, 0),
    ({"mutating": True, "when_unknown": "fail"}, False, UNKNOWN_OUTCOME, 0, 0),
    ({"mutating": True, "when_unknown": "fail"}, True, UNKNOWN_OUTCOME, 1, 0),
    ({"mutating": True, "when_unknown": "ask"}, False, UNKNOWN_OUTCOME, 0, 1),
    ({"mutating": True, "when_unknown": "ask"}, True, UNKNOWN_OUTCOME, 1, 1),
    ({"mutating": True}, True, UNKNOWN_OUTCOME, 1, 1),  # asking the user is the default
]


@pytest.mark.requirement("H4")
@pytest.mark.parametrize(("options", "after", "result", "effects", "questions"), CRASHED)
def test_an_interrupted_call_is_settled_as_its_tool_allows(
    tmp_path, options, after, result, effects, questions
):
    home = Home(tmp_path, entry([step("act", n=1)]))
    home.tools = [dying_once(home, after=after, **options)]
    assert say(home) is None
    pending = [("act", "issued", None)] if options.get("mutating") else []
    assert home.rows(CALLS) == pending
    assert say(home) == [f"Done. [{result}]"]
    assert len(home.effects) == effects
    assert len(set(home.effects)) <= 1  # every attempt has the same key
    assert [(call.tool, call.args) for call in home.status.open_questions] == [("act", {"n": 1})] * questions
    assert len(home.asked) == 2  # once for the turn, once for the answer


@pytest.mark.requirement("H4")
@pytest.mark.parametrize(("options", "after", "result", "effects", "questions"), CRASHED[2:])
def test_a_call_that_timed_out_is_settled_in_the_same_way(
    tmp_path, options, after, result, effects, questions
):
    home = Home(tmp_path, entry([step("act", n=1)]))
    home.tools = [hanging_once(home, after=after, **options)]
    assert say(home) == [f"Done. [{result}]"]
    assert len(home.effects) == effects
    assert len(set(home.effects)) <= 1
    assert len(home.status.open_questions) == questions


@pytest.mark.requirement("H4")
def test_a_read_that_times_out_is_a_failure_and_not_an_open_question(tmp_path):
    home = Home(tmp_path, entry([step("act")]), tool_deadline=7.0)

    async def run(args, key):
        await asyncio.Event().wait()

    home.tools = [Tool(name="act", run=run)]
    assert say(home) == ["Done. [error: no answer within 7.0 s]"]
    assert home.status.open_questions == ()


@pytest.mark.requirement("H4")
def test_an_open_question_is_reported_and_stays_open_in_later_lives(tmp_path):
    home = Home(tmp_path, entry([step("act", n=1)]), entry())
    home.tools = [dying_once(home, after=True, mutating=True)]
    say(home)
    say(home)
    assert home.names_told().count("surfaced") == 1
    say(home, "r2")
    assert [call.args for call in home.status.open_questions] == [{"n": 1}]
    assert home.names_told().count("surfaced") == 1


@pytest.mark.requirement("H4")
def test_an_open_question_left_unreported_by_a_crash_is_reported_by_the_next_life(tmp_path, monkeypatch):
    # BUG found by `chaoskit run cadence-periodic --store files --plan sample --runs 500 --seed 1`.
    home = Home(tmp_path, entry([step("act", n=1)]))
    home.tools = [dying_once(home, after=True, mutating=True)]
    say(home)
    points = Points(monkeypatch)
    points.at = lambda *at: home.die() if at == ("call.finish", "after") else None
    say(home)
    assert "surfaced" not in home.names_told()
    points.at = lambda *_: None
    say(home)
    assert home.names_told().count("surfaced") == 1


@pytest.mark.requirement("H4")
def test_of_two_equal_calls_the_second_does_not_repeat_the_first_whose_outcome_is_unknown(tmp_path):
    # BUG found by this test: the second had no record of its own, and ran.
    home = Home(tmp_path, entry([step("act", n=1), step("act", n=1)]))
    home.tools = [dying_once(home, after=True, mutating=True)]
    assert say(home) is None
    say(home)
    assert len(home.effects) == 1
    assert home.results == [UNKNOWN_OUTCOME, UNKNOWN_OUTCOME]


@pytest.mark.requirement("H4")
def test_of_two_equal_calls_the_second_waits_until_the_first_is_verified(tmp_path):
    # BUG found by this test: a call was settled without the lock that equal calls wait for.
    home = Home(tmp_path, entry([step("act", n=1), step("act", n=1)]))
    home.tools = [dying_once(home, after=True, mutating=True, verifiable=True)]
    assert say(home) is None
    say(home)
    assert len(home.effects) == 1
    assert home.results == ["verified True", "verified True"]


@pytest.mark.requirement("H4")
@pytest.mark.parametrize("trouble", ["raises", "hangs"])
def test_a_verify_that_gives_no_answer_leaves_the_outcome_unknown(tmp_path, trouble):
    # BUG found by this test: it ended the request, in this life and in every later one.
    home = Home(tmp_path, entry([step("act", n=1)]), tool_deadline=30.0)
    tool = dying_once(home, after=True, mutating=True)

    async def verify(args, key):
        if trouble == "raises":
            raise ConnectionError("no route")
        await asyncio.Event().wait()

    home.tools = [Tool(name="act", run=tool.run, mutating=True, verify=verify)]
    assert say(home) is None

    async def main():
        return await asyncio.wait_for(asyncio.create_task(again()), 1000)

    async def again():
        async with home.life() as agent:
            return await agent.say("go", request_id="r"), await agent.status()

    answer, status = play(main())
    assert answer == f"Done. [{UNKNOWN_OUTCOME}]"
    assert len(status.open_questions) == 1
    assert len(home.effects) == 1


@pytest.mark.requirement("H4")
def test_a_pending_call_whose_tool_no_longer_exists_is_an_open_question(tmp_path):
    # BUG found by this test: it stayed `issued` forever, and the user was never asked.
    home = Home(tmp_path, entry([step("act", n=1)]))
    home.tools = [dying_once(home, after=True, mutating=True)]
    assert say(home) is None
    home.tools = []
    say(home)
    assert [call.args for call in home.status.open_questions] == [{"n": 1}]


# --- parallel calls


@pytest.mark.requirement("H2")
def test_results_follow_the_order_of_the_calls_whichever_finished_first(tmp_path):
    home = Home(tmp_path, entry([step("act", wait=3), step("act", wait=1), step("act", wait=2)]))
    done = []

    async def run(args, key):
        await asyncio.sleep(args["wait"])
        done.append(args["wait"])
        return f"waited {args['wait']}"

    home.tools = [Tool(name="act", run=run, mutating=True)]
    say(home)
    assert done == [1, 2, 3]
    assert home.results == ["waited 3", "waited 1", "waited 2"]


@pytest.mark.requirement("H3")
@pytest.mark.parametrize("cadence", ["turn", "call"])
def test_identical_calls_of_one_turn_run_once_and_both_are_answered(tmp_path, cadence):
    home = Home(tmp_path, entry([step("act", n=1), step("act", n=1), step("act", n=2)]))
    home.options = type(home.options)(cadence=type(home.options.cadence)(cadence))

    async def run(args, key):
        await asyncio.sleep(1)
        home.effects.append(args)
        return f"effect {args['n']}"

    home.tools = [Tool(name="act", run=run, mutating=True)]
    say(home)
    assert home.effects == [{"n": 1}, {"n": 2}]
    assert home.results == ["effect 1", "effect 1", "effect 2"]


@pytest.mark.requirement("H2")
def test_parallel_calls_may_raise_hang_or_return_a_megabyte(tmp_path):
    async def fail(args, key):
        raise RuntimeError("broken")

    async def hang(args, key):
        await asyncio.Event().wait()

    async def big(args, key):
        return "x" * 2**20

    home = Home(tmp_path, entry([step("fail"), step("hang"), step("big"), step("none")]))
    home.tools = [
        Tool(name="fail", run=fail),
        Tool(name="hang", run=hang, deadline=5.0),
        Tool(name="big", run=big),
    ]
    say(home)
    assert home.results == [
        "error: RuntimeError: broken",
        "error: no answer within 5.0 s",
        "x" * 2**20,
        "error: there is no tool 'none'",
    ]
    errors = home.rows("SELECT is_error FROM messages WHERE role = 'tool' ORDER BY id")
    assert [row[0] for row in errors] == [1, 1, 0, 1]


@pytest.mark.requirement("H2")
def test_parallel_calls_are_all_recorded_by_a_slow_database(tmp_path):
    # BUG found by this test: two tasks caught up at once, and wrote things twice or not at all.
    count = 8
    home = Home(tmp_path, entry([step("act", n=n) for n in range(count)]))
    home.tools = [home.acting()]
    told = []

    async def main():
        agent = await Agent.open(
            Location(tmp_path),
            session="s",
            provider=Watched(home, None),
            toolbox=Toolbox(home.tools),
            runtime=Runtime(
                new_id=ids_from("x"), tell=lambda name, facts: told.append((name, facts.get("call")))
            ),
        )
        try:
            await agent.say("go", request_id="r")
        finally:
            await agent.close()

    asyncio.run(main())
    assert len(home.effects) == count
    assert [row[1] for row in home.rows(CALLS)] == ["completed"] * count
    finished = [call for name, call in told if name == "finished"]
    assert sorted(finished) == sorted({*finished})
    assert len(finished) == count


def test_the_agent_does_not_catch_process_death():
    assert not issubclass(Death, Exception)
