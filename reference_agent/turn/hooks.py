"""Hooks: the user's own code at seven moments of the agent's loop, and what it may decide there.

| event              | when                                     | answered with                      |
|--------------------|------------------------------------------|------------------------------------|
| AgentStart         | before the first turn of a request       | (1)                                |
| TurnStart, TurnEnd | around each turn                         | (1)                                |
| PreToolUse         | before a tool runs                       | Deny, ModifyArgs, Allow            |
| PostToolUse        | after a tool has answered                | (1)                                |
| PostToolUseFailure | after it has raised or ran out of time   | (1)                                |
| AgentStop          | after the answer                         | (1)                                |

(1) Stop, SystemMessage, AppendContext, Continue. What each does: see its class.

    hooks = HookRegistry()
    hooks.register([PreToolUse], no_large_payments, tool="pay|refund")
    match await hooks.fire(PreToolUse("pay", {"sum": 5}, "call_1")): ...

Guarantees, cited as E1... from the tests:

E1  Handlers are called one after the other, in the order of registration, each once per event that
    it matches: also after a Deny or a Stop, so that one who only watches sees everything.
E2  The strongest decision counts: Deny > ModifyArgs > Allow before a tool, elsewhere
    Stop > SystemMessage > AppendContext > Continue. No answer (None) is the weakest of them.
E3  Of several that are equally strong, texts are joined in the order of registration, a line each.
    Several ModifyArgs form a chain: each later handler sees the arguments that the earlier one
    made, and the last one's arguments count.
E4  A handler that raises, overruns the time limit, or gives an answer that makes no sense for the
    event is logged as a warning and counts as if it had not answered.
E5  A handler decides by its answer alone: it gets a copy of the arguments, to do with as it likes.
    Arguments that it answers are taken as the plain JSON values that a store will give back.
E6  A tool's name is matched by a regular expression as a whole: "pay" is not "repay". A registration
    that could never match, or whose expression is none, is refused when it is made.

What it cannot do: cut off a handler that blocks the thread (a plain function that hangs) or one that
catches its own cancellation. SystemExit and KeyboardInterrupt pass through: they mean the process.

A hook is no part of the durable state. After a crash an event may be fired again, and a handler may
answer differently: what a PreToolUse led to must be durable before the tool runs, and then be
carried on without asking again.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeAlias, get_args, overload

import msgspec

from reference_agent.logs.structured import get_logger

log = get_logger(__name__)
Args = dict[str, Any]


class AgentStart(msgspec.Struct, frozen=True, tag=True):
    task: str


class TurnStart(msgspec.Struct, frozen=True, tag=True):
    turn: int


class TurnEnd(msgspec.Struct, frozen=True, tag=True):
    turn: int


class PreToolUse(msgspec.Struct, frozen=True, tag=True):
    tool_name: str
    args: Args
    tool_use_id: str


class PostToolUse(msgspec.Struct, frozen=True, tag=True):
    tool_name: str
    args: Args
    result: str
    tool_use_id: str


class PostToolUseFailure(msgspec.Struct, frozen=True, tag=True):
    tool_name: str
    args: Args
    error: str
    tool_use_id: str


class AgentStop(msgspec.Struct, frozen=True, tag=True):
    result: str


class Deny(msgspec.Struct, frozen=True, tag=True):
    """The tool is not run; the model gets the reason as its result."""

    reason: str


class ModifyArgs(msgspec.Struct, frozen=True, tag=True):
    """The tool is run with these arguments instead."""

    args: Args


class Allow(msgspec.Struct, frozen=True, tag=True):
    """The tool is run."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """The agent ends the request here."""

    reason: str


class SystemMessage(msgspec.Struct, frozen=True, tag=True):
    """The model is told this in the system's name, once; never persisted, as no system prompt is."""

    text: str


class AppendContext(msgspec.Struct, frozen=True, tag=True):
    """The model is shown this beside the conversation."""

    text: str


class Continue(msgspec.Struct, frozen=True, tag=True):
    """Nothing changes."""


ToolEvent: TypeAlias = PreToolUse | PostToolUse | PostToolUseFailure
LoopEvent: TypeAlias = AgentStart | TurnStart | TurnEnd | PostToolUse | PostToolUseFailure | AgentStop
Event: TypeAlias = PreToolUse | LoopEvent
ToolDecision: TypeAlias = Deny | ModifyArgs | Allow
LoopDecision: TypeAlias = Stop | SystemMessage | AppendContext | Continue
Decision: TypeAlias = ToolDecision | LoopDecision

Kind: TypeAlias = type[Event]
Answer: TypeAlias = Decision | None
Handler: TypeAlias = Callable[[Any], Answer | Awaitable[Answer]]
TimeLimit: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]

EVENTS: tuple[Kind, ...] = get_args(Event)
ABOUT_TOOLS: tuple[Kind, ...] = get_args(ToolEvent)

# The kinds of decision from the strongest to the weakest (E2): the order of the types above.
BEFORE_A_TOOL: tuple[type[Decision], ...] = get_args(ToolDecision)
ELSEWHERE: tuple[type[Decision], ...] = get_args(LoopDecision)


class BadHook(ValueError):
    """A registration that makes no sense; its text says why."""


class Hook(msgspec.Struct, frozen=True):
    kinds: tuple[Kind, ...]
    handler: Handler
    tool: re.Pattern[str] | None

    def matches(self, event: Event) -> bool:
        if not isinstance(event, self.kinds):
            return False
        if self.tool is None or not isinstance(event, ToolEvent):
            return True
        return self.tool.fullmatch(event.tool_name) is not None

    @property
    def name(self) -> str:
        return getattr(self.handler, "__qualname__", None) or type(self.handler).__qualname__


class HookRegistry:
    """`time_limit` makes the limit of one call: `lambda: asyncio.timeout(5)`, or a test's own."""

    def __init__(self, *, time_limit: TimeLimit = nullcontext) -> None:
        self._hooks: list[Hook] = []
        self._time_limit = time_limit

    def register(self, kinds: Kind | Iterable[Kind], handler: Handler, *, tool: str | None = None) -> None:
        """Have the handler called for these kinds of event; `tool`: only where its name matches."""
        wanted = (kinds,) if isinstance(kinds, type) else tuple(kinds)
        _check_kinds(wanted, tool)
        if not callable(handler):
            raise BadHook(f"expected a handler that can be called, found {handler!r}")
        self._hooks.append(Hook(wanted, handler, _pattern(tool)))

    @overload
    async def fire(self, event: PreToolUse) -> ToolDecision: ...
    @overload
    async def fire(self, event: LoopEvent) -> LoopDecision: ...
    async def fire(self, event: Event) -> Decision:
        """Ask everyone whom it concerns; never raises for what a handler does (E4)."""
        answers: list[Decision] = []
        for hook in self._hooks:
            if hook.matches(event):
                answer = await self._ask(hook, event)
                event = _as_changed_by(hook, answer, event)
                if answer is not None:
                    answers.append(answer)
        return strongest(event, answers)

    async def _ask(self, hook: Hook, event: Event) -> Answer:
        try:
            async with self._time_limit():
                answer = hook.handler(copy.deepcopy(event))
                if inspect.isawaitable(answer):
                    answer = await answer
            return _sensible(event, answer)
        except asyncio.CancelledError as error:
            if _is_being_cancelled():
                raise
            _skip(hook, event, error)  # the handler's own: something it waited for was cancelled
        except Exception as error:  # noqa: BLE001 - E4: whatever it is, it is not the agent's
            _skip(hook, event, error)
        return None


class Senseless(Exception):
    """An answer that the event has no use for."""


def strongest(event: Event, answers: Sequence[Decision]) -> Decision:
    """E2 and E3, over answers that make sense for the event, in the order of registration."""
    for kind in _meant_for(event) if answers else ():
        equals = [answer for answer in answers if isinstance(answer, kind)]
        if equals:
            return _together(equals)
    return Allow() if isinstance(event, PreToolUse) else Continue()


def _together(equals: Sequence[Decision]) -> Decision:
    last = equals[-1]
    if isinstance(last, Deny | Stop | SystemMessage | AppendContext):
        texts = [msgspec.structs.astuple(each)[0] for each in equals]
        return type(last)("\n".join(texts))
    return last  # the last ModifyArgs has seen the others


def _as_changed_by(hook: Hook, answer: Answer, event: Event) -> Event:
    if not (isinstance(answer, ModifyArgs) and isinstance(event, PreToolUse)):
        return event
    log.debug("hook.modified_args", hook=hook.name, tool=event.tool_name, args=answer.args)
    return msgspec.structs.replace(event, args=answer.args)


def _meant_for(event: Event) -> tuple[type[Decision], ...]:
    return BEFORE_A_TOOL if isinstance(event, PreToolUse) else ELSEWHERE


def _sensible(event: Event, answer: object) -> Answer:
    """The answer as plain data of the declared types: nothing checked it when it was made."""
    if answer is None:
        return None
    if not isinstance(answer, _meant_for(event)):
        names = ", ".join(kind.__name__ for kind in _meant_for(event))
        raise Senseless(f"expected {names} or None, found {answer!r}")
    if isinstance(answer, ModifyArgs):
        # Through JSON (E5): a key made of these arguments must be the same after a restart.
        answer = ModifyArgs(json.loads(json.dumps(answer.args, allow_nan=False)))
    return msgspec.convert(msgspec.structs.asdict(answer), type(answer))


def _skip(hook: Hook, event: Event, error: BaseException) -> None:
    log.warning("hook.skipped", hook=hook.name, on=type(event).__name__, error=error)


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _check_kinds(kinds: tuple[Kind, ...], tool: str | None) -> None:
    if not kinds:
        raise BadHook("expected at least one kind of event, found none: it would never be called")
    for kind in kinds:
        if kind not in EVENTS:
            names = ", ".join(event.__name__ for event in EVENTS)
            raise BadHook(f"expected kinds of event ({names}), found {kind!r}")
        if tool is not None and kind not in ABOUT_TOOLS:
            raise BadHook(f"tool={tool!r} was given for {kind.__name__}, which is about no tool")


def _pattern(tool: str | None) -> re.Pattern[str] | None:
    try:
        return None if tool is None else re.compile(tool)
    except (re.error, TypeError) as error:
        raise BadHook(f"tool={tool!r} is not a regular expression: {error}") from None
