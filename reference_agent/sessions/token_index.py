"""Resume tokens as recorded in the log, and their cache `<session>.tokens.json`.

                 ┌── token.consumed ──> consumed
    minted ──> active ── token.revoked ──> revoked
                 └── token.expired ──> expired

A token leaves `active` once; a second line about it appears only in the audit trail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from reference_agent.sessions.artifacts import Damaged, JsonFile, overlay
from reference_agent.sessions.snapshot import Event

TokenState = Literal["active", "consumed", "revoked", "expired"]


class Token(msgspec.Struct, frozen=True):
    token_id: str
    hash: str  # of the secret: sha256, in hexadecimal
    session_id: str = ""
    run_id: str = ""
    wait_kind: str = ""
    call_id: str | None = None
    expires_at: str | None = None
    state: TokenState = "active"
    request_id: str | None = None  # of the request that consumed it
    result: Any = None  # the value it was consumed with
    reason: str | None = None  # why it was revoked


Tokens = Mapping[str, Token]


def fold_tokens(tokens: Tokens, event: Event) -> Tokens:
    """The tokens after this event."""
    kind, token_id = event.get("kind"), event.get("token_id")
    if not isinstance(token_id, str):
        return tokens
    token = tokens.get(token_id)
    if kind == "token.minted" and token is None:
        return {**tokens, token_id: _minted(event)}
    if token is None or token.state != "active":
        return tokens
    match kind:
        case "token.consumed":
            changed = replace(
                token, state="consumed", request_id=event.get("request_id"), result=event.get("result")
            )
        case "token.revoked":
            changed = replace(token, state="revoked", reason=event.get("reason"))
        case "token.expired":
            changed = replace(token, state="expired")
        case _:
            return tokens
    return {**tokens, token_id: changed}


def _minted(event: Event) -> Token:
    fields = {name: event[name] for name in MINTED if name in event}
    try:
        return msgspec.convert(fields, Token)
    except msgspec.ValidationError:
        # Another program wrote this line. No secret has an empty hash, so the token can only be revoked.
        return Token(event["token_id"], "")


MINTED = ("token_id", "hash", "session_id", "run_id", "wait_kind", "call_id", "expires_at")


def fold_all_tokens(tokens: Tokens, events: Iterable[Event]) -> Tokens:
    for event in events:
        tokens = fold_tokens(tokens, event)
    return tokens


class Index(msgspec.Struct, frozen=True):
    last_seq: Annotated[int, msgspec.Meta(ge=0)]
    tokens: dict[str, Token]


class TokenIndex:
    """A cache that the log can always replace: a damaged file is ignored."""

    def __init__(self, path: Path) -> None:
        self._file = JsonFile(path, "tokens.save")

    def load(self) -> Index | None:
        try:
            fields = self._file.read()
            return None if fields is None else msgspec.convert(fields, Index)
        except (Damaged, msgspec.ValidationError):
            return None

    def save(self, last_seq: int, tokens: Tokens) -> None:
        kept = self._file.read_what_is_readable()
        known = kept.get("tokens")
        # A token that only this file lists does not exist.
        kept["tokens"] = {name: known[name] for name in known if name in tokens} if known else {}
        self._file.write(overlay(kept, msgspec.to_builtins(Index(last_seq, dict(tokens)))))
