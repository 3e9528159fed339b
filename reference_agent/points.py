"""Persist points: the agent says where durable state changes; who listens is not its business.

`sys.audit` costs nothing when no hook is installed, and makes any harness a listener without either
side importing the other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def persisting(name: str) -> Iterator[None]:
    """Around one durable change. After an exception nothing is announced: nothing was persisted."""
    sys.audit("persist.point", name, "before")
    yield
    sys.audit("persist.point", name, "after")
