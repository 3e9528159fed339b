"""Ids and time are given to the agent, so that one seed can decide them; what a session may be called."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable

Clock = Callable[[], float]  # seconds since the epoch
Sleep = Callable[[float], Awaitable[None]]  # seconds
NewId = Callable[[str], str]  # kind -> an id that was never given before

system_clock: Clock = time.time
SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class BadSessionId(ValueError):
    """Not a name for a session; its text is one line for the user."""


def checked_session(session: str) -> str:
    """It becomes the beginning of file names: nothing that leads elsewhere, or that no disk takes."""
    if not SESSION_ID.fullmatch(session):
        raise BadSessionId(f"session id: expected 1 to 64 letters, digits, - and _, found {session[:80]!r}")
    return session


def ids_from(seed: str) -> NewId:
    """The nth id of a kind is a hash of (seed, kind, n). Each boot needs a seed of its own."""
    given: Counter[str] = Counter()

    def new_id(kind: str) -> str:
        given[kind] += 1
        digest = hashlib.blake2b(f"{seed}/{kind}/{given[kind]}".encode(), digest_size=6)
        return f"{kind}_{digest.hexdigest()}"

    return new_id


def random_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(6)}"
