"""Rules about the conversation: what the model is shown, and what must never change in it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator

from chaoskit.model import Violation
from chaoskit_invariants.specification.facts import Facts, Segment, segments
from chaoskit_invariants.specification.words import TALKS, Json, request_of, words_of


def valid(facts: Facts) -> Iterator[Violation]:
    known = {operation.args["words"] for operation in facts.operations if "words" in operation.args}
    known |= set(facts.given["words"][facts.session])
    for ask in facts.asks:
        yield from _is_valid(ask.said, f"the model was shown (place {ask.place})")
        strangers = (
            {m["text"] for m in ask.said if m["role"] == "user"}
            - known
            - {"hello", "again", "more", "something else"}
        )
        for words in strangers:
            yield Violation("strange", f"the model was shown {words!r}, which nobody said in {facts.session}")


def closed(facts: Facts) -> Iterator[Violation]:
    """A session in which nothing is to be done has no call without its result."""
    for operation in facts.operations:
        result = operation.result or {}
        alone = not any(o.overlaps(operation) for o in facts.operations if o is not operation)
        if alone and result.get("state") in ("idle", "failed", "cancelled") and result.get("open"):
            yield Violation("open", f"{facts.session} is idle, but {result['open'][0]!r} has no result")


def _is_valid(said: list[Json], where: str) -> Iterator[Violation]:
    open_calls: list[str] = []
    seen: set[str] = set()
    for message in said:
        if message["role"] == "tool":
            if message.get("call") not in open_calls:
                yield Violation(
                    "orphan", f"{where} a result for {message.get('call')!r}, which nothing asked for"
                )
            else:
                open_calls.remove(message["call"])
            continue
        if open_calls:
            yield Violation("orphan", f"{where} no result for {open_calls[0]!r}")
            return
        open_calls = [call_id for call_id, _, _ in message.get("calls", ())]
        if seen & set(open_calls) or len(set(open_calls)) < len(open_calls) or "" in open_calls:
            yield Violation("ids", f"{where} two calls with one id, or a call without id")
        seen |= set(open_calls)
    if open_calls:
        yield Violation("orphan", f"{where} no result for {open_calls[0]!r}")


def stands(facts: Facts) -> Iterator[Violation]:
    if facts.end is None:
        return
    final = segments(facts.end.data["conversation"])
    over = answered_by_words(facts)
    for ask in facts.asks:
        if not ask.decided or ask.reply is None:
            continue
        *earlier, own = segments(ask.said)
        based_on = (*own.messages, ask.reply)
        yield from _still_there(final, own.words, based_on, over)
        for segment in earlier:
            if segment.answer is not None:
                yield from _still_there(final, segment.words, segment.messages, over)


def _still_there(
    final: list[Segment], words: str, messages: tuple[Json, ...], over: dict[str, list[str]]
) -> Iterator[Violation]:
    """Judged only if each request with these words was answered: others may be rolled back."""
    mine = [segment for segment in final if segment.words == words]
    if words not in over or len(mine) < len(over[words]):
        return
    if any(None is segment.answer for segment in mine):
        return
    if not any(_begins_with(segment.messages, messages) for segment in mine):
        place = max((_common(segment.messages, messages) for segment in mine), default=0)
        found = [dict(segment.messages[place]) for segment in mine if place < len(segment.messages)][:1]
        yield Violation(
            "replaced", f"a decision for {words!r} was based on {messages[place]}, not on {found}"
        )


def _begins_with(whole: tuple[Json, ...], part: tuple[Json, ...]) -> bool:
    return _common(whole, part) == len(part)


def _common(one: tuple[Json, ...], other: tuple[Json, ...]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if not _same(a, b)), min(len(one), len(other)))


def _same(one: Json, other: Json) -> bool:
    """Ids of calls may have been made unique between reply and conversation."""
    if one["role"] == "assistant":
        calls = ([call[1:] for call in one.get("calls", ())], [call[1:] for call in other.get("calls", ())])
        return bool(other["role"] == "assistant" and one["text"] == other["text"] and calls[0] == calls[1])
    return bool(one["role"] == other["role"] and one["text"] == other["text"])


def answered_by_words(facts: Facts) -> dict[str, list[str]]:
    """By words: the requests that were answered, without words of which one failed or was cancelled."""
    answered: dict[str, set[str]] = defaultdict(set)
    spoiled = set()
    for operation in facts.named(*TALKS):
        request = request_of(operation)
        words = words_of(facts, request)
        if words is None:
            continue
        if operation.state == "answered":
            answered[words].add(request)
        elif operation.state in ("failed", "cancelled"):
            spoiled.add(words)
    for cancel in facts.named("cancel"):
        spoiled.add(words_of(facts, request_of(cancel)) or "")
    spoiled |= _given_up_silently(facts)
    return {words: sorted(found) for words, found in answered.items() if words not in spoiled}


def _given_up_silently(facts: Facts) -> set[str]:
    """Words of requests whose run failed or was cancelled according to the log, unseen by any client."""
    if facts.end is None:
        return set()
    lines = list(map(json.loads, facts.end.data["log"]))
    requests = {line["run_id"]: line.get("request_id") for line in lines if line["kind"] == "run.started"}
    over = [line["run_id"] for line in lines if line["kind"] in ("run.failed", "run.cancelled")]
    return {words_of(facts, requests.get(run) or "") or "" for run in over}


def complete(facts: Facts) -> Iterator[Violation]:
    if facts.end is None:
        return
    there = Counter((s.words, s.answer) for s in segments(facts.end.data["conversation"]))
    answered: dict[str, str] = {}
    for operation in facts.named(*TALKS):
        if operation.state == "answered" and operation.result and operation.result.get("answer") is not None:
            answered[request_of(operation)] = operation.result["answer"]
    wanted = Counter((words_of(facts, request), answer) for request, answer in answered.items())
    for (words, answer), times in wanted.items():
        if words is not None and there[words, answer] < times:
            found = f"{there[words, answer]} times instead of {times}"
            yield Violation(
                "incomplete", f"{words!r} with its answer {answer!r} is in the conversation {found}"
            )
