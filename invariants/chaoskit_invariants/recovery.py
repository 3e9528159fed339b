"""recovers: after the last crash the target starts, finishes its work and reports completion.

Verifies that the last life of a run completed, and that it did its work to the end (probe `end`) if the run
without faults did. No life may hang; one that encounters a disk error may stop with an error instead.
Cannot see whether the work was correct: the other invariants check that. A death that chaoskit did not
cause is not judged here; the supervisor marks such a run as doubtful. Nor is a run whose last life was
never started or has not ended.

Smallest history that breaks it: born, crashed, born, ended(failed).
"""

from __future__ import annotations

from collections.abc import Iterator

from chaoskit.model import Born, Crashed, Ended, History, Invariant, NothingToJudge, Probe, Violation, last

# A target whose disk fails reports that instead of its end.
FINISHED = ("end", "degraded")


def check(history: History) -> Iterator[Violation]:
    ends = list(history.of(Ended))
    hung = [end for end in ends if end.how == "hung"]
    newest = last(history.of(Born))
    open_ended = not ends or ends[-1].how in ("died", "crashed") or (newest and newest.life > ends[-1].life)
    if open_ended and not hung:
        raise NothingToJudge
    for end in hung:
        yield Violation("hung", f"life {end.life} {end.detail}")
    if not open_ended:
        yield from _finished(history, ends[-1])


def _finished(history: History, end: Ended) -> Iterator[Violation]:
    if end.how == "failed":
        reason = end.detail.strip().splitlines()[-1] if end.detail.strip() else "no reason given"
        yield Violation("failed", f"life {end.life} could not recover and continue: {reason}")
    elif end.how == "completed" and any(history.expected(Probe, "end")):
        # Not only the last life: one more may only look at what the others left.
        crashed = max((crash.life for crash in history.of(Crashed)), default=-1)
        reported = (probe.name for probe in history.of(Probe) if probe.life > crashed)
        if not any(name in FINISHED for name in reported):
            yield Violation("unfinished", f"life {end.life} completed without finishing its work")


INVARIANT = Invariant(
    name="recovers", summary="after any crash the target starts again and finishes its work", check=check
)
