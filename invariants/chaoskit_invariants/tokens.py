"""tokens: a resume token ends its wait once, for one request, and what was reported about it stays true.

Verifies the acknowledgements to clients (acks `resumed` and `refused`) against the final log. Each token has
at most one `token.consumed`: by the request that got `resumed`, with the result that it sent, after the
token was minted, before it was revoked or expired, and before the deadline of its wait. A token does not
expire early. A client that got `resumed` gets it again when it repeats its request. A token is refused as
used or revoked only if it was. A run whose token was consumed does not wait forever. Also verifies that no
stored file (probe `end`, `files`) contains a secret (`never`). Cannot see a token that no client used, nor
what happened within the second in which a token expires.

Smallest history that breaks it: ack resumed token T request A, ack resumed token T request B.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from chaoskit.model import Ack, History, Invariant, NothingToJudge, Probe, Violation, last

Line = dict[str, Any]
USED_UP = ("consumed", "revoked")  # reasons for a refusal that are lines of the log, too
ENDS_OF_WAITS = ("run.resumed", "run.completed", "run.failed", "run.cancelled", "run.interrupted")


def check(history: History) -> Iterator[Violation]:
    told = [ack for ack in history.of(Ack) if ack.name in ("resumed", "refused")]
    end = last(history.of(Probe, "end"))
    if end is None and not told:
        raise NothingToJudge
    yield from _told(told)
    if end is not None:
        events = [json.loads(line) for line in end.data["log"]]
        lines = [event for event in events if str(event["kind"]).startswith("token.")]
        yield from ends_once(lines)
        yield from _in_time(events)
        yield from _kept(told, lines)
        yield from _resumed(events)
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


def ends_once(lines: list[Line]) -> Iterator[Violation]:
    """Minted once, first; then one more line."""
    over: dict[str, str] = {}
    minted: set[str] = set()
    for line in lines:
        kind, token = line["kind"], line["token_id"]
        if kind == "token.minted":
            if token in minted:
                yield Violation("reminted", f"{token} was minted twice")
            minted.add(token)
        elif token in over:
            yield Violation("used up", f"{kind} for {token}, which already had {over[token]}")
        else:
            over[token] = kind
            if token not in minted:
                yield Violation("unminted", f"{kind} for {token}, which had not been minted")


def _in_time(events: list[Line]) -> Iterator[Violation]:
    limits: dict[str, list[float]] = {}  # of a token: its expiry, and the deadlines of its waits
    expiry: dict[str, float] = {}
    for event in events:
        kind = event["kind"]
        token = event.get("resume_token_id" if kind == "run.waiting" else "token_id")
        if token is None:
            continue
        time = _seconds(event.get("ts"))
        limit = _seconds(event.get("deadline_at" if kind == "run.waiting" else "expires_at"))
        if kind in ("token.minted", "run.waiting") and limit is not None:
            limits.setdefault(token, []).append(limit)
        if kind == "token.minted" and limit is not None:
            expiry[token] = limit
        # The time of a line is in whole seconds: it was written within the one that follows.
        if kind == "token.consumed" and time is not None and time >= min(limits.get(token, [time + 1])):
            yield Violation("expired", f"{token} was consumed after it had expired")
        if kind == "token.expired" and time is not None and time + 1 <= expiry.get(token, time):
            yield Violation("early", f"{token} is recorded as expired before it had expired")


def _seconds(stamp: str | None) -> float | None:
    return None if stamp is None else datetime.fromisoformat(stamp).timestamp()


def _kept(told: list[Ack], lines: list[Line]) -> Iterator[Violation]:
    over = {line["token_id"]: line for line in lines if line["kind"] != "token.minted"}
    minted = {line["token_id"] for line in lines if line["kind"] == "token.minted"}
    for ack in told:
        token = ack.data["token"]
        line = over.get(token)
        if ack.name == "refused":
            code = ack.data["code"]
            if (code in USED_UP and line is None) or (code == "unknown" and token in minted):
                yield Violation("refused", f"{token} was refused as {code}, but the log says otherwise")
            continue
        wanted = (ack.data["request"], ack.data["result"])
        if line is None or line["kind"] != "token.consumed":
            yield Violation("lost", f"{wanted[0]} was reported as resumed, but the log has no record of it")
        elif (line["request_id"], line["result"]) != wanted:
            found = (line["request_id"], line["result"])
            yield Violation("changed", f"{token} was consumed by {found}, not {wanted}")


def _resumed(events: list[Line]) -> Iterator[Violation]:
    runs = {e["token_id"]: e.get("run_id") for e in events if e["kind"] == "token.minted"}
    for number, event in enumerate(events):
        run = runs.get(event["token_id"]) if event["kind"] == "token.consumed" else None
        if run is None:
            continue
        if not any(e.get("run_id") == run and e["kind"] in ENDS_OF_WAITS for e in events[number:]):
            yield Violation("stuck", f"{event['token_id']} was consumed, but {run} still waits")


INVARIANT = Invariant(
    name="tokens",
    summary="a resume token works once, for one request, and its secret is never stored",
    check=check,
)
