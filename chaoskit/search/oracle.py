"""The oracle: applies all invariants to one Run. Pure.

An invariant that raises an error makes the run UNKNOWN, with the reason. One that finds nothing to
judge is NOT_MEASURED for this run. A run with a doubt is never better than UNKNOWN, but its findings
still count: a missed fault does not excuse a lost payment.
"""

from __future__ import annotations

from collections.abc import Iterable

from chaoskit.model import Doubt, Finding, Invariant, Judgement, NothingToJudge, Run, Verdict


def judge(run: Run, invariants: Iterable[Invariant]) -> Judgement:
    claims: dict[str, Verdict] = {}
    findings: list[Finding] = []
    doubts = list(run.doubts)
    for invariant in invariants:
        found, verdict, doubt = _apply(invariant, run)
        claims[invariant.name] = verdict
        findings += found
        doubts += doubt
    floor = Verdict.UNKNOWN if doubts else Verdict.NOT_MEASURED
    verdict = Verdict.merge([floor, *claims.values()])
    if verdict is Verdict.NOT_MEASURED:
        verdict = Verdict.UNKNOWN
        doubts.append(Doubt("nothing-judged", ""))
    return Judgement(verdict=verdict, claims=claims, findings=tuple(findings), doubts=tuple(doubts))


def _apply(invariant: Invariant, run: Run) -> tuple[list[Finding], Verdict, list[Doubt]]:
    try:
        violations = list(invariant.check(run.history))
    except NothingToJudge:
        return [], Verdict.NOT_MEASURED, []
    except Exception as error:  # noqa: BLE001 - a broken checker must cost the pass, not the run
        reason = f"{invariant.name} crashed: {type(error).__name__}: {error}"
        return [], Verdict.UNKNOWN, [Doubt("broken-invariant", reason)]
    findings = [Finding(invariant=invariant.name, kind=v.kind, message=v.message) for v in violations]
    return findings, Verdict.VIOLATED if findings else Verdict.HOLDS, []
