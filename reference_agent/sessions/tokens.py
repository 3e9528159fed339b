"""TokenService: the right to resume a wait, given once and used once.

    mint      token.minted
    consume   token.consumed, run.resumed
    rotate    token.revoked, run.waiting, token.minted
    revoke    token.revoked
    expire    token.expired

`token.consumed` is the moment that counts (R4): a crash before it leaves an active token, a crash after it
a run that is resumed by whoever looks next: the same request again, or the sweep.

Rotating mints last. A secret is known to nobody but the caller of the call that made it: if a crash takes
the answer away, nobody has it, and the next `rotate` must replace that token like any other. Before that,
all a crash can leave is a wait whose token is not minted yet, and repeating mints just that one.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from reference_agent.ids import Clock, NewId, random_id
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
    first: bool  # False: it is the answer to a request that was answered before


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
        """A token for a wait that is about to begin: its text, which is nowhere else (R5)."""
        expires_at = stamp(self._clock() + ttl)
        return self._mint(self._new_id("rt"), run_id, wait_kind, call_id, expires_at)

    def validate(self, text: str, run_id: str | None = None, wait_kind: str | None = None) -> Token:
        """The token, if it may be consumed now."""
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
        """Resume the wait, once. The same request is given the same answer, whatever came after."""
        token = self._find(text, run_id, wait_kind)
        first = token.state != "consumed" or token.request_id != request_id
        if first:
            self._check_usable(token)
            # As it will be read from the log: the first answer is not to differ from the others.
            result = msgspec.json.decode(msgspec.json.encode(result))
            self._record.append(
                "token.consumed", token_id=token.token_id, request_id=request_id, result=result
            )
        self._resume(token.token_id)
        token = self._record.tokens[token.token_id]
        return Consumed(token, token.result, first)

    def revoke(self, token_id: str, reason: str) -> None:
        """Nothing, if it is not active any more."""
        if self._get(token_id).state == "active":
            self._record.append("token.revoked", token_id=token_id, reason=reason)

    def rotate(self, token_id: str) -> str:
        """Another token for the same wait, as long as it lasts; the old one is worth nothing now."""
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
            return self.rotate(new)  # it was rotated before, and the answer did not arrive
        return self._mint(new, token.run_id, token.wait_kind, token.call_id, token.expires_at)

    def expire_due(self) -> list[str]:
        """Tokens whose time has come get their line; the answer is their ids."""
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
        assert token_id not in self._record.tokens, f"{token_id} was given before"
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
        """Unless the log says so already, or the run has ended for another reason."""
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
