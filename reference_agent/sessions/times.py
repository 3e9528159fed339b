"""Times in artifacts: "2026-02-21T10:00:00Z", with six more digits where a deadline needs them."""

from __future__ import annotations

from datetime import UTC, datetime


def stamp(seconds: float) -> str:
    """Always six digits, so that stamps sort as texts; exact to the microsecond."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def has_passed(stamped: str | None, now: float) -> bool:
    """None is never. What cannot be read has passed: a wait must not last forever because of it."""
    if stamped is None:
        return False
    try:
        moment = datetime.fromisoformat(stamped)
    except ValueError:
        return True
    return now >= moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
