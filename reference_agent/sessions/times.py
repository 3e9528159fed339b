"""Timestamps in artifacts: "2026-02-21T10:00:00Z", with six fractional digits where a deadline needs them."""

from __future__ import annotations

from datetime import UTC, datetime


def stamp(seconds: float) -> str:
    """Always six fractional digits, so that timestamps sort as text; exact to the microsecond."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def has_passed(stamped: str | None, now: float) -> bool:
    """None never passes. An unreadable timestamp counts as passed: it must not make a wait last forever."""
    if stamped is None:
        return False
    try:
        moment = datetime.fromisoformat(stamped)
    except ValueError:
        return True
    return now >= moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
