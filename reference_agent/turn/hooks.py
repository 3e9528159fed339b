"""Hooks: user code that runs at seven points of the agent's loop, and what it may decide there.

| event              | when                                     | answered with                      |
|--------------------|------------------------------------------|------------------------------------|
| AgentStart         | before the first turn of a request       | (1)                                |
| TurnStart, TurnEnd | around each turn                         | (1)                                |
| PreToolUse         | before a tool runs                       | Deny, ModifyArgs, Allow            |
| PostToolUse        | after a tool has returned                | (1)                                |
| PostToolUseFailure | after it has raised or timed out         | (1)                                |
| AgentStop          | after the answer                         | (1)                                |

(1) Stop, SystemMessage, AppendContext, Continue. Each class documents its effect.

    hooks = HookRegistry()
    hooks.register([PreToolUse], no_large_payments, tool="pay|refund")
    match await hooks.fire(PreToolUse("pay", {"sum": 5}, "call_1")): ...

Guarantees, cited as E1... by the tests:

E1  Handlers run sequentially in registration order, each once per matching event. They also run after a
    Deny or a Stop, so that a handler that only observes sees every event.
E2  The strongest decision wins: Deny > ModifyArgs > Allow before a tool, elsewhere Stop > SystemMessage >
    AppendContext > Continue. No answer (None) is the weakest.
E3  Texts of equally strong decisions are joined in registration order, one per line. Several ModifyArgs
    form a chain: each handler sees the arguments returned by the one before it, and the last one's
    arguments win.
E4  A handler that raises, exceeds the time limit, or returns a decision that is invalid for the event is
    logged as a warning and treated as if it had not answered.
E5  A handler decides only through its return value: it gets a copy of the arguments and may modify it
    freely. Arguments that it returns are converted to the plain JSON values that a store will read back.
E6  The tool pattern is a regular expression that must match the whole name: "pay" does not match "repay". A
    registration that can never match, or whose expression is invalid, is rejected immediately.

Limits: the registry cannot interrupt a handler that blocks the thread (a plain function that hangs) or one
that suppresses its own cancellation. SystemExit and KeyboardInterrupt propagate, because they concern the
process.

Hooks are not part of the durable state. After a crash an event may fire again, and a handler may answer
differently. The outcome of a PreToolUse must therefore be durable before the tool runs, and must be
honoured afterwards without firing the hook again.
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
from reference_agent.turn.cancellation import is_being_cancelled

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
    """Do not run the tool; give the model the reason as its result."""

    reason: str


class ModifyArgs(msgspec.Struct, frozen=True, tag=True):
    """Run the tool with these arguments instead."""

    args: Args


class Allow(msgspec.Struct, frozen=True, tag=True):
    """Run the tool."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End the request here."""

    reason: str


class SystemMessage(msgspec.Struct, frozen=True, tag=True):
    """Add this text to the next model call as a system message. It is never persisted."""

    text: str


class AppendContext(msgspec.Struct, frozen=True, tag=True):
    """Show this text to the model beside the conversation."""

    text: str


class Continue(msgspec.Struct, frozen=True, tag=True):
    """Change nothing."""


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

# Decision types from strongest to weakest (E2): the order of the unions above.
BEFORE_A_TOOL: tuple[type[Decision], ...] = get_args(ToolDecision)
ELSEWHERE: tuple[type[Decision], ...] = get_args(LoopDecision)


class BadHook(ValueError):
    """An invalid registration; the message says why."""


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
    """`time_limit` creates the limit for one call: `lambda: asyncio.timeout(5)`, or a test's own."""

    def __init__(self, *, time_limit: TimeLimit = nullcontext) -> None:
        self._hooks: list[Hook] = []
        self._time_limit = time_limit

    def register(self, kinds: Kind | Iterable[Kind], handler: Handler, *, tool: str | None = None) -> None:
        """Call the handler for these kinds of event. With `tool`, only for tools whose name matches."""
        wanted = (kinds,) if isinstance(kinds, type) else tuple(kinds)
        _check_kinds(wanted, tool)
        if not callable(handler):
            raise BadHook(f"expected a callable handler, found {handler!r}")
        self._hooks.append(Hook(wanted, handler, _pattern(tool)))

    @overload
    async def fire(self, event: PreToolUse) -> ToolDecision: ...
    @overload
    async def fire(self, event: LoopEvent) -> LoopDecision: ...
    async def fire(self, event: Event) -> Decision:
        """Call every matching handler. Errors in a handler never propagate (E4)."""
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
            if is_being_cancelled():
                raise
            _skip(hook, event, error)  # raised inside the handler: something it awaited was cancelled
        except Exception as error:  # noqa: BLE001 - E4: a handler's error must not fail the agent
            _skip(hook, event, error)
        return None


class Senseless(Exception):
    """The decision is not valid for this event."""


def strongest(event: Event, answers: Sequence[Decision]) -> Decision:
    """Apply E2 and E3 to valid decisions, given in registration order."""
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
    return last  # the last ModifyArgs already saw the earlier ones


def _as_changed_by(hook: Hook, answer: Answer, event: Event) -> Event:
    if not (isinstance(answer, ModifyArgs) and isinstance(event, PreToolUse)):
        return event
    log.debug("hook.modified_args", hook=hook.name, tool=event.tool_name, args=answer.args)
    return msgspec.structs.replace(event, args=answer.args)


def _meant_for(event: Event) -> tuple[type[Decision], ...]:
    return BEFORE_A_TOOL if isinstance(event, PreToolUse) else ELSEWHERE


def _sensible(event: Event, answer: object) -> Answer:
    """Convert the answer to plain data of the declared types: nothing validated it on construction."""
    if answer is None:
        return None
    if not isinstance(answer, _meant_for(event)):
        names = ", ".join(kind.__name__ for kind in _meant_for(event))
        raise Senseless(f"expected {names} or None, found {answer!r}")
    if isinstance(answer, ModifyArgs):
        # Through JSON (E5): a key derived from these arguments must be the same after a restart.
        answer = ModifyArgs(json.loads(json.dumps(answer.args, allow_nan=False)))
    return msgspec.convert(msgspec.structs.asdict(answer), type(answer))


def _skip(hook: Hook, event: Event, error: BaseException) -> None:
    log.warning("hook.skipped", hook=hook.name, on=type(event).__name__, error=error)


def _check_kinds(kinds: tuple[Kind, ...], tool: str | None) -> None:
    if not kinds:
        raise BadHook("expected at least one kind of event, found none: the handler would never be called")
    for kind in kinds:
        if kind not in EVENTS:
            names = ", ".join(event.__name__ for event in EVENTS)
            raise BadHook(f"expected kinds of event ({names}), found {kind!r}")
        if tool is not None and kind not in ABOUT_TOOLS:
            raise BadHook(f"tool={tool!r} was given for {kind.__name__}, which does not concern a tool")


def _pattern(tool: str | None) -> re.Pattern[str] | None:
    try:
        return None if tool is None else re.compile(tool)
    except (re.error, TypeError) as error:
        raise BadHook(f"tool={tool!r} is not a regular expression: {error}") from None
