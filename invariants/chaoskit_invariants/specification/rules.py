"""The rules of the specification, each a pure function of the facts of one session."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from chaoskit.model import Violation
from chaoskit_invariants.specification import agreement, conversation, effects, refusals, requests
from chaoskit_invariants.specification.facts import Facts

Rule = Callable[[Facts], Iterator[Violation]]
RULES: dict[str, Rule] = {
    "answers": requests.answers,
    "justified": requests.justified,
    "limits": requests.limits,
    "cancelled": requests.cancelled,
    "ends": requests.ends,
    "refusals": refusals.refusals,
    "once": effects.once,
    "agrees": effects.agrees,
    "explained": effects.explained,
    "valid": conversation.valid,
    "closed": conversation.closed,
    "stands": conversation.stands,
    "complete": conversation.complete,
    "retries": agreement.retries,
    "budget": agreement.budget,
    "tokens": agreement.tokens,
    "brought": agreement.brought,
    "events": agreement.events,
    "one story": agreement.one_story,
}
