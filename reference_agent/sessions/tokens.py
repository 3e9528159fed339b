"""TokenService: single-use tokens that grant the right to resume a wait.

    mint      token.minted
    consume   token.consumed, run.resumed
    rotate    token.revoked, run.waiting, token.minted
    revoke    token.revoked
    expire    token.expired

`token.consumed` is the commit point (R4). A crash before it leaves an active token. A crash after it leaves
a run that the next repeat of the request, or the sweep, resumes.

Rotation mints last. Only the caller of the operation that created a secret ever knows it. If a crash loses
the response, the secret is lost, and the next `rotate` must replace that token like any other. A crash
before the mint can only leave a wait whose token is not minted yet, and repeating `rotate` mints exactly
that token.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from reference_agent.ids import Clock, NewId, random_id
from reference_agent.messages import storable
from reference_agent.sessions.refusals import TokenRefused, check_scope, check_usable, find, hashed, wait_of
from reference_agent.sessions.times import has_passed, stamp
from reference_agent.sessions.token_index import Token, TokenIndex, Tokens, TokenState, fold_tokens

if TYPE_CHECKING:
    from reference_agent.sessions.record import SessionRecord

__all__ = [
    "Consumed",
    "Token",
    "TokenIndex",
    "TokenRefused",
    "TokenService",
    "TokenState",
    "Tokens",
    "fold_tokens",
]

ROTATED = "rotated"


class Consumed(msgspec.Struct, frozen=True):
    token: Token
    result: Any
    first: bool  # False: a repeated answer to a request that was already answered


def _new_secret() -> str:
    return secrets.token_urlsafe(32)


class TokenService:
    def __init__(
        self,
        record: SessionRecord,
        clock: Clock,
        new_secret: Callable[[], str] = _new_secret,
        new_id: NewId = random_id,
    ) -> None:
        self._record = record
        self._clock = clock
        self._new_secret = new_secret
        self._new_id = new_id

    def mint(self, run_id: str, wait_kind: str, call_id: str | None, ttl: float) -> str:
        """Mint a token for a wait that is about to begin. Return its text, which is stored nowhere (R5)."""
        expires_at = stamp(self._clock() + ttl)
        return self._mint(self._new_id("rt"), run_id, wait_kind, call_id, expires_at)

    def validate(self, text: str, run_id: str | None = None, wait_kind: str | None = None) -> Token:
        """Return the token if it may be consumed now."""
        token = self._find(text, run_id, wait_kind)
        self._check_usable(token)
        return token

    def consume(
        self,
        text: str,
        request_id: str,
        result: Any,
        *,
        run_id: str | None = None,
        wait_kind: str | None = None,
    ) -> Consumed:
        """Resume the wait once. Repeating the same request always returns the same answer."""
        token = self._find(text, run_id, wait_kind)
        first = token.state != "consumed" or token.request_id != request_id
        if first:
            self._check_usable(token)
            # As the log will return it: the first answer must not differ from repeated ones.
            result = msgspec.json.decode(msgspec.json.encode(storable(result)))
            self._record.append(
                "token.consumed", token_id=token.token_id, request_id=request_id, result=result
            )
        self._resume(token.token_id)
        token = self._record.tokens[token.token_id]
        return Consumed(token, token.result, first)

    def revoke(self, token_id: str, reason: str) -> None:
        """Does nothing if the token is no longer active."""
        if self._get(token_id).state == "active":
            self._record.append("token.revoked", token_id=token_id, reason=reason)

    def rotate(self, token_id: str) -> str:
        """Replace the token of a wait that still lasts; the old token becomes invalid."""
        token = self._get(token_id)
        if token.state != "revoked" or token.reason != ROTATED:
            self._check_usable(token)
            self._record.append("token.revoked", token_id=token_id, reason=ROTATED)
        run, wait = wait_of(token, self._record.snapshot)
        new = wait.resume_token_id
        if new is None or new == token_id:
            new = self._new_id("rt")
            self._record.append(
                "run.waiting",
                run_id=run.run_id,
                wait_kind=wait.kind,
                resume_token_id=new,
                deadline_at=wait.deadline_at,
                call_id=wait.call_id,
            )
        elif new in self._record.tokens:
            return self.rotate(new)  # rotated before, but the response was lost
        return self._mint(new, token.run_id, token.wait_kind, token.call_id, token.expires_at)

    def expire_due(self) -> list[str]:
        """Record the tokens that have expired, and return their ids."""
        now = self._clock()
        due = [
            token.token_id
            for token in self._record.tokens.values()
            if token.state == "active" and has_passed(token.expires_at, now)
        ]
        for token_id in due:
            self._record.append("token.expired", token_id=token_id)
        return due

    def _mint(
        self, token_id: str, run_id: str, wait_kind: str, call_id: str | None, expires_at: str | None
    ) -> str:
        assert token_id not in self._record.tokens, f"{token_id} was already issued"
        secret = self._new_secret()
        self._record.append(
            "token.minted",
            token_id=token_id,
            hash=hashed(secret),
            session_id=self._record.session,
            run_id=run_id,
            wait_kind=wait_kind,
            call_id=call_id,
            expires_at=expires_at,
        )
        return f"{token_id}.{secret}"

    def _resume(self, token_id: str) -> None:
        """Unless the log already records it, or the run has ended for another reason."""
        run = self._record.snapshot.run
        if run and run.end is None and run.wait and run.wait.resume_token_id == token_id:
            self._record.append("run.resumed", run_id=run.run_id)

    def _get(self, token_id: str) -> Token:
        token = self._record.tokens.get(token_id)
        if token is None:
            raise TokenRefused("unknown", "no such token in this session")
        return token

    def _find(self, text: str, run_id: str | None, wait_kind: str | None) -> Token:
        token = find(self._record.tokens, self._record.session, text)
        check_scope(token, run_id, wait_kind)
        return token

    def _check_usable(self, token: Token) -> None:
        check_usable(token, self._record.snapshot, self._clock())
