"""Confirmation: findings on rebuilt states are reproduced by real crashes, then reduced to the least loss.

Every crash is carried out for real in fresh processes. A finding that cannot be reproduced is no finding: it
becomes a doubt about the harness. A finding for which no time was left becomes a doubt, too.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chaoskit.faults.kind import StillBad, kind_of
from chaoskit.model import Schedule, Workload
from chaoskit.recording import CrashState, Recording
from chaoskit.run.supervisor import OutOfTime
from chaoskit.search.result import Partial, Witness
from chaoskit.search.rig import Rig


def confirm_all(
    found: Partial,
    rig: Rig,
    recording: Recording,
    workload: Workload,
    announce: Callable[[str], None] = lambda _phase: None,
) -> None:
    """Within the rig's time limit: first that each finding is real, then how little it takes to show it."""
    wanted = found.unconfirmed()
    real: dict[str, Witness] = {}
    for number, witness in enumerate(wanted, 1):
        announce(f"confirming {number} of {len(wanted)} findings")
        try:
            confirmed = _reproduced(witness, witness.schedule, rig, workload)
        except OutOfTime:
            found.confirm(witness, None, "no-time")
            continue
        if confirmed is None:
            confirmed = _smaller(witness, rig, recording, workload)
        found.confirm(witness, confirmed and _explained(confirmed, recording))
        if confirmed:
            real[witness.key] = found.witnesses[witness.key]
    for number, (key, witness) in enumerate(real.items(), 1):
        announce(f"simplifying {number} of {len(real)} findings")
        smallest = _smaller(witness, rig, recording, workload) or found.witnesses[key]
        try:
            smallest = _explained(smallest, recording, _still_bad(smallest, rig, recording, workload))
        except OutOfTime:
            smallest = _explained(smallest, recording)
        found.confirm(found.witnesses[key], smallest)


def _smaller(witness: Witness, rig: Rig, recording: Recording, workload: Workload) -> Witness | None:
    """The same finding from a real crash that loses less; None if there is none, or no time to find it."""
    try:
        smallest = _minimise(witness, rig, recording, workload)
        if smallest != witness.schedule:
            return _reproduced(witness, smallest, rig, workload)
    except OutOfTime:
        return None
    return None


def _minimise(witness: Witness, rig: Rig, recording: Recording, workload: Workload) -> Schedule:
    fault = witness.schedule.faults[-1]
    minimise = kind_of(fault).minimise
    if minimise is None or len(witness.schedule.faults) > 1:  # the recording is that of the first life
        return witness.schedule

    return Schedule((minimise(recording, fault, _still_bad(witness, rig, recording, workload)),))


def _still_bad(witness: Witness, rig: Rig, recording: Recording, workload: Workload) -> StillBad:
    def still_bad(state: CrashState) -> bool:
        found = rig.judge_state(recording, state, workload).judgement.findings
        return any(finding.signature == witness.finding.signature for finding in found)

    return still_bad


def _reproduced(witness: Witness, schedule: Schedule, rig: Rig, workload: Workload) -> Witness | None:
    """The same finding from a real crash, or None."""
    outcome = rig.judge(schedule, workload)
    for finding in outcome.judgement.findings:
        if finding.signature == witness.finding.signature:
            return msgspec.structs.replace(
                witness, finding=finding, schedule=outcome.schedule, events=outcome.events, kept=outcome.kept
            )
    return None


def _explained(witness: Witness, recording: Recording, still_bad: StillBad | None = None) -> Witness:
    fault = witness.schedule.faults[-1]
    explain = kind_of(fault).explain
    if explain is None or len(witness.schedule.faults) > 1:  # the recording is that of the first life
        return witness
    return msgspec.structs.replace(witness, hint=explain(recording, fault, still_bad))
