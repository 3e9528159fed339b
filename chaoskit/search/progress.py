"""Progress: what a campaign is doing and how far it has come. Pure data; `show.terminal` displays it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class SoFar(msgspec.Struct, frozen=True, kw_only=True):
    phase: str  # what is being done: installing, recording, crashing, confirming...
    runs: int = 0
    planned: int | None = None  # so far; None: the number is not known in advance
    covered: int = 0  # places where a fault fired
    findings: int = 0
    seconds: float = 0.0  # elapsed
    limit: float | None = None  # seconds that the whole may take

    @property
    def rate(self) -> float:
        return self.runs / self.seconds if self.seconds else 0.0

    @property
    def left(self) -> float | None:
        """Estimated seconds until the end: by the plan or by the time limit, whichever comes first."""
        known = []
        if self.limit is not None:
            known.append(max(0.0, self.limit - self.seconds))
        if self.planned and self.rate:
            known.append(max(0, self.planned - self.runs) / self.rate)
        return min(known, default=None)


Progress = Callable[[SoFar], None]


def silent(_so_far: SoFar) -> None:
    """For callers that show nothing."""
