"""Options: what the caller may choose when opening an agent."""

from __future__ import annotations

import msgspec

from reference_agent.turn.cadence import Cadence
from reference_agent.turn.retry import BASE_DELAY_MS, MAX_RETRIES, RETRY_AFTER_LIMIT, RetryPolicy


class Options(msgspec.Struct, frozen=True, kw_only=True):
    agent_id: str = "agent"
    system: str = "You are a careful assistant."
    cadence: Cadence = Cadence()
    max_turns: int = 50  # per request, across all restarts
    limit_tokens: int | None = None
    max_retries: int = MAX_RETRIES
    retry_base_delay_ms: float = BASE_DELAY_MS
    retry_after_limit: float | None = RETRY_AFTER_LIMIT  # seconds; None: as long as the server asks for
    tool_deadline: float | None = None

    @property
    def retry_policy(self) -> RetryPolicy:
        return RetryPolicy(self.max_retries, self.retry_base_delay_ms, self.retry_after_limit)
