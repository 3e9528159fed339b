"""Misbehaviour: what goes wrong with one request, as plain data; and lists of it from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

Kind = Literal[
    "rate_limit",
    "unavailable",
    "server_error",
    "bad_request",
    "unauthorized",
    "timeout",
    "reset",
    "cut",
    "unfinished",
    "malformed",
    "slow",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

STATUS: dict[Kind, int] = {
    "rate_limit": 429,
    "unavailable": 503,
    "server_error": 500,
    "bad_request": 400,
    "unauthorized": 401,
}
# Faults that a retry can overcome.
PASSING: tuple[Kind, ...] = tuple(k for k in KINDS if k not in {"bad_request", "unauthorized"})


class Misbehaviour(msgspec.Struct, frozen=True):
    """The package docstring describes each kind, `after` and `seconds`."""

    kind: Kind
    retry_after: str | None = None  # the header's value: seconds, or an HTTP date
    after: int = 2
    seconds: float = 0.0


def misbehaviours_from(
    seed: int, *, requests: int = 100, in_a_row: int = 3, kinds: Sequence[Kind] = PASSING
) -> list[Misbehaviour | None]:
    """About half of the requests fail, never more than `in_a_row` of them in succession."""
    chance = random.Random(f"model-server/{seed}")
    dealt: list[Misbehaviour | None] = []
    failed = 0
    for _ in range(requests):
        fails = failed < in_a_row and chance.random() < 0.5
        failed = failed + 1 if fails else 0
        dealt.append(_draw(chance, kinds) if fails else None)
    return dealt


def _draw(chance: random.Random, kinds: Sequence[Kind]) -> Misbehaviour:
    kind = chance.choice(kinds)
    asks_for_time = kind in {"rate_limit", "unavailable"} and chance.random() < 0.5
    return Misbehaviour(
        kind,
        retry_after=str(chance.randint(1, 3)) if asks_for_time else None,
        after=chance.randint(0, 4),
        seconds=chance.randint(1, 20) / 100 if kind == "slow" else 0.0,
    )
