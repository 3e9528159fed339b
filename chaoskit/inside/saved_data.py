"""The data saved in a store under test: a state or item is identified by its number and compared in full."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any

ODD = 'Zürich \u2028 \U0001f4a5 \x00 "quotes" \\ back \x7f \n line'  # breaks naive formats
MOST = 3  # items per call, unless the adapter's limit is lower
PLAIN = 100_000  # characters; texts from this size on contain no ODD ones


@lru_cache(maxsize=512)  # the same states are compared many times per process
def state_of(session: str, n: int, size: int) -> dict[str, Any]:
    return {"n": n, "session": session, "size": size, "text": _text(session, n, size)}


@lru_cache(maxsize=512)
def items_of(session: str, n: int, size: int, most: int = MOST) -> list[dict[str, Any]]:
    """The items of one append: one to three, at most `most`."""
    count = min(1 + n % 3, most)
    return [
        {
            "n": n,
            "part": part,
            "of": count,
            "session": session,
            "size": size,
            "text": _text(session, n + part, size),
        }
        for part in range(count)
    ]


@lru_cache(maxsize=512)
def _text(session: str, n: int, size: int) -> str:
    letters = random.Random(f"{session}/{n}").choices("abcdefghijklmnopqrstuvwxyz ", k=min(size, 997))
    body = "".join(letters) * (size // max(1, len(letters)) + 1)
    # A single character outside the BMP makes CPython use four bytes for every character of the text.
    # Large texts test size only, so they contain none.
    odd = ODD[: size // 4] if size < PLAIN else ""
    return odd + body[: size - len(odd)]


def recognised(session: str, found: Any) -> Any:
    """[n] or [n, part, of] if intact, else a description of the damage."""
    try:
        n, size, owner = found["n"], found["size"], found["session"]
        if "part" in found:
            same = found == items_of(owner, n, size, found["of"])[found["part"]]
            known = [n, found["part"], found["of"]]
        else:
            same, known = found == state_of(owner, n, size), [n]
    except Exception:  # noqa: BLE001 - anything may have been read
        return f"unreadable: {found!r}"[:120]
    if not same:
        return f"damaged: {found!r}"[:120]
    return known if owner == session else f"of session {owner}: save {n}"
