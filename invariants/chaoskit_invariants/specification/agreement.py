"""Rules about everything else: retries, budget, tokens, events, and that all parts tell one story."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from chaoskit.model import Violation
from chaoskit_invariants import status, tokens as token_lines
from chaoskit_invariants.specification.conversation import answered_by_words
from chaoskit_invariants.specification.facts import Ask, Facts, Operation
from chaoskit_invariants.specification.words import PASSING, POSTS, WAITS, Json, request_of

GONE = {"token_wrong_wait", "token_revoked", "token_unknown", "token_wrong_run"}


def retries(facts: Facts) -> Iterator[Violation]:
    for before, after in zip(facts.asks, facts.asks[1:], strict=False):
        wanted = before.failure and before.failure["status"] in PASSING and before.failure["retry_after"]
        waited = after.time - before.time
        if wanted and waited < wanted - 1e-6 and _is_retry(facts, before, after):
            yield Violation("hasty", f"the model wanted {wanted} s, and was asked again after {waited:.2f} s")
    yield from _too_often(facts)


def _is_retry(facts: Facts, before: Ask, after: Ask) -> bool:
    """Whether the agent asks again by itself, in the same boot: no client has asked for it meanwhile."""
    asked = facts.named(*POSTS, "continue", "resume", "race")
    same = (before.life, before.boot, before.said) == (after.life, after.boot, after.said)
    return same and not any(before.place < operation.began < after.place for operation in asked)


def _too_often(facts: Facts) -> Iterator[Violation]:
    """Consecutive attempts within one boot for the same conversation."""
    count, last = 0, None
    for ask in facts.asks:
        key = (ask.life, ask.boot, json.dumps(ask.said, sort_keys=True))
        count = count + 1 if key == last else 1
        last = key
        limit = facts.boot_at(ask.place)["options"].get("max_retries", 3) + 1
        posted = sum(
            1
            for o in facts.named(*POSTS, "continue", "resume", "race")
            if o.began < ask.place and o.life == ask.life
        )
        if count > limit * max(1, posted):
            yield Violation(
                "stubborn", f"the model was asked {count} times, with at most {limit} attempts allowed"
            )


def budget(facts: Facts) -> Iterator[Violation]:
    spent = 0
    for ask in facts.asks:
        limit = facts.boot_at(ask.place)["options"].get("limit_tokens")
        if limit is not None and spent >= limit:
            yield Violation("overspent", f"the model was asked with {spent} of {limit} tokens spent")
        if ask.decided:
            spent += ask.tokens
    if facts.end is not None:
        used = sum(tokens for _, tokens in facts.end.data["usage"])
        if facts.end.data["spent"] != used:
            yield Violation("budget", f"the budget says {facts.end.data['spent']} tokens, the usage {used}")
        if used < spent:
            yield Violation("budget", f"{spent} tokens were acknowledged as used, {used} are recorded")


def tokens(facts: Facts) -> Iterator[Violation]:
    """The newest token of a wait is refused although nothing that a client could see has ended it."""
    for operation in facts.named("resume"):
        if operation.refused in GONE and operation.args.get("which") == "newest":
            given = _token_given(facts, operation)
            if given is not None and not _ended_between(facts, given, operation):
                yield Violation(
                    "token lost", f"{operation} is refused as {operation.refused}: nothing had ended its wait"
                )
    yield from _used_by_one_client(facts)


def _used_by_one_client(facts: Facts) -> Iterator[Violation]:
    """Whoever used a token may repeat that. Nobody else can use it. A client without a name is known by the
    result that it brings."""
    accepted: dict[str | None, set[str]] = {}
    nameless = facts.given.get("nameless")
    for operation in facts.named("resume"):
        if operation.result and operation.refused is None and operation.state == "running":
            client = operation.args["as"]
            who = f"{client} with {operation.args['result']!r}" if client == nameless else client
            accepted.setdefault(_presented(facts, operation), set()).add(who)
    for token, clients in accepted.items():
        if len(clients) > 1:
            yield Violation("used twice", f"{token} was accepted from {' and '.join(sorted(clients))}")


def brought(facts: Facts) -> Iterator[Violation]:
    """A result that was accepted is the result of its call. Judged for requests that were answered, and never
    failed or were cancelled: the turns of others may be rolled back."""
    if facts.end is None or any(hook["on"] == "PreToolUse" for _, hook in facts.hooks):
        return
    lines = map(json.loads, facts.end.data["log"])
    requests = {line["run_id"]: line.get("request_id") for line in lines if line["kind"] == "run.started"}
    answered = {request for found in answered_by_words(facts).values() for request in found}
    accepted = [found for found in _accepted_results(facts) if requests.get(found.run) in answered]
    conversation = facts.end.data["conversation"]
    waited = {call_id for m in conversation for call_id, tool, _ in m.get("calls", ()) if tool == WAITS}
    there = Counter(m["text"] for m in conversation if m["role"] == "tool" and m["call"] in waited)
    for result, times in Counter(found.result for found in accepted).items():
        if times > there[result]:
            yield Violation(
                "result lost",
                f"{result!r} was accepted {times} times as a result, and is there {there[result]} times",
            )


class _Accepted(NamedTuple):
    run: str
    result: str


def _accepted_results(facts: Facts) -> Iterator[_Accepted]:
    """What was accepted with each token: the first result. A repeat, with whatever result, changes nothing;
    after one without an answer nobody knows whether it was the first."""
    presented: dict[str, list[Operation]] = {}
    for operation in facts.named("resume"):
        token = _presented(facts, operation)
        if token is not None and operation.refused is None:
            presented.setdefault(token, []).append(operation)
    for operations in presented.values():
        runs = [(operation.result or {}).get("run_id") for operation in operations]
        results = {operation.args["result"] for operation in operations}
        if runs[0] or (any(runs) and len(results) == 1):
            yield _Accepted(next(filter(None, runs)), operations[0].args["result"])


def _presented(facts: Facts, operation: Operation) -> str | None:
    """The token that it presented; nothing, if its process died before."""
    later = (ack for place, ack in facts.acks if place > operation.began and ack.life == operation.life)
    return next((str(ack.data["token"]) for ack in later if ack.name == "presented"), None)


def _token_given(facts: Facts, operation: Operation) -> Operation | None:
    handed = [o for o in facts.operations if o.result and o.result.get("token") and o.ended < operation.began]
    return handed[-1] if handed else None


def _ended_between(facts: Facts, given: Operation, used: Operation) -> bool:
    """Anything in between may have, except that an older token was presented."""
    every = [o for o in (*facts.operations, *facts.process) if o is not given and o is not used]
    between = [o for o in every if o.ended > given.began and o.began < used.ended]
    watching = ("read", "outcome", "sweep")
    harmless = [o for o in between if o.name in watching or o.refused or _is_old(facts, o, given)]
    crashed = any(given.ended < place < used.began for place in facts.crashes)
    return crashed or given.life != used.life or len(harmless) < len(between)


def _is_old(facts: Facts, operation: Operation, given: Operation) -> bool:
    """Whether an older token of this session was presented, after the newer one had been given."""
    if operation.name == "used token":
        return operation.began > given.ended
    if operation.name != "resume" or operation.args.get("which") != "first" or operation.began < given.ended:
        return False
    handed = [o.result["token"] for o in facts.operations if o.result and o.result.get("token")]
    return bool(given.result and handed and handed[0] != given.result["token"])


def one_story(facts: Facts) -> Iterator[Violation]:
    if facts.end is None:
        return
    data = facts.end.data
    lines = list(map(json.loads, data["log"]))
    derived = status.expected(lines[: data["lines"]], data["boot"], data["now"])
    if data["status"] != derived:
        yield Violation("status", f"{facts.session} is {data['status']}, but its log implies {derived}")
    if data["status"] != "idle" and facts.end.life not in facts.struck:
        yield Violation("status", f"{facts.session} is {data['status']} after everything has ended")
    stored = [[row[0], row[1]] for row in data["messages"]]
    if len(stored) != len(data["conversation"]):
        yield Violation(
            "memory", f"{len(stored)} messages are stored, {len(data['conversation'])} are in memory"
        )
    for number, line in enumerate(lines, 1):
        if line.get("seq") != number:
            yield Violation("gap", f"line {number} of the log has seq {line.get('seq')}")
    jotted = sum(
        message["role"] == "tool" and message["text"].startswith("note ") for message in data["conversation"]
    )
    if data["notes"] < jotted:
        yield Violation("notes", f"{jotted} notes are said to be written, {data['notes']} are there")
    for wrong in status.recorded(lines):
        yield Violation("status", f"{facts.session}: {wrong.message}")
    yield from _boots(facts)
    yield from _ends_of_runs(facts, lines)
    yield from _runs_of_requests(facts, lines)
    if all(boot.get("served", True) for _, boot in facts.boots):  # else the next server revokes them
        yield from _tokens_of_ended_runs(lines)
    yield from token_lines.ends_once([line for line in lines if line["kind"].startswith("token.")])
    yield from _resumed_with_their_token(lines)
    yield from _turns(facts, lines)


def _ends_of_runs(facts: Facts, lines: list[Json]) -> Iterator[Violation]:
    over = ("run.completed", "run.failed", "run.cancelled", "run.interrupted")
    for line in lines:
        if line["kind"] == "run.started":
            kinds = [
                each["kind"]
                for each in lines
                if each.get("run_id") == line["run_id"] and each["kind"] in over
            ]
            interrupted = kinds.count("run.interrupted")
            if interrupted > 1 or len(kinds) - interrupted > 1 or not kinds:
                yield Violation("runs", f"{line['run_id']} of {facts.session} ends as {kinds or 'nothing'}")


def _boots(facts: Facts) -> Iterator[Violation]:
    """A run that a boot has to interrupt was interrupted by the restart, whatever else has passed since."""
    for _, boot in facts.boots:
        found = boot.get("found", {}).get(facts.session)
        if found and "run.interrupted" in found["appended"] and found["status"] != "interrupted_startup":
            yield Violation(
                "status", f"a boot interrupted a run of {facts.session}, which is {found['status']} then"
            )


def _tokens_of_ended_runs(lines: list[Json]) -> Iterator[Violation]:
    """A run is interrupted only when nobody can resume it any more: its tokens come first."""
    open_tokens: dict[str, str] = {}  # token -> run
    for line in lines:
        if line["kind"] == "token.minted":
            open_tokens[line["token_id"]] = line["run_id"]
        elif line["kind"].startswith("token."):
            open_tokens.pop(line["token_id"], None)
        elif line["kind"] == "run.interrupted" and line["run_id"] in open_tokens.values():
            yield Violation("runs", f"{line['run_id']} was interrupted while its token was good")


def _resumed_with_their_token(lines: list[Json]) -> Iterator[Violation]:
    """Once its token is consumed, a run is resumed before anything else becomes of it."""
    consumed: set[str] = set()
    run_of = {line["token_id"]: line["run_id"] for line in lines if line["kind"] == "token.minted"}
    for line in lines:
        if line["kind"] == "token.consumed":
            consumed.add(run_of.get(line["token_id"], ""))
        elif line["kind"] == "run.resumed":
            consumed.discard(line["run_id"])
        elif line["kind"].startswith("run.") and line["run_id"] in consumed:
            yield Violation(
                "runs", f"{line['run_id']}: {line['kind']} after its token was consumed, not resumed"
            )


def _turns(facts: Facts, lines: list[Json]) -> Iterator[Violation]:
    """A turn is completed once, when all its calls have their results."""
    completed = Counter(line["turn"] for line in lines if line["kind"] == "turn.completed")
    for turn, times in completed.items():
        if times > 1:
            yield Violation("turns", f"turn {turn} of {facts.session} is completed {times} times")


def _runs_of_requests(facts: Facts, lines: list[Json]) -> Iterator[Violation]:
    """The run that a client was given for its request is in the log, for this request."""
    started = {line["run_id"]: line.get("request_id") for line in lines if line["kind"] == "run.started"}
    for operation in facts.named(*POSTS, "outcome"):
        run = operation.result.get("run_id") if operation.result else None
        if run is not None and started.get(run) != request_of(operation):
            owner = started.get(run, "nothing")
            yield Violation(
                "runs", f"{request_of(operation)} was accepted as {run}, which the log has for {owner}"
            )


def events(facts: Facts) -> Iterator[Violation]:
    """A stream, however often it is cut: every line that clients may watch, once, in order."""
    seen = [e.args for _, e in facts.effects if e.action == "remember" and "id" in e.args]
    if facts.end is None or not seen:
        return
    lines = {line["seq"]: line for line in map(json.loads, facts.end.data["log"])}
    observed = [seq for seq, line in lines.items() if line["kind"] in ("status.derived", "run.interrupted")]
    ids = [event["id"] for event in seen]
    if ids != [seq for seq in observed if seq <= ids[-1]]:
        missing = sorted({seq for seq in observed if seq <= ids[-1]} - set(ids))
        yield Violation("stream", f"a client saw events {ids[-8:]}; missing: {missing[:8]}")
    for event in seen:
        line = lines.get(event["id"], {})
        if (event["kind"], event["status"], event["run"]) != (
            line.get("kind"),
            line.get("status"),
            line.get("run_id"),
        ):
            yield Violation("stream", f"event {event['id']} was {event}, but its line is {line}")
