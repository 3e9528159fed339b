"""Budget: the time limit of a campaign, divided among its plans; unused time goes to later plans.

The limit is hard. No item starts after the end of its plan's share, and a run that is under way then is
abandoned, not judged. A part of the time is reserved for confirming what was found.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
RESERVED = 0.15  # of the time, for confirming; an unconfirmed finding cannot be reported


class Budget:
    def __init__(self, seconds: float | None, shares: float) -> None:
        self.limit = seconds
        self._started = time.monotonic()
        self.end = None if seconds is None else self._started + seconds
        self._shares = shares

    @property
    def seconds(self) -> float:
        """Elapsed so far."""
        return time.monotonic() - self._started

    def share(self, size: float = 1) -> Share:
        """`size` shares of the remaining time, which is divided among the remaining ones."""
        left = max(1, self._shares / size)
        self._shares -= size
        if self.end is None or self.limit is None:
            return Share(None)
        now = time.monotonic()
        return Share(now + (self.end - RESERVED * self.limit - now) / left)


class Share:
    def __init__(self, end: float | None) -> None:
        self.end = end
        self.ran_out = False  # tasks were left, or abandoned

    def while_time(self, tasks: Iterable[T]) -> Iterator[T]:
        for task in tasks:
            if self.end is not None and time.monotonic() > self.end:
                self.ran_out = True
                return
            yield task
