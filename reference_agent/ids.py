"""Ids and time, injected into the agent so that one seed can determine them; rules for session ids."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable

Clock = Callable[[], float]  # seconds since the epoch
Sleep = Callable[[float], Awaitable[None]]  # seconds
NewId = Callable[[str], str]  # kind -> an id that was never used before

system_clock: Clock = time.time
SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class BadSessionId(ValueError):
    """Not a valid session id; the message is one line for the user."""


def checked_session(session: str) -> str:
    """Validate a session id. It becomes a prefix of file names, so it must be safe as one."""
    if not SESSION_ID.fullmatch(session):
        raise BadSessionId(f"session id: expected 1 to 64 letters, digits, - and _, found {session[:80]!r}")
    return session


def ids_from(seed: str) -> NewId:
    """The nth id of a kind is a hash of (seed, kind, n). Each boot needs its own seed."""
    given: Counter[str] = Counter()

    def new_id(kind: str) -> str:
        given[kind] += 1
        digest = hashlib.blake2b(f"{seed}/{kind}/{given[kind]}".encode(), digest_size=6)
        return f"{kind}_{digest.hexdigest()}"

    return new_id


def random_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(6)}"
