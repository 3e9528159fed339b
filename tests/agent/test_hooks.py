"""Hooks: which are called, whose answer counts, and that none can harm the agent."""

import asyncio
import functools
import io
import itertools
import json
import re
from contextlib import asynccontextmanager

import msgspec
import pytest

from reference_agent.logs import structured as logs
from reference_agent.turn.hooks import (
    AgentStart,
    AgentStop,
    Allow,
    AppendContext,
    BadHook,
    Continue,
    Deny,
    HookRegistry,
    ModifyArgs,
    PostToolUse,
    PostToolUseFailure,
    PreToolUse,
    Stop,
    SystemMessage,
    TurnEnd,
    TurnStart,
)

PRE = PreToolUse("pay", {"sum": 1}, "call_1")
ELSEWHERE = [
    AgentStart("do it"),
    TurnStart(1),
    TurnEnd(1),
    PostToolUse("pay", {"sum": 1}, "paid", "call_1"),
    PostToolUseFailure("pay", {"sum": 1}, "no such account", "call_1"),
    AgentStop("done"),
]
EVERY = [PRE, *ELSEWHERE]
KINDS = [type(event) for event in EVERY]


def always(answer):
    return lambda event: answer


def decided(event, *handlers, **options):
    """The combined decision of handlers, in this order."""
    registry = HookRegistry(**options)
    for handler in handlers:
        registry.register(KINDS, handler)
    return asyncio.run(registry.fire(event))


def warned(event, *handlers, **options):
    """Their decision, and what is logged about it."""
    said = io.StringIO()
    with logs.written_to(said, level="warning"):
        decision = decided(event, *handlers, **options)
    return decision, [json.loads(line) for line in said.getvalue().splitlines()]


# ---- whose answer counts: every combination, against an independent model ---------------

BEFORE_A_TOOL = [None, Allow(), ModifyArgs({"a": 1}), ModifyArgs({"b": 2}), Deny("no"), Deny("never")]
IN_THE_LOOP = [
    None,
    Continue(),
    AppendContext("c1"),
    AppendContext("c2"),
    SystemMessage("s1"),
    SystemMessage("s2"),
    Stop("enough"),
    Stop("halt"),
]
SENSELESS = {True: [Stop("x"), "yes"], False: [Deny("x"), 5]}
STRENGTH = {
    "Deny": 3,
    "ModifyArgs": 2,
    "Allow": 1,
    "Stop": 4,
    "SystemMessage": 3,
    "AppendContext": 2,
    "Continue": 1,
}


def as_json(decision):
    return msgspec.to_builtins(decision)


def modelled(answers, neutral):
    """The rules over plain data: the greatest strength wins, texts add up, the last arguments stay."""
    data = [as_json(answer) for answer in answers if answer is not None]
    if not data:
        return {"type": neutral}
    top = max(STRENGTH[each["type"]] for each in data)
    best = [each for each in data if STRENGTH[each["type"]] == top]
    merged = dict(best[0])
    for each in best[1:]:
        for field, value in each.items():
            if field in ("reason", "text"):
                merged[field] += "\n" + value
            elif field == "args":
                merged[field] = value
    return merged


def combinations(choices, length=3):
    return itertools.chain.from_iterable(itertools.product(choices, repeat=n) for n in range(length + 1))


@pytest.mark.requirement("K8")
def test_before_a_tool_deny_beats_modified_arguments_beat_allow():
    """E2, E3: all answers of up to three handlers, in every order."""
    for answers in combinations(BEFORE_A_TOOL):
        assert as_json(decided(PRE, *map(always, answers))) == modelled(answers, "Allow"), answers


@pytest.mark.requirement("K8")
@pytest.mark.parametrize("event", ELSEWHERE, ids=lambda event: type(event).__name__)
def test_elsewhere_stop_beats_system_message_beats_context_beats_continue(event):
    """E2, E3"""
    for answers in combinations(IN_THE_LOOP):
        expected = modelled(answers, "Continue")
        assert as_json(decided(event, *map(always, answers))) == expected, answers


@pytest.mark.requirement("K8")
@pytest.mark.parametrize("event", EVERY, ids=lambda event: type(event).__name__)
def test_invalid_answers_change_nothing_in_any_combination(event):
    """E4"""
    before_a_tool = isinstance(event, PreToolUse)
    sensible = (BEFORE_A_TOOL if before_a_tool else IN_THE_LOOP)[1::2]
    for answers in combinations([*sensible, *SENSELESS[before_a_tool]], length=2):
        kept = [answer for answer in answers if answer not in SENSELESS[before_a_tool]]
        decision = as_json(decided(event, *map(always, answers)))
        assert decision == modelled(kept, "Allow" if before_a_tool else "Continue"), answers


def test_each_handler_sees_the_arguments_from_the_previous_one():
    """E3"""
    seen = []

    def doubling(event):
        seen.append(event.args)
        return ModifyArgs({"sum": event.args["sum"] * 2})

    assert decided(PRE, doubling, always(Allow()), doubling, doubling) == ModifyArgs({"sum": 8})
    assert seen == [{"sum": 1}, {"sum": 2}, {"sum": 4}]
    assert PRE.args == {"sum": 1}


# ---- which are called --------------------------------------------------------------------------------


@pytest.mark.requirement("K8")
def test_a_handler_is_called_for_its_kinds_of_event_and_no_others():
    """E1"""
    for kind in KINDS:
        seen = []
        registry = HookRegistry()
        registry.register(kind, seen.append)

        async def fire_all(registry=registry):
            for event in EVERY:
                await registry.fire(event)

        asyncio.run(fire_all())
        assert seen == [event for event in EVERY if type(event) is kind]


def test_all_handlers_are_called_in_order_even_after_a_deny():
    """E1"""
    order = []

    def handler(number, answer):
        def handle(event):
            order.append(number)
            return answer

        return handle

    handlers = [handler(1, Deny("no")), handler(2, None), handler(3, Allow())]
    assert decided(PRE, *handlers) == Deny("no")
    assert order == [1, 2, 3]


def test_plain_and_async_handlers_are_equivalent():
    async def later(event):
        await asyncio.sleep(0)
        return Deny("later")

    class Policy:
        async def __call__(self, event, *, reason="policy"):
            return Deny(reason)

    bound = functools.partial(Policy(), reason="bound")
    assert decided(PRE, later, always(Deny("now")), Policy(), bound) == Deny("later\nnow\npolicy\nbound")


@pytest.mark.requirement("K8")
@pytest.mark.parametrize(
    ("tool", "matched"),
    [
        (None, {"pay", "repay", "refund", "pay2"}),
        ("pay", {"pay"}),
        ("pay|refund", {"pay", "refund"}),
        (".*pay", {"pay", "repay"}),
        (r"pay\d?", {"pay", "pay2"}),
        ("PAY", set()),
        ("(?i)PAY", {"pay"}),
        ("", set()),
    ],
)
@pytest.mark.parametrize("event", [PRE, *ELSEWHERE[3:5]], ids=lambda event: type(event).__name__)
def test_a_pattern_must_match_the_whole_tool_name(tool, matched, event):
    """E6"""
    seen = set()
    registry = HookRegistry()
    registry.register(type(event), lambda event: seen.add(event.tool_name), tool=tool)
    for name in ("pay", "repay", "refund", "pay2"):
        asyncio.run(registry.fire(msgspec.structs.replace(event, tool_name=name)))
    assert seen == matched


@pytest.mark.parametrize(
    ("kinds", "handler", "tool", "complaint"),
    [
        ([PreToolUse], print, "pay(", "tool='pay(' is not a regular expression: missing ), "),
        ([PreToolUse], print, 5, "tool=5 is not a regular expression: "),
        ([PreToolUse, TurnStart], print, "pay", "tool='pay' was given for TurnStart, which does not concern"),
        ([], print, None, "expected at least one kind of event, found none"),
        (["PreToolUse"], print, None, "expected kinds of event (PreToolUse, AgentStart, "),
        ([Deny], print, None, "found <class 'reference_agent.turn.hooks.Deny'>"),
        (Deny, print, None, "found <class 'reference_agent.turn.hooks.Deny'>"),
        ([PreToolUse], "print", None, "expected a callable handler, found 'print'"),
    ],
)
def test_an_invalid_registration_is_refused(kinds, handler, tool, complaint):
    """E6"""
    registry = HookRegistry()
    with pytest.raises(BadHook, match=re.escape(complaint)):
        registry.register(kinds, handler, tool=tool)
    assert asyncio.run(registry.fire(PRE)) == Allow()


# ---- no hook can harm the agent ------------------------------------------------------------------


def raising(error):
    def handler(event):
        raise error

    return handler


async def cancelled_inside(event):
    """Awaits something that was cancelled, although the agent was not."""
    forgotten = asyncio.get_running_loop().create_future()
    forgotten.cancel()
    await forgotten


@pytest.mark.requirement("K8")
@pytest.mark.parametrize("event", EVERY, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (raising(ValueError("broken")), "ValueError: broken"),
        (raising(TimeoutError()), "TimeoutError: "),
        (raising(RecursionError("deep")), "RecursionError: deep"),
        (cancelled_inside, "CancelledError: "),
        (lambda: None, "TypeError: "),
    ],
)
def test_a_hook_that_fails_is_logged_and_skipped(event, handler, error):
    """E4: the hooks before and after it still count."""
    answer = Deny("no") if event is PRE else Stop("no")
    decision, log = warned(event, always(answer), handler, always(answer))
    assert decision == type(answer)("no\nno")
    [line] = log
    assert (line["level"], line["event"]) == ("warning", "hook.skipped")
    assert line["on"] == type(event).__name__
    assert line["hook"] == handler.__qualname__
    assert line["error"].startswith(error)


@pytest.mark.requirement("K8")
@pytest.mark.parametrize(
    ("event", "answer", "complaint"),
    [
        (PRE, Stop("x"), "expected Deny, ModifyArgs, Allow or None, found Stop(reason='x')"),
        (PRE, Continue(), "expected Deny, ModifyArgs, Allow or None, found Continue()"),
        (PRE, True, "expected Deny, ModifyArgs, Allow or None, found True"),
        (PRE, Deny, "expected Deny, ModifyArgs, Allow or None, found <class"),
        (PRE, Deny(5), "Expected `str`, got `int`"),
        (PRE, ModifyArgs([1]), "Expected `object`, got `array`"),
        (PRE, ModifyArgs({"a": object()}), "Object of type object is not JSON serializable"),
        (PRE, ModifyArgs({"a": float("nan")}), "Out of range float values are not JSON compliant"),
        (TurnEnd(1), Allow(), "expected Stop, SystemMessage, AppendContext, Continue or None, found Al"),
        (TurnEnd(1), Deny("x"), "expected Stop, SystemMessage, AppendContext, Continue or None, found"),
        (TurnEnd(1), SystemMessage(None), "Expected `str`, got `null`"),
    ],
)
def test_an_invalid_answer_is_logged_and_skipped(event, answer, complaint):
    """E4"""
    neutral = Allow() if event is PRE else Continue()
    decision, [line] = warned(event, always(answer))
    assert decision == neutral
    assert complaint in line["error"]
    assert line["hook"] == "always.<locals>.<lambda>"


def test_a_valid_answer_is_not_logged():
    """E4, the other direction."""
    assert warned(PRE, always(Deny("no"))) == (Deny("no"), [])
    assert warned(TurnEnd(1), always(None), always(Continue())) == (Continue(), [])


async def hanging(event):
    await asyncio.get_running_loop().create_future()


def test_a_hook_that_hangs_is_cut_off_at_the_time_limit():
    """E4: the limit expires at once, so the test waits for nothing."""
    limit = functools.partial(asyncio.timeout, 0)
    decision, [line] = warned(PRE, hanging, always(Deny("no")), time_limit=limit)
    assert decision == Deny("no")
    assert (line["hook"], line["error"]) == ("hanging", "TimeoutError: ")


def test_each_hook_call_has_its_own_time_limit():
    limits = []

    @asynccontextmanager
    async def limit():
        limits.append("begun")
        yield
        limits.append("ended")

    decided(PRE, always(None), always(Allow()), time_limit=limit)
    assert limits == ["begun", "ended"] * 2


def test_without_a_limit_a_hook_may_take_its_time_and_the_agent_can_still_be_cancelled():
    """Cancelling the agent is not the hook's error: it must not be skipped."""

    async def story():
        registry = HookRegistry()
        registry.register(PreToolUse, hanging)
        firing = asyncio.create_task(registry.fire(PRE))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not firing.done()
        firing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await firing

    asyncio.run(story())


class Died(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt, Died])
def test_a_process_exit_in_a_hook_is_not_skipped(end):
    with pytest.raises(end):
        decided(PRE, raising(end()))


def test_a_handler_changes_nothing_except_through_its_answer():
    """E5"""
    event = PreToolUse("pay", {"to": {"name": "x"}}, "call_1")
    kept = []

    def meddling(given):
        given.args["to"]["name"] = "thief"
        given.args["sum"] = 10**6

    def keeping(given):
        kept.append({"sum": [5]})
        return ModifyArgs(kept[0])

    seen = []
    decision = decided(event, meddling, lambda given: seen.append(given.args), keeping)
    kept[0]["sum"].append("later")
    assert seen == [{"to": {"name": "x"}}]
    assert event.args == {"to": {"name": "x"}}
    assert decision == ModifyArgs({"sum": [5]})


def test_modified_arguments_are_converted_to_what_a_store_returns():
    """E5"""
    decision = decided(PRE, always(ModifyArgs({"pair": (1, 2), "big": 2**70, "text": "ü\ud800"})))
    assert decision.args == {"pair": [1, 2], "big": 2**70, "text": "ü\ud800"}


def test_modified_arguments_are_logged_at_debug_without_secrets():
    said = io.StringIO()
    with logs.written_to(said, level="debug"):
        decided(PRE, always(ModifyArgs({"sum": 2, "api_key": "k"})))
    [line] = [json.loads(line) for line in said.getvalue().splitlines()]
    assert (line["level"], line["event"], line["tool"]) == ("debug", "hook.modified_args", "pay")
    assert line["args"] == {"sum": 2, "api_key": "[redacted]"}


@pytest.mark.requirement("K8")
def test_without_hooks_everything_is_allowed():
    assert decided(PRE) == Allow()
    assert {decided(event) for event in ELSEWHERE[:3]} == {Continue()}


@pytest.mark.parametrize("event", EVERY, ids=lambda event: type(event).__name__)
def test_events_are_plain_data(event):
    assert msgspec.json.decode(msgspec.json.encode(event), type=type(event)) == event
    with pytest.raises(AttributeError):
        setattr(event, type(event).__struct_fields__[0], "changed")
