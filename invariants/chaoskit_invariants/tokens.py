"""tokens: a resume token ends its wait once, for one request, and what was reported about it stays true.

Verifies the acknowledgements to clients (acks `resumed` and `refused`) against the final log: at most one
`token.consumed` for each token, by the request that got `resumed`, with the result that it sent, and not
after the token was revoked or had expired. A client that got `resumed` gets it again when it repeats its
request. Also verifies that no stored file (probe `end`, `files`) contains a secret (`never`). Cannot see a
token that no client used.

Smallest history that breaks it: ack resumed token T request A, ack resumed token T request B.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from chaoskit.model import Ack, History, Invariant, NothingToJudge, Probe, Violation, last


def check(history: History) -> Iterator[Violation]:
    told = [ack for ack in history.of(Ack) if ack.name in ("resumed", "refused")]
    end = last(history.of(Probe, "end"))
    if end is None and not told:
        raise NothingToJudge
    yield from _told(told)
    if end is not None:
        events = [json.loads(line) for line in end.data["log"]]
        lines = [event for event in events if str(event["kind"]).startswith("token.")]
        yield from _lines(lines)
        yield from _kept(told, lines)
        for content in end.data.get("files", []):
            if end.data["never"] in content:
                yield Violation("secret", "a file contains the secret of a token, not only its hash")


def _told(told: list[Ack]) -> Iterator[Violation]:
    winners: dict[str, str] = {}
    for ack in told:
        token, request = ack.data["token"], ack.data["request"]
        if ack.name == "resumed":
            winner = winners.setdefault(token, request)
            if winner != request:
                yield Violation("doubled", f"{token} resumed its run for both {winner} and {request}")
        elif winners.get(token) == request:
            yield Violation(
                "forgotten",
                f"{request} resumed with {token}, but was refused when it retried: {ack.data['code']}",
            )


def _lines(lines: list[dict[str, Any]]) -> Iterator[Violation]:
    over: dict[str, str] = {}
    for line in lines:
        kind, token = line["kind"], line["token_id"]
        if kind != "token.minted" and token in over:
            yield Violation("used up", f"{kind} for {token}, which already had {over[token]}")
        elif kind != "token.minted":
            over[token] = kind


def _kept(told: list[Ack], lines: list[dict[str, Any]]) -> Iterator[Violation]:
    consumed = {
        line["token_id"]: (line["request_id"], line["result"])
        for line in lines
        if line["kind"] == "token.consumed"
    }
    for ack in told:
        if ack.name != "resumed":
            continue
        wanted = (ack.data["request"], ack.data["result"])
        found = consumed.get(ack.data["token"])
        if found is None:
            yield Violation("lost", f"{wanted[0]} was answered as resumed, but the log has no record of it")
        elif found != wanted:
            yield Violation("changed", f"{ack.data['token']} was consumed by {found}, not {wanted}")


INVARIANT = Invariant(
    name="tokens",
    summary="a resume token works once, for one request, and its secret is never stored",
    check=check,
)
