"""recovers: after the last crash the target starts, finishes its work and reports completion.

Verifies that the last life of a run completed, and that no life ever hung (a life that encounters a disk
error may stop with an error, but must not hang). Cannot see whether its work was correct: the other
invariants check that. A death that chaoskit did not cause is not judged here; the supervisor marks such a
run as doubtful.

Smallest history that breaks it: born, crashed, born, ended(failed).
"""

from __future__ import annotations

from collections.abc import Iterator

from chaoskit.model import Ended, History, Invariant, NothingToJudge, Violation


def check(history: History) -> Iterator[Violation]:
    ends = list(history.of(Ended))
    if not ends or ends[-1].how == "died":
        raise NothingToJudge
    last = ends[-1]
    if last.how == "failed":
        reason = last.detail.strip().splitlines()[-1] if last.detail.strip() else "no reason given"
        yield Violation("failed", f"life {last.life} could not recover and continue: {reason}")
    for end in ends:
        if end.how == "hung":
            yield Violation("hung", f"life {end.life} {end.detail}")


INVARIANT = Invariant(
    name="recovers", summary="after any crash the target starts again and finishes its work", check=check
)
