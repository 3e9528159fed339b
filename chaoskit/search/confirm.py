"""Confirmation: from a rebuilt state that did not hold to a finding that stands.

What was lost is made as little as it gets, then the crash is run into for real, in fresh processes. A
finding that cannot be met again accuses nobody but the harness.
"""

from __future__ import annotations

import msgspec

from chaoskit.disk import hint
from chaoskit.disk.image import Image
from chaoskit.model import Finding, PowerLoss, Schedule, Workload
from chaoskit.run.recording import CrashState, Recording, candidate_of, points as disk_points, state_of
from chaoskit.search.result import Counter, Witness
from chaoskit.search.rig import Bench, Outcome


def confirm_all(counter: Counter, bench: Bench, recording: Recording, workload: Workload) -> None:
    for witness in counter.unconfirmed():
        smallest = _minimise(witness, bench, recording, workload)
        confirmed = None
        for schedule in dict.fromkeys([smallest, witness.schedule]):
            confirmed = confirmed or _met_for_real(witness, schedule, counter, bench, workload)
        if confirmed and isinstance(confirmed.schedule.faults[-1], PowerLoss):
            lines = _hint(recording, confirmed.schedule)
            confirmed = msgspec.structs.replace(confirmed, hint=lines)
        counter.confirm(witness, confirmed)


def _minimise(witness: Witness, bench: Bench, recording: Recording, workload: Workload) -> Schedule:
    """The same failure with as little lost as possible."""
    (fault,) = witness.schedule.faults
    if not isinstance(fault, PowerLoss):
        return witness.schedule  # a kill loses nothing
    candidate = candidate_of(recording.trace, fault)

    def still_bad(image: Image) -> bool:
        state = CrashState(candidate.at, image, fault)
        found = bench.judge_state(recording, state, workload).judgement.findings
        return any(finding.signature == witness.finding.signature for finding in found)

    smallest = hint.minimise(recording.trace, candidate, still_bad)
    return Schedule((state_of(smallest, disk_points(recording.trace)).fault,))


def _met_for_real(
    witness: Witness, schedule: Schedule, counter: Counter, bench: Bench, workload: Workload
) -> Witness | None:
    outcome = bench.judge(schedule, workload)
    for finding in outcome.judgement.findings:
        if finding.signature == witness.finding.signature:
            return _witness(witness, finding, outcome, counter)
    return None


def _witness(known: Witness, finding: Finding, outcome: Outcome, counter: Counter) -> Witness:
    return msgspec.structs.replace(
        known,
        finding=finding,
        schedule=outcome.schedule,
        token=counter.token(finding, outcome),
        story=outcome.story,
        operations=outcome.operations,
        kept=outcome.kept,
        rebuilt=False,
    )


def _hint(recording: Recording, schedule: Schedule) -> tuple[str, ...]:
    fault = schedule.faults[-1]
    assert isinstance(fault, PowerLoss)
    candidate = candidate_of(recording.trace, fault)
    claimed = [at for at in recording.claims() if at <= candidate.at]
    last = claimed[-1] if claimed else None
    return tuple(str(hint.explain(recording.trace, candidate, last)).splitlines())
