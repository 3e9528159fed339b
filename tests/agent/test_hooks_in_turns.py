"""What hooks decide during a request, also across a crash."""

import pytest

from reference_agent.turn import hooks
from reference_agent.turn.ending import GaveUp
from reference_agent.turn.tools import Tool
from tests.agent.helpers import Home, entry, on, say, step


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
def test_a_tool_runs_with_a_hooks_arguments_even_after_a_crash(tmp_path):
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
    # BUG found by this test: what hooks answered after a tool was discarded.
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
def test_a_hooks_context_reaches_the_model_once_and_is_not_stored(tmp_path, kind, decision):
    # BUG found by this test: what hooks answered after a tool was discarded.
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
