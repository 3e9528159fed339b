"""exactly-once: every effect of the undisturbed run happened once: none lost, none doubled.

Verifies the Ledger, which is kept outside the target: an act that a service recognised by its key
and did not do again does not count. A lost effect is only judged when the run came to its end.
Cannot see effects on anything but the World.

Smallest history that breaks it: effect, crashed, effect, where the undisturbed run has it once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator

from chaoskit.model import Effect, Ended, History, Invariant, NothingToJudge, Violation


def check(history: History) -> Iterator[Violation]:
    expected = _done(history.expected(Effect))
    if not expected:
        raise NothingToJudge
    done = _done(history.of(Effect))
    for effect, times in (done - expected).items():
        wanted = expected[effect]
        kind = "doubled" if wanted else "unasked"
        yield Violation(kind, f"{effect} was done {wanted + times} times instead of {wanted}")
    if any(end.how == "completed" for end in history.of(Ended)):
        for effect in expected - done:
            yield Violation("lost", f"{effect} was never done")


def _done(effects: Iterable[Effect]) -> Counter[str]:
    return Counter(
        f"{e.service}.{e.action} {json.dumps(e.args, sort_keys=True)}" for e in effects if e.applied
    )


INVARIANT = Invariant(
    name="exactly-once",
    summary="every side effect happens exactly once, however often the agent is killed",
    check=check,
)
