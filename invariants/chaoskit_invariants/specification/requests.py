"""Rules about requests: what a client may be answered, and when a request may end without an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chaoskit.model import Violation
from chaoskit_invariants.specification.facts import ENDS, Ask, Facts, Operation
from chaoskit_invariants.specification.words import (
    BUSY,
    NOT_DURABLE,
    PASSING,
    POSTS,
    STOPPING,
    TALKS,
    request_of,
    words_of,
)


def answers(facts: Facts) -> Iterator[Violation]:
    known: dict[str, str] = {}
    since: dict[str, float] = {}
    for operation in facts.named(*TALKS):
        request = request_of(operation)
        answer = operation.result.get("answer") if operation.result else None
        if answer is None:
            later = operation.began > since.get(request, float("inf"))
            if later and operation.state in ("failed", "cancelled", "running", "waiting"):
                yield Violation("forgotten", f"{request} was answered, and is later {operation.state}")
            continue
        since[request] = min(since.get(request, float("inf")), operation.ended)
        if known.setdefault(request, answer) != answer:
            yield Violation("changed", f"{request} was answered {known[request]!r}, and later {answer!r}")
        words = words_of(facts, request)
        if words is not None and not any(_replied(ask, words, answer) for ask in facts.asks):
            yield Violation(
                "invented", f"{request} was answered {answer!r}, which the model never replied to it"
            )

    yield from _asked_again(facts, since)


def _asked_again(facts: Facts, since: dict[str, float]) -> Iterator[Violation]:
    """Once a request is answered, the model is not asked for it again; requests with equal words are not told
    apart."""
    requests: dict[str, set[str]] = {}
    for operation in facts.named(*POSTS):
        requests.setdefault(operation.args["words"], set()).add(request_of(operation))
    for request, answered_at in since.items():
        words = words_of(facts, request)
        if words is None or requests.get(words) != {request}:
            continue
        if any(ask.place > answered_at and ask.words == words for ask in facts.asks):
            yield Violation("asked again", f"{request} was answered, and the model is asked for it again")


def _replied(ask: Ask, words: str, answer: str) -> bool:
    return ask.reply is not None and ask.reply["text"] == answer and ask.words == words


def justified(facts: Facts) -> Iterator[Violation]:
    for operation in facts.named(*TALKS, "cancel"):
        if operation.state == "failed" and operation.result is not None:
            reason = operation.result.get("reason", "")
            if not _is_justified(facts, operation, reason):
                request = request_of(operation)
                yield Violation(
                    "unjustified", f"{request} failed: {reason!r}, which nothing in the run explains"
                )


def _is_justified(facts: Facts, operation: Operation, reason: str) -> bool:
    """An outcome may be reported again later: what explains it may lie before this boot."""
    boots = [boot["options"] for at, boot in facts.boots if at <= operation.ended]
    words = words_of(facts, request_of(operation))
    mine = [ask for ask in facts.asks if words in (None, ask.words) and ask.place < operation.ended]
    if reason.startswith("the budget is spent"):
        return any(reason.endswith(f"of {options.get('limit_tokens')} tokens") for options in boots)
    if reason.startswith("no answer within"):
        limits = [options.get("max_turns", 50) for options in boots]
        turns = len({(n, len(ask.said)) for n, ask in enumerate(mine) if ask.reply})
        return any(reason == f"no answer within {limit} turns" and turns >= limit for limit in limits)
    if reason.startswith("stopped by a hook"):
        return any(hook["do"] == "stop" for place, hook in facts.hooks if place < operation.ended)
    failures = Counter(ask.turn for ask in mine if ask.failure)
    final = any(ask.failure and ask.failure["status"] not in PASSING for ask in mine)
    retries = min((options.get("max_retries", 3) for options in boots), default=3)
    return final or any(times >= retries + 1 for times in failures.values())


def limits(facts: Facts) -> Iterator[Violation]:
    """No request to the model beyond the turn limit; turns before a restart or a wait count."""
    for ask in facts.asks:
        limit = facts.boot_at(ask.place)["options"].get("max_turns")
        if limit is not None and ask.turn >= limit:
            yield Violation("endless", f"the model was asked for turn {ask.turn + 1} of at most {limit}")


def cancelled(facts: Facts) -> Iterator[Violation]:
    """A later post of another request supersedes one that waits."""
    for operation in facts.named(*TALKS):
        if operation.state == "cancelled":
            request = request_of(operation)
            before = [o for o in facts.operations if o.began < operation.ended]
            if not any(o.name == "cancel" or _supersedes(o, request) for o in before):
                yield Violation("uncancelled", f"{request} is cancelled, but nobody cancelled it")
    for operation in facts.named("cancel"):
        yield from _stays_cancelled(facts, operation)
    yield from _stays_superseded(facts)


def _supersedes(operation: Operation, request: str) -> bool:
    return operation.name in (*POSTS, "other words") and request_of(operation) != request


def _stays_superseded(facts: Facts) -> Iterator[Violation]:
    """A request that waits when a client posts another one, which is accepted, never waits again."""
    waiting: set[str] = set()
    superseded: dict[str, str] = {}
    boots = [place for place, _ in facts.boots]
    for before, operation in zip([None, *facts.operations], facts.operations, strict=False):
        if before and any(before.began < boot < operation.began for boot in boots):
            waiting.clear()
        request = request_of(operation)
        if operation.name not in (*TALKS, "read", "used token", "other words", "open"):
            waiting.clear()  # it may have been resumed, or have ended
        elif operation.name in POSTS and _is_accepted(facts, operation):
            superseded |= dict.fromkeys(waiting - {request}, request)
        if operation.state == "waiting" and operation.name in TALKS:
            if request in superseded and operation.life not in facts.struck:
                yield Violation("superseded", f"{request} waits, although {superseded[request]} was accepted")
            waiting.add(request)


def _is_accepted(facts: Facts, post: Operation) -> bool:
    acks = (ack for place, ack in facts.acks if post.began < place < post.ended and ack.name == "accepted")
    return post.state is not None and any(ack.data["request"] == request_of(post) for ack in acks)


def _stays_cancelled(facts: Facts, cancel: Operation) -> Iterator[Violation]:
    request = request_of(cancel)
    if cancel.state not in ("running", "cancelled") or not request:
        return
    words = words_of(facts, request)
    same = [o for o in facts.named(*POSTS) if o.args.get("words") == words and request_of(o) != request]
    until = _ended_otherwise(facts, request, cancel)
    for ask in facts.asks:
        # Requests with the same words cannot be told apart in a conversation.
        late = cancel.ended < ask.place < until
        if late and ask.words == words and not same and cancel.state == "running":
            yield Violation("cancel lost", f"{request} was cancelled, and the model is asked for it again")
            return
    for operation in facts.named(*TALKS):
        late = cancel.ended < operation.ended < until
        if late and request_of(operation) == request and operation.state == "waiting":
            yield Violation("cancel lost", f"{request} was cancelled, and waits")
            return


def _ended_otherwise(facts: Facts, request: str, cancel: Operation) -> float:
    """Where a client saw that the request had failed or was answered at the moment it was cancelled."""
    talks = (o for o in facts.named(*TALKS) if request_of(o) == request and o.ended > cancel.began)
    return min((o.ended for o in talks if o.state in ("failed", "answered")), default=float("inf"))


def ends(facts: Facts) -> Iterator[Violation]:
    finishing = [o for o in facts.named(*POSTS) if o.args.get("finishing") and o.began > _last_crash(facts)]
    latest = {request_of(operation): operation for operation in finishing}
    for request, operation in latest.items():
        if operation.result is None or _excused(facts, operation):
            continue
        if operation.state not in ENDS and operation.refused != "request_id_reused":
            yield Violation("unfinished", f"{request} does not come to its end: {_shown(operation)}")
    for operation in facts.named("post"):
        is_canary = operation.args["request"].startswith(f"{facts.session}-canary")
        refused = operation.result is not None and operation.state != "answered"
        if is_canary and refused and not _excused(facts, operation):
            yield Violation("unusable", f"a new request to {facts.session} gets {_shown(operation)}")


def _last_crash(facts: Facts) -> int:
    return max(facts.crashes, default=-1)


def _excused(facts: Facts, operation: Operation) -> bool:
    """In a life whose disk fails, nothing can be promised but to say so."""
    return operation.life in facts.struck and operation.refused in (
        BUSY,
        NOT_DURABLE,
        STOPPING,
        BUSY,
        "unknown_session",
    )


def _shown(operation: Operation) -> str:
    result = operation.result or {}
    return ", ".join(f"{key} {value!r}" for key, value in result.items()) or "no answer"
