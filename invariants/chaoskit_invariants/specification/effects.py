"""Rules about effects: once for each call, and what the conversation says happened, happened."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from chaoskit.model import Violation
from chaoskit_invariants.specification.conversation import answered_by_words
from chaoskit_invariants.specification.facts import Facts, segments
from chaoskit_invariants.specification.words import CANCELLED, DONE, NOT_RUN, TOOLS, UNKNOWN, Json


def once(facts: Facts) -> Iterator[Violation]:
    decided = _decided_calls(facts)
    by_key: Counter[tuple[str, str, Any]] = Counter()
    by_label: Counter[str] = Counter()
    for _, effect in facts.effects:
        if effect.applied:
            label = str(effect.args.get("n"))
            by_key[effect.service, label, effect.key] += 1
            by_label[label] += 1
    failed = _failed_calls(facts)
    for (service, label, _), times in by_key.items():
        if times > 1 + len(failed[label]):
            yield Violation("doubled", f"{service} {label} happened {times} times for one call")
    changing = any(hook["do"] == "change" for _, hook in facts.hooks)
    for label, times in by_label.items():
        calls = decided.get(label, {})
        if not calls:
            yield Violation("undecided", f"{label} happened, but the model never decided it")
        elif "tip" not in calls.values() and times > 1 + len(failed[label]) and not changing:
            yield Violation("doubled", f"{label} happened {times} times, for equal calls")
        elif times > len(calls):
            yield Violation("doubled", f"{label} happened {times} times, for {len(calls)} calls")


def _failed_calls(facts: Facts) -> dict[str, set[str]]:
    """By label: the calls that ended in an error which the model was shown. It may decide to try again."""
    conversations = [ask.said for ask in facts.asks] + ([facts.end.data["conversation"]] if facts.end else [])
    found: dict[str, set[str]] = defaultdict(set)
    for said in conversations:
        calls = {call_id: (tool, str(label)) for m in said for call_id, tool, label in m.get("calls", ())}
        for message in said:
            tool, label = calls.get(message.get("call", ""), ("", ""))
            final = NOT_RUN if tool == "note" else (UNKNOWN, *NOT_RUN)  # of a note the model is only told
            text = message["text"] if message["role"] == "tool" else ""
            if text.startswith("error: ") and not text.startswith(final):
                found[label].add(message["call"])
    return found


def _decided_calls(facts: Facts) -> dict[str, dict[tuple[int, str], str]]:
    """By label: the calls of all replies, by the request they belong to and their id, with their tool."""
    found: dict[str, dict[tuple[int, str], str]] = defaultdict(dict)
    for ask in facts.asks:
        for call_id, tool, label in (ask.reply or {}).get("calls", ()):
            found[str(label)][len(ask.said), call_id] = tool
    return found


def agrees(facts: Facts) -> Iterator[Violation]:
    if facts.end is None:
        return
    results: dict[str, list[tuple[str, str]]] = defaultdict(list)
    conversation = facts.end.data["conversation"]
    tools = {call_id: (tool, label) for m in conversation for call_id, tool, label in m.get("calls", ())}
    for message in conversation:
        if message["role"] == "tool" and message.get("call") in tools:
            tool, label = tools[message["call"]]
            results[str(label)].append((tool, message["text"]))
    happened = Counter(str(e.args.get("n")) for _, e in facts.effects if e.applied)
    vanished = _vanished(facts, conversation)
    for label, found in results.items():
        claims = [tool for tool, text in found if text.startswith(DONE) and tool not in ("jot",)]
        acting = [text for tool, text in found if tool in ("pay", "mail", "post", "note", "tip")]
        if claims and not happened[label]:
            yield Violation("claimed", f"the conversation says that {label} happened, but it did not")
        not_run = acting and label not in vanished and all(text.startswith(NOT_RUN) for text in acting)
        if not_run and happened[label]:
            yield Violation("denied", f"{label} happened, but its result is {acting[0]!r}")
        if claims and "tip" in claims and happened[label] < len(claims):
            yield Violation(
                "claimed", f"{label} is said to have happened {len(claims)} times, not {happened[label]}"
            )


def explained(facts: Facts) -> Iterator[Violation]:
    """A result that is not the tool's own has its reason in this history. Judged for requests that were
    answered, and never failed or were cancelled."""
    if facts.end is None:
        return
    lacking = {tool for _, boot in facts.boots for tool in boot.get("without", ())}
    denied = any(hook["do"] == "deny" for _, hook in facts.hooks)
    answered = answered_by_words(facts)
    for segment in segments(facts.end.data["conversation"]):
        tools = {call_id: tool for m in segment.messages for call_id, tool, _ in m.get("calls", ())}
        for message in segment.messages if segment.words in answered else ():
            tool, text = tools.get(message.get("call", ""), ""), message["text"]
            wrong = (
                (text.startswith("error: there is no tool") and tool in TOOLS and tool not in lacking)
                or (text.startswith("error: denied") and not denied)
                or (text.startswith(CANCELLED) and not _was_given_up(facts, text.removeprefix(CANCELLED)))
                or text.startswith("error: no result was recorded")
            )
            if message["role"] == "tool" and wrong:
                yield Violation("unexplained", f"a call of {tool} has the result {text!r}, for no reason")


def _was_given_up(facts: Facts, reason: str) -> bool:
    """A restart may come after the call got this result, and before its request has failed."""
    if reason.startswith("stopped by a hook"):
        return any(hook["do"] == "stop" for _, hook in facts.hooks)
    options = [boot["options"] for _, boot in facts.boots]
    if reason.startswith("the budget is spent"):
        return any(each.get("limit_tokens") for each in options)
    if reason.startswith("no answer within"):
        return reason in {f"no answer within {each.get('max_turns')} turns" for each in options}
    return any(ask.failure for ask in facts.asks)


def _vanished(facts: Facts, conversation: list[Json]) -> set[str]:
    """Labels of calls that were decided, but are not in the final conversation."""
    there = {call_id for message in conversation for call_id, _, _ in message.get("calls", ())}
    return {
        str(label)
        for ask in facts.asks
        for call_id, _, label in (ask.reply or {}).get("calls", ())
        if call_id not in there
    }
