"""Rules about refusals: each has a reason that the client can see, and nothing else is ever raised."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from chaoskit.model import Violation
from chaoskit_invariants.specification.facts import ENDS, Facts, Operation
from chaoskit_invariants.specification.words import BUSY, NOT_DURABLE, NOTHING, POSTS, STOPPING, request_of


def refusals(facts: Facts) -> Iterator[Violation]:
    for operation in facts.operations:
        if operation.result and "broke" in operation.result:
            yield Violation("broken", f"{operation}: {operation.result['broke']}")
        elif operation.refused and not _may_refuse(facts, operation, operation.refused):
            said = operation.result.get("said", "") if operation.result else ""
            yield Violation(
                "refused", f"{operation} is refused as {operation.refused} without a reason {said}"
            )
    yield from _accepts_other_words(facts)


def _may_refuse(facts: Facts, operation: Operation, code: str) -> bool:
    if code.startswith("token_"):
        return operation.name in ("resume", "race", "rotate", "used token")
    reason = REASONS.get(code)
    return reason is not None and reason(facts, operation)


def _reused(facts: Facts, operation: Operation) -> bool:
    if operation.name == "other words":
        return True
    others = facts.named("other words")
    return any(request_of(o) == request_of(operation) and o.began < operation.ended for o in others)


def _others(facts: Facts, operation: Operation, *names: str) -> bool:
    every = (*facts.operations, *facts.process)
    return any(o.overlaps(operation) for o in every if o is not operation and o.name in names)


def _may_be_running(facts: Facts, operation: Operation) -> bool:
    """Another operation of the session overlaps, or one of this boot did not wait for the end.

    Nor does one that is answered with an error of the disk: only what it wanted to report has failed.
    """
    for other in facts.operations:
        if other is operation or other.life != operation.life or other.began > operation.ended:
            continue
        left_it = other.result is None or other.state == "running" or "left" in other.result
        left_it = left_it or other.refused == NOT_DURABLE
        if other.overlaps(operation) or left_it or other.name in ("resume", "race", "continue"):
            return True
    return False


def _has_nothing(facts: Facts, operation: Operation) -> bool:
    """`continue` may be refused unless the session says that a run was interrupted.

    With a failing disk the session cannot record that the run has ended since. Another client may end it at
    this moment.
    """
    result = operation.result or {}
    is_interrupted = result.get("status") in ("interrupted_startup", "interrupted_waiting")
    ended = operation.life in facts.struck or _others(facts, operation, "cancel", "continue", *POSTS)
    return ended or not is_interrupted


def _accepts_other_words(facts: Facts) -> Iterator[Violation]:
    for operation in facts.named("other words"):
        accepted = [
            o
            for o in facts.named(*POSTS)
            if request_of(o) == request_of(operation) and o.ended < operation.began and o.state in ENDS
        ]
        if accepted and operation.state is not None and operation.refused is None:
            yield Violation("reused", f"{request_of(operation)} was accepted again with other words")


Reason = Callable[[Facts, Operation], bool]
REASONS: dict[str, Reason] = {
    NOT_DURABLE: lambda facts, operation: operation.life in facts.struck,
    "unknown_session": lambda facts, operation: operation.life in facts.struck,
    STOPPING: lambda facts, operation: _others(facts, operation, "restart"),
    "session_busy": lambda facts, operation: operation.name == "twin" or _others(facts, operation, "twin"),
    "request_id_reused": _reused,
    BUSY: _may_be_running,
    NOTHING: lambda facts, operation: (
        operation.name in ("rotate", "cancel") or _has_nothing(facts, operation)
    ),
}
