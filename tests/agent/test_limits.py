"""Limits of a request in tokens and turns, and what happens to an abandoned one."""

import pytest

from reference_agent.messages import Message
from reference_agent.turn import hooks
from reference_agent.turn.cadence import Cadence
from reference_agent.turn.ending import GaveUp
from tests.agent.helpers import TURNS, TWO_TURNS, Home, entry, events, on, play, say, step


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
def test_a_request_has_a_maximum_number_of_turns(tmp_path, turns, enough):
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
    for _ in range(2):  # nor does a retry help
        with pytest.raises(GaveUp, match="no answer within 5 turns"):
            say(home)
    assert len(home.asked) == 5


@pytest.mark.requirement("H8")
def test_a_failing_disk_gives_a_request_no_more_turns(tmp_path):
    # BUG found by `agent --plan sample --fault kill,disk,power --seed 101`: only durable turns were counted.
    home = Home(tmp_path, TURNS, max_turns=1)
    home.tools = [home.acting()]
    home.on_ask = home.fill_disk

    async def main():
        async with home.life() as agent:
            for _ in range(2):
                with pytest.raises(GaveUp, match="no answer within 1 turns"):
                    await agent.say("go", request_id="r")

    play(main())
    assert len(home.asked) == 1


@pytest.mark.requirement("K2")
def test_an_abandoned_request_leaves_no_decisions_to_the_next_one(tmp_path):
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
def test_an_abandoned_request_that_is_repeated_gets_its_own_answer(tmp_path):
    # BUG found by this test: it got the answer to another request.
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
def test_two_calls_with_the_same_id_from_the_model_are_both_run(tmp_path):
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
