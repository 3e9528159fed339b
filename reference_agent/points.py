"""Persist points: the agent announces each change of durable state without knowing who listens.

`sys.audit` costs nothing when no hook is installed, and lets any harness listen without either side
importing the other.
"""

from __future__ import annotations

import sys


class persisting:  # noqa: N801 - reads as a verb; a generator would cost more than the audit
    """Wraps one durable change. After an exception nothing is announced, because nothing was persisted."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        sys.audit("persist.point", self._name, "before")

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            sys.audit("persist.point", self._name, "after")
