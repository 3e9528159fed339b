"""ToolRunner: carries out decisions. Each mutating call runs at most once and is recorded (G4, G5).

(unknown) ──issue──> issued ──run──> finish ──> completed | failed
                        │
                        ├── crash, or the deadline passed: it may or may not have happened
                        │      repeatable: run again under the same key
                        │      verify:     ask; if it did not happen, run
                        ├──    neither:    unknown: never retried, the user is asked
                        └── waits_for: issued until `results` has its result; raises `Waits` until then
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from reference_agent.logs.structured import get_logger
from reference_agent.messages import Message, ToolCall, idempotency_key, storable
from reference_agent.store.backlog import Backlog, NotDurable
from reference_agent.store.protocol import SessionStore
from reference_agent.store.records import CallStatus, RecordedCall
from reference_agent.turn import hooks
from reference_agent.turn.cancellation import is_being_cancelled
from reference_agent.turn.runtime import Runtime
from reference_agent.turn.tools import Tool, Toolbox, Verify

log = get_logger(__name__)

UNKNOWN_OUTCOME = (
    "error: outcome unknown: the call was interrupted and cannot be verified; it was not repeated"
)


class Waits(Exception):
    """The result of this call must come from outside; the run cannot continue without it."""

    def __init__(self, call: RecordedCall, tool: Tool) -> None:
        super().__init__(f"{call.tool} waits for {tool.waits_for}")
        self.call = call
        self.kind = tool.waits_for or ""
        self.deadline = tool.deadline


class CallOutcome:
    """The outcome of a call: the text for the model, and whether it is an error."""

    def __init__(self, text: str, status: CallStatus) -> None:
        self.text = text
        self.status = status


class ToolRunner:
    def __init__(
        self,
        *,
        session: str,
        store: SessionStore,
        backlog: Backlog,
        toolbox: Toolbox,
        runtime: Runtime,
        deadline: float | None = None,
    ) -> None:
        self.cancelled: str | None = None  # why the run no longer waits for results from outside
        self._results = runtime.results
        self._store = store
        self._backlog = backlog
        self._toolbox = toolbox
        self._hooks = runtime.hooks
        self._session = session
        self._tell = runtime.tell
        self._deadline = deadline
        self.heard: list[hooks.LoopDecision] = []  # decisions of hooks after a tool, for the agent
        self._busy: dict[str, asyncio.Lock] = {}  # serializes calls with the same key

    async def run(self, call: ToolCall) -> Message:
        """Return the call's result as a message for the model. Errors are results too."""
        return _as_message(call, await self._outcome(call))

    async def _outcome(self, call: ToolCall) -> CallOutcome:
        tool = self._toolbox.find(call.name)
        known = await self._store.call(call.id)
        if known is not None and known.status != "issued":
            if known.status == "unknown":  # an earlier process may have died before reporting it
                self._tell("surfaced", {"call": call.id, "tool": known.tool, "args": known.args})
            return CallOutcome(known.result or "", known.status)
        if known is not None:
            async with self._busy.setdefault(known.key, asyncio.Lock()):
                return await self._settle(tool, known)
        if tool is None:
            # Recorded like any result that the model is shown: its next decision rests on it (G3).
            outcome = CallOutcome(f"error: there is no tool {call.name!r}", "failed")
            return await self._remember(call, "no tool", outcome)
        return await self._begin(tool, call)

    async def _begin(self, tool: Tool, call: ToolCall) -> CallOutcome:
        decision = await self._hooks.fire(hooks.PreToolUse(call.name, call.args, call.id))
        if isinstance(decision, hooks.Deny):
            # Recorded, so that a hook that decides differently after a crash cannot change history.
            outcome = CallOutcome(f"error: denied: {decision.reason}", "failed")
            return await self._remember(call, "denied", outcome)
        if isinstance(decision, hooks.ModifyArgs):
            call = ToolCall(call.id, call.name, decision.args)
        call = ToolCall(call.id, call.name, storable(call.args))
        try:
            key = self._key(tool, call)
        except Exception as error:  # noqa: BLE001 - no key, no call; the model is told why
            return await self._remember(call, "no key", _failure(error))
        log.debug("tool.call", tool=call.name, args=call.args, call_id=call.id)
        if not tool.mutating and tool.waits_for is None:
            return await self._read(tool, call, key)
        async with self._busy.setdefault(key, asyncio.Lock()):
            return await self._mutate(tool, call, key)

    def _key(self, tool: Tool, call: ToolCall) -> str:
        own = tool.key(call.args, call.id) if tool.key else None
        args = {"key": own} if own is not None else call.args
        return idempotency_key(self._session, call.name, args)

    async def _read(self, tool: Tool, call: ToolCall, key: str) -> CallOutcome:
        outcome = await self._attempt(tool, call.args, key) or self._too_late(tool)
        return await self._remember(call, key, outcome)

    async def _remember(self, call: ToolCall, key: str, outcome: CallOutcome) -> CallOutcome:
        """Record the outcome of a call without effects, so that later turns rest on the same facts."""
        return await self._told(call, await self._record(call, key, outcome))

    async def _record(self, call: ToolCall, key: str, outcome: CallOutcome) -> CallOutcome:
        """The model is shown this result: it is the call's own from now on, whatever a restart changes."""
        known: CallStatus = "completed" if outcome.status == "completed" else "failed"
        await self._backlog.write(
            "call.read", lambda: self._store.record_reading(call, key, known, outcome.text)
        )
        return outcome

    async def _mutate(self, tool: Tool, call: ToolCall, key: str) -> CallOutcome:
        try:
            done = await self._issued(tool, call, key)
        except NotDurable as error:
            log.warning("tool.refused", tool=call.name, error=str(error))
            return await self._remember(call, key, CallOutcome(f"error: not run: {error}", "failed"))
        if done is not None:  # the recorded result, verbatim
            return await self._record(call, key, CallOutcome(done.result or "", done.status))
        if tool.waits_for is not None:
            return await self._settle(tool, RecordedCall(call.id, call.name, call.args, key, "issued", None))
        outcome = await self._attempt(tool, call.args, key)
        if outcome is None:  # it timed out, and may have happened all the same
            return await self._settle(tool, RecordedCall(call.id, call.name, call.args, key, "issued", None))
        return await self._finish(call, outcome)

    async def _issued(self, tool: Tool, call: ToolCall, key: str) -> RecordedCall | None:
        """Record that the call is made now. Not if an equal one has been decided: that one is returned."""
        while True:
            done: RecordedCall | None = None
            pending: RecordedCall | None = None

            async def issue() -> None:
                # Queried only after the backlog has caught up: an identical call may have been waiting in it.
                nonlocal done, pending
                done = await self._store.decided_call(key)
                pending = None if done else await self._store.issued_call(key)
                if done is None and pending is None:
                    await self._store.issue_call(call, key)

            await self._backlog.require("call.issue", issue)
            if pending is None:
                return done
            # An equal call of an earlier life may have had the effect: what became of it comes first (G5).
            await self._settle(tool, pending)

    async def give_up(self, call: ToolCall, reason: str) -> Message:
        """The result of a call whose request ends here: nothing is begun, and what was begun is settled."""
        known = await self._store.call(call.id)
        if known is None:
            outcome = await self._remember(
                call, "not run", CallOutcome(f"error: not run: {reason}", "failed")
            )
        elif known.status != "issued":
            outcome = CallOutcome(known.result or "", known.status)
        else:
            outcome = await self._settled_without_waiting(known, reason)
        return _as_message(call, outcome)

    async def _settled_without_waiting(self, known: RecordedCall, reason: str) -> CallOutcome:
        before, self.cancelled = self.cancelled, reason
        try:
            async with self._busy.setdefault(known.key, asyncio.Lock()):
                return await self._settle(self._toolbox.find(known.tool), known)
        finally:
            self.cancelled = before

    async def _settle(self, tool: Tool | None, known: RecordedCall) -> CallOutcome:
        """Settle a call that was issued but has no known outcome."""
        call = ToolCall(known.call_id, known.tool, known.args)
        if tool is None:  # the tool no longer exists: only the user can find out
            outcome = CallOutcome(UNKNOWN_OUTCOME, "unknown")
        elif tool.waits_for is not None:
            outcome = self._brought(tool, known)
        elif tool.repeatable or not tool.mutating:
            outcome = await self._attempt(tool, known.args, known.key) or self._too_late(tool)
        elif tool.verify is not None:
            outcome = await self._verified(tool, tool.verify, known)
        else:
            outcome = self._nobody_knows(tool)
        return await self._finish(call, outcome)

    def _brought(self, tool: Tool, known: RecordedCall) -> CallOutcome:
        result = self._results(known.call_id)
        if result is not None:
            return CallOutcome(storable(result), "completed")
        if self.cancelled is not None:
            return CallOutcome(f"error: cancelled: {self.cancelled}", "failed")
        raise Waits(known, tool)

    async def _verified(self, tool: Tool, verify: Verify, known: RecordedCall) -> CallOutcome:
        try:
            happened = await asyncio.wait_for(verify(known.args, known.key), self._limit(tool))
            if happened is not None:
                return CallOutcome(_text(happened), "completed")
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the outcome stays unknown
            _raise_if_cancelled(error)
            log.warning("tool.unverified", tool=tool.name, error=f"{type(error).__name__}: {error}")
            return self._nobody_knows(tool)
        return await self._attempt(tool, known.args, known.key) or self._nobody_knows(tool)

    def _nobody_knows(self, tool: Tool) -> CallOutcome:
        return CallOutcome(UNKNOWN_OUTCOME, "unknown" if tool.when_unknown == "ask" else "failed")

    async def _finish(self, call: ToolCall, outcome: CallOutcome) -> CallOutcome:
        event = "surfaced" if outcome.status == "unknown" else "finished"
        facts = {"call": call.id, "tool": call.name, "args": call.args}
        await self._backlog.write(
            "call.finish",
            lambda: self._store.finish_call(call.id, outcome.status, outcome.text),
            then=lambda: self._tell(event, facts),
        )
        return await self._told(call, outcome)

    async def _told(self, call: ToolCall, outcome: CallOutcome) -> CallOutcome:
        if outcome.status == "completed":
            success = hooks.PostToolUse(call.name, call.args, outcome.text, call.id)
            self.heard.append(await self._hooks.fire(success))
        else:
            log.warning("tool.failed", tool=call.name, error=outcome.text)
            failure = hooks.PostToolUseFailure(call.name, call.args, outcome.text, call.id)
            self.heard.append(await self._hooks.fire(failure))
        return outcome

    async def _attempt(self, tool: Tool, args: dict[str, Any], key: str) -> CallOutcome | None:
        """Return None when the deadline passed: the tool may or may not have taken effect."""
        try:
            return CallOutcome(_text(await self._in_time(tool, tool.run(args, key))), "completed")
        except TimeoutError:
            return None
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - errors are results
            _raise_if_cancelled(error)
            return _failure(error)

    async def _in_time(self, tool: Tool, running: Awaitable[str]) -> str:
        return await asyncio.wait_for(running, self._limit(tool))

    def _limit(self, tool: Tool) -> float | None:
        return tool.deadline if tool.deadline is not None else self._deadline

    def _too_late(self, tool: Tool) -> CallOutcome:
        return CallOutcome(f"error: no answer within {self._limit(tool)} s", "failed")


def _as_message(call: ToolCall, outcome: CallOutcome) -> Message:
    failed = outcome.status != "completed"
    return Message("tool", outcome.text, call_id=call.id, tool=call.name, is_error=failed)


def _text(result: object) -> str:
    """A tool's result as every store can hold it; nothing else has checked what the tool returned."""
    if not isinstance(result, str):
        raise TypeError(f"expected text as the tool's result, found {type(result).__name__}")
    return str(storable(result))


def _failure(error: BaseException) -> CallOutcome:
    return CallOutcome(str(storable(f"error: {type(error).__name__}: {error}")), "failed")


def _raise_if_cancelled(error: BaseException) -> None:
    """A tool may raise CancelledError itself, or await something that was cancelled: its own error."""
    if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
        raise error
