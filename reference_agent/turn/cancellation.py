"""Whether a CancelledError means us, or was raised by something that we called."""

from __future__ import annotations

import asyncio


def is_being_cancelled() -> bool:
    """False: what we awaited was cancelled by itself, which is an error like any other."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
