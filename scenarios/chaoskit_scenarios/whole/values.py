"""Values that plain JSON cannot hold: how a workload names them, and how a report shows them."""

from __future__ import annotations

from typing import Any

INFINITE = "\ue802"
STAND_INS: dict[str, Any] = {"\ue801": 10**30, INFINITE: float("inf")}
LONE = "\ue800"  # anywhere in a text: a lone surrogate, as in an answer that was cut within an emoji


def real(value: Any) -> Any:
    """The value that a part of a workload stands for."""
    if isinstance(value, str):
        return STAND_INS.get(value, value.replace(LONE, "\ud800"))
    if isinstance(value, dict):
        return {key: real(each) for key, each in value.items()}
    return [real(each) for each in value] if isinstance(value, list) else value


def shown(text: str) -> str:
    """The text with each lone surrogate, and whatever replaced it, as a question mark."""
    return text.encode("utf-8", "replace").decode().replace("\ufffd", "?")
