"""recovers: after the last crash the target starts, finishes its work and says so.

Verifies that the last life of a run completed, and that none ever hung (a life that meets an error of
the disk may stop with an error; it may not stand still). Cannot see whether what it did was right: that is
for the other invariants. A death by an unknown hand is not judged here; the supervisor puts a doubt
on such a run.

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
        yield Violation("failed", f"life {last.life} could not recover and go on: {reason}")
    for end in ends:
        if end.how == "hung":
            yield Violation("hung", f"life {end.life} {end.detail}")


INVARIANT = Invariant(
    name="recovers", summary="after any crash the target starts again and finishes its work", check=check
)
