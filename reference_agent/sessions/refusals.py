"""Why a resume token is refused. Pure: computed from the token, the session's state and the time.

The order of the checks limits what they reveal: a caller without the secret learns only that the secret is
wrong. No explanation contains the text that was presented.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Literal

from reference_agent.sessions.snapshot import RunBlock, SessionSnapshot, WaitBlock
from reference_agent.sessions.times import has_passed
from reference_agent.sessions.token_index import Token, Tokens

Code = Literal[
    "malformed", "unknown", "wrong_secret", "wrong_run", "wrong_wait", "expired", "consumed", "revoked"
]
TEXT = re.compile(r"([A-Za-z0-9_-]{1,100})\.([A-Za-z0-9_-]{1,200})")


class TokenRefused(Exception):
    """Why a token was refused, without its text."""

    def __init__(self, code: Code, explanation: str) -> None:
        super().__init__(explanation)
        self.code = code


def hashed(secret: str) -> str:
    """Unsalted: a secret of 256 random bits is in no lookup table."""
    return hashlib.sha256(secret.encode()).hexdigest()


def find(tokens: Tokens, session: str, text: str) -> Token:
    """The token to which this text is the secret."""
    match = TEXT.fullmatch(text)
    if match is None:
        raise TokenRefused("malformed", "expected <token id>.<secret>")
    token_id, secret = match.groups()
    token = tokens.get(token_id)
    if token and token.session_id not in ("", session):  # the log of another session, renamed
        token = None
    # Also compare without a token: a faster answer would reveal which ids exist.
    known = token.hash if token else hashed("")
    same = hmac.compare_digest(hashed(secret).encode(), known.encode())
    if token is None:
        raise TokenRefused("unknown", "no such token in this session")
    if not same:
        raise TokenRefused("wrong_secret", f"{token_id}: wrong secret")
    return token


def check_scope(token: Token, run_id: str | None, wait_kind: str | None) -> None:
    """None matches any run or wait."""
    if run_id not in (None, token.run_id):
        raise TokenRefused("wrong_run", f"{token.token_id}: is for {token.run_id}, not {run_id}")
    if wait_kind not in (None, token.wait_kind):
        raise TokenRefused("wrong_wait", f"{token.token_id}: is for {token.wait_kind}, not {wait_kind}")


def check_usable(token: Token, snapshot: SessionSnapshot, now: float) -> None:
    if token.state != "active":
        raise TokenRefused(token.state, f"{token.token_id}: already {token.state}")
    if has_passed(token.expires_at, now):
        raise TokenRefused("expired", f"{token.token_id}: expired at {token.expires_at}")
    _run, wait = wait_of(token, snapshot)
    if wait.resume_token_id != token.token_id or wait.kind != token.wait_kind:
        raise TokenRefused("wrong_wait", f"{token.token_id}: {token.run_id} is not waiting for it")
    if has_passed(wait.deadline_at, now):
        raise TokenRefused("expired", f"{token.token_id}: its wait expired at {wait.deadline_at}")


def wait_of(token: Token, snapshot: SessionSnapshot) -> tuple[RunBlock, WaitBlock]:
    run = snapshot.run
    if run is None or run.run_id != token.run_id or run.end is not None:
        raise TokenRefused("wrong_run", f"{token.token_id}: {token.run_id} has ended")
    if run.wait is None:
        raise TokenRefused("wrong_wait", f"{token.token_id}: {token.run_id} is not waiting")
    return run, run.wait
