"""Retries of model calls, with backoff. Every failure is recorded.

    attempt 0 ──fails──> on_failure(.., 0) ── sleep base ──> attempt 1 ──fails──> on_failure(.., 1) ── ...
        │                                                        │
      answer                                                   answer       ... attempt max_retries, whose
                                                                            error propagates to the caller

R1  Attempts are numbered 0 to `max_retries`. The delay after attempt n is base * 2^n, or the delay the
    server asked for if that is longer, capped at `retry_after_limit` so that a server cannot stall the
    agent for hours.
R2  `on_failure` returns before the delay begins. It is called for every failed attempt, including the last
    one and including errors that are not retried, so its record survives a crash during the delay. If it
    raises, that exception is the outcome: an attempt that cannot be recorded is not retried.
R3  Only a ModelError marked as retryable is retried. Any other exception propagates unrecorded: it is a
    bug, or the process is ending.
R4  Attempt numbers continue after a crash: with `first_attempt` = the number of recorded attempts, at most
    1 + `max_retries` calls are made across all restarts, and no number is used twice.
R5  A failed stream restarts from the beginning. If part of it was already shown, `Restarted()` precedes the
    new output, so that the beginning is not displayed twice.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

from reference_agent.ids import Sleep
from reference_agent.providers.base import Answer, ModelError, TextDelta

T = TypeVar("T")
OnFailure = Callable[[int, str, ModelError, int], Awaitable[None]]  # (turn, context, error, attempt)
Streamed = TextDelta | Answer

MAX_RETRIES = 3
BASE_DELAY_MS = 500
RETRY_AFTER_LIMIT = 60.0  # seconds


class RetryPolicy(msgspec.Struct, frozen=True):
    """See R1."""

    max_retries: int = MAX_RETRIES
    base_delay_ms: float = BASE_DELAY_MS
    retry_after_limit: float | None = RETRY_AFTER_LIMIT  # None: as long as the server asks for


class Restarted(msgspec.Struct, frozen=True):
    """Discard what the stream has yielded so far: it restarts from the beginning."""


class RetriesExhausted(ModelError):
    """Earlier processes used up all attempts; their errors are in the store."""


async def call_with_retry(
    call: Callable[[], Awaitable[T]],
    *,
    turn: int,
    context: str,
    on_failure: OnFailure,
    policy: RetryPolicy | None = None,
    first_attempt: int = 0,
    sleep: Sleep = asyncio.sleep,
) -> T:
    """Return the result of `call`, retrying as R1 to R4 allow."""
    plan = _Plan(turn, context, policy or RetryPolicy(), first_attempt)
    retrying = plan.attempts(sleep)
    failed: Exception | None = None
    try:
        return await call()  # the common case: skip the retry machinery
    except Exception as error:  # noqa: BLE001 - raised again below as the first attempt's outcome
        failed = error
    async for attempt in retrying:
        with attempt:
            async with plan.recorded(attempt.retry_state, on_failure):
                if failed is not None:
                    first, failed = failed, None
                    raise first
                return await call()
    raise AssertionError("the last failure is raised above")


async def stream_with_retry(
    call: Callable[[], AsyncIterator[Streamed]],
    *,
    turn: int,
    context: str,
    on_failure: OnFailure,
    policy: RetryPolicy | None = None,
    first_attempt: int = 0,
    sleep: Sleep = asyncio.sleep,
) -> AsyncGenerator[Streamed | Restarted, None]:
    """Yield what `call` streams, and `Restarted()` wherever it restarts: see R1 to R5."""
    plan = _Plan(turn, context, policy or RetryPolicy(), first_attempt)
    shown = False
    async for attempt in plan.attempts(sleep):
        with attempt:
            if shown:
                yield Restarted()
                shown = False
            async with plan.recorded(attempt.retry_state, on_failure), _open(call) as stream:
                async for item in stream:
                    shown = True
                    yield item


class _Plan(msgspec.Struct, frozen=True):
    """The permitted attempts and their numbers: tenacity counts from 1 in each process."""

    turn: int
    context: str
    policy: RetryPolicy
    first_attempt: int

    def attempts(self, sleep: Sleep) -> AsyncRetrying:
        left = self.policy.max_retries + 1 - self.first_attempt
        if left < 1:
            raise RetriesExhausted(
                f"turn {self.turn}, {self.context}: expected an attempt numbered 0 to"
                f" {self.policy.max_retries}, the next would be {self.first_attempt}:"
                " earlier processes used them all",
                retryable=False,
            )
        return AsyncRetrying(
            sleep=sleep,
            wait=self._delay,
            stop=stop_after_attempt(left),
            retry=retry_if_exception(_is_worth_repeating),
            reraise=True,
        )

    @asynccontextmanager
    async def recorded(self, state: RetryCallState, on_failure: OnFailure) -> AsyncIterator[None]:
        try:
            yield
        except ModelError as error:
            await on_failure(self.turn, self.context, error, self._number(state))
            raise

    def _number(self, state: RetryCallState) -> int:
        return self.first_attempt + state.attempt_number - 1

    def _delay(self, state: RetryCallState) -> float:
        failure = state.outcome and state.outcome.exception()
        assert isinstance(failure, ModelError)  # nothing else is retried
        limit = math.inf if self.policy.retry_after_limit is None else self.policy.retry_after_limit
        asked_for = min(failure.retry_after or 0.0, limit)
        return max(self.policy.base_delay_ms / 1000 * 2.0 ** self._number(state), asked_for)


def _is_worth_repeating(error: BaseException) -> bool:
    return isinstance(error, ModelError) and error.retryable


@asynccontextmanager
async def _open(call: Callable[[], AsyncIterator[Streamed]]) -> AsyncIterator[AsyncIterator[Streamed]]:
    """Close the stream here rather than at garbage collection: it may hold a connection."""
    stream = call()
    try:
        yield stream
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
