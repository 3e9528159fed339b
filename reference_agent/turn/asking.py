"""ModelCaller: asks the model for a decision and retries. Each failure is recorded before the next attempt.

Attempt numbers continue after a crash (K5): the store records the attempts of earlier processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reference_agent.logs.structured import get_logger
from reference_agent.messages import Message
from reference_agent.providers.base import Answer, ModelError, Provider, TextDelta, ToolSpec
from reference_agent.store.backlog import Backlog
from reference_agent.store.protocol import SessionStore
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
    ) -> None:
        self._provider = provider
        self._specs = specs
        self._store = store
        self._backlog = backlog
        self._sleep = runtime.sleep
        self._tell = runtime.tell
        self._options = options

    async def ask(self, turn: int, conversation: list[Message], system: str, watch: Watcher | None) -> Answer:
        """With `watch`, ask for a stream and show its text as it arrives."""
        made = [error.attempt for error in await self._store.errors(turn)]
        common: dict[str, Any] = {
            "turn": turn,
            "on_failure": self._record_failure,
            "policy": self._options.retry_policy,
            "first_attempt": next_attempt(made, self._options.max_retries),
            "sleep": self._sleep,
        }
        if watch is None:
            return await call_with_retry(
                lambda: self._provider.complete(conversation, system=system, tools=self._specs),
                context="llm_complete",
                **common,
            )
        return await _watched(
            stream_with_retry(
                lambda: self._provider.stream(conversation, system=system, tools=self._specs),
                context="llm_stream",
                **common,
            ),
            watch,
        )

    async def _record_failure(self, turn: int, context: str, error: ModelError, attempt: int) -> None:
        log.warning("model.failed", turn=turn, context=context, attempt=attempt, error=str(error))
        facts = {"turn": turn, "attempt": attempt}
        await self._backlog.write(
            "error.record",
            lambda: self._store.add_error(turn, context, str(error), attempt),
            lambda: self._tell("failed-attempt", facts),
        )


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
