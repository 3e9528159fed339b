"""Budget: the time limit of a campaign, divided among its plans; unused time goes to later plans."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


class Budget:
    def __init__(self, seconds: float | None, shares: int) -> None:
        self.limit = seconds
        self._started = time.monotonic()
        self._end = None if seconds is None else self._started + seconds
        self._shares = shares

    @property
    def seconds(self) -> float:
        """Elapsed so far."""
        return time.monotonic() - self._started

    def share(self) -> Share:
        """The next plan's share: the remaining time divided by the number of remaining plans."""
        left = max(1, self._shares)
        self._shares -= 1
        if self._end is None:
            return Share(None)
        now = time.monotonic()
        return Share(now + (self._end - now) / left)


class Share:
    def __init__(self, end: float | None) -> None:
        self._end = end
        self.ran_out = False  # tasks were left

    def while_time(self, tasks: Iterable[T]) -> Iterator[T]:
        for task in tasks:
            if self._end is not None and time.monotonic() > self._end:
                self.ran_out = True
                return
            yield task
