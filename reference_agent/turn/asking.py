"""ModelCaller: asks the model for a decision and retries. Each failure is recorded before the next attempt.

Attempt numbers continue after a crash (K5): the store records the attempts of earlier processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from reference_agent.logs.structured import get_logger
from reference_agent.messages import Message, storable, storable_message
from reference_agent.providers.base import Answer, ModelError, Provider, TextDelta, ToolSpec
from reference_agent.store.backlog import Backlog
from reference_agent.store.protocol import SessionStore
from reference_agent.turn.cancellation import is_being_cancelled
from reference_agent.turn.ending import Cancelled
from reference_agent.turn.options import Options
from reference_agent.turn.retry import Restarted, call_with_retry, stream_with_retry
from reference_agent.turn.runtime import Runtime

log = get_logger(__name__)
Watcher = Callable[[TextDelta | Restarted], None]


class ModelCaller:
    def __init__(
        self,
        *,
        provider: Provider,
        specs: Sequence[ToolSpec],
        store: SessionStore,
        backlog: Backlog,
        runtime: Runtime,
        options: Options,
        why_cancelled: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._why_cancelled = why_cancelled
        self._provider = provider
        self._specs = specs
        self._store = store
        self._backlog = backlog
        self._sleep = runtime.sleep
        self._tell = runtime.tell
        self._options = options

    async def ask(
        self, turn: int, request_id: str, conversation: list[Message], system: str, watch: Watcher | None
    ) -> Answer:
        """With `watch`, ask for a stream and show its text as it arrives."""
        made = [error.attempt for error in await self._store.errors(turn)]
        common: dict[str, Any] = {
            "turn": turn,
            "on_failure": partial(self._record_failure, request_id),
            "policy": self._options.retry_policy,
            "first_attempt": next_attempt(made, self._options.max_retries),
            "sleep": self._sleep,
        }
        if watch is None:
            return await call_with_retry(
                lambda: self._complete(conversation, system), context="llm_complete", **common
            )
        return await _watched(
            stream_with_retry(lambda: self._stream(conversation, system), context="llm_stream", **common),
            watch,
        )

    async def _complete(self, conversation: list[Message], system: str) -> Answer:
        self._stop_if_cancelled()
        try:
            return _checked(await self._provider.complete(conversation, system=system, tools=self._specs))
        except (Exception, asyncio.CancelledError) as error:
            raise _as_model_error(error) from error

    def _stop_if_cancelled(self) -> None:
        """Before each attempt: a request may be cancelled while it waits for the next one."""
        if (reason := self._why_cancelled()) is not None:
            raise Cancelled(reason)

    async def _stream(self, conversation: list[Message], system: str) -> AsyncIterator[TextDelta | Answer]:
        self._stop_if_cancelled()
        try:
            stream = self._provider.stream(conversation, system=system, tools=self._specs)
            async with aclosing_if_possible(stream):
                async for item in stream:
                    yield _checked(item) if isinstance(item, Answer) else item
        except (Exception, asyncio.CancelledError) as error:
            raise _as_model_error(error) from error

    async def _record_failure(
        self, request_id: str, turn: int, context: str, error: ModelError, attempt: int
    ) -> None:
        log.warning("model.failed", turn=turn, context=context, attempt=attempt, error=str(error))
        facts = {"turn": turn, "attempt": attempt}
        await self._backlog.write(
            "error.record",
            lambda: self._store.add_error(turn, request_id, context, str(storable(str(error))), attempt),
            lambda: self._tell("failed-attempt", facts),
        )


@asynccontextmanager
async def aclosing_if_possible(stream: AsyncIterator[TextDelta | Answer]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


def _checked(answer: Answer) -> Answer:
    """Nothing else has checked what the provider returned. As text that every store can hold."""
    answer = msgspec.convert(msgspec.to_builtins(answer), Answer)
    return msgspec.structs.replace(answer, message=storable_message(answer.message))


def _as_model_error(error: BaseException) -> BaseException:
    """M3: a provider's bug fails the request, as an error of the model does, and nothing else."""
    if isinstance(error, ModelError) or (isinstance(error, asyncio.CancelledError) and is_being_cancelled()):
        return error
    log.error("provider.failed", error=error)  # what it says may be about anything: it is not for clients
    return ModelError(f"the provider failed: {type(error).__name__}", retryable=False)


async def _watched(stream: Any, watch: Watcher) -> Answer:
    answer: Answer | None = None
    async for item in stream:
        if isinstance(item, Answer):
            answer = item
        else:
            watch(item)
    assert answer is not None, "a stream ends with its answer, or with an error"
    return answer


def next_attempt(made: list[int], max_retries: int) -> int:
    """Continue the count of an earlier process; start from 0 again if it had given up."""
    if not made or made[-1] >= max_retries:
        return 0
    return made[-1] + 1
