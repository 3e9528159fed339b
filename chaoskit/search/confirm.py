"""Confirmation: findings on rebuilt states are minimised and reproduced by real crashes.

The fault is reduced to the least loss that still fails, then carried out for real in fresh processes. A
finding that cannot be reproduced is no finding: it becomes a doubt about the harness.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chaoskit.faults.kind import kind_of
from chaoskit.model import Schedule, Workload
from chaoskit.recording import CrashState, Recording
from chaoskit.search.result import Partial, Witness
from chaoskit.search.rig import Rig


def confirm_all(
    found: Partial,
    rig: Rig,
    recording: Recording,
    workload: Workload,
    announce: Callable[[str], None] = lambda _phase: None,
) -> None:
    wanted = found.unconfirmed()
    for number, witness in enumerate(wanted, 1):
        announce(f"confirming {number} of {len(wanted)} findings")
        smallest = _minimise(witness, rig, recording, workload)
        confirmed = None
        for schedule in dict.fromkeys([smallest, witness.schedule]):
            confirmed = confirmed or _reproduced(witness, schedule, rig, workload)
        if confirmed:
            confirmed = _explained(confirmed, recording)
        found.confirm(witness, confirmed)


def _minimise(witness: Witness, rig: Rig, recording: Recording, workload: Workload) -> Schedule:
    (fault,) = witness.schedule.faults
    minimise = kind_of(fault).minimise
    if minimise is None:
        return witness.schedule

    def still_bad(state: CrashState) -> bool:
        found = rig.judge_state(recording, state, workload).judgement.findings
        return any(finding.signature == witness.finding.signature for finding in found)

    return Schedule((minimise(recording, fault, still_bad),))


def _reproduced(witness: Witness, schedule: Schedule, rig: Rig, workload: Workload) -> Witness | None:
    """The same finding from a real crash, or None."""
    outcome = rig.judge(schedule, workload)
    for finding in outcome.judgement.findings:
        if finding.signature == witness.finding.signature:
            return msgspec.structs.replace(
                witness, finding=finding, schedule=outcome.schedule, events=outcome.events, kept=outcome.kept
            )
    return None


def _explained(witness: Witness, recording: Recording) -> Witness:
    fault = witness.schedule.faults[-1]
    explain = kind_of(fault).explain
    return msgspec.structs.replace(witness, hint=explain(recording, fault)) if explain else witness
