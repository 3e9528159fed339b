"""specification: what clients observe is what the specification allows.

Verifies the whole history of a generated workload against `chaoskit_invariants.specification`: its docstring
lists the rules. The kind of a violation is `rule: what`. Cannot see what no client, model, tool or reader
observed.

Smallest history that breaks it: a request is answered, and answered differently when it is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaoskit.model import History, Invariant, NothingToJudge, Violation
from chaoskit_invariants.specification.facts import facts_of
from chaoskit_invariants.specification.rules import RULES


def check(history: History) -> Iterator[Violation]:
    sessions = facts_of(history)
    if not sessions:
        raise NothingToJudge
    for facts in sessions:
        for name, rule in RULES.items():
            seen: set[str] = set()
            for violation in rule(facts):
                if violation.kind not in seen:
                    seen.add(violation.kind)
                    yield Violation(
                        f"{name}: {violation.kind}", f"session {facts.session}: {violation.message}"
                    )


INVARIANT = Invariant(
    name="specification",
    summary="what clients observe is what the specification of the agent allows",
    check=check,
)
