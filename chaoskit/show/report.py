"""Results as JSON for other programs, schema 1. Fields may be added, never changed or removed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from chaoskit.faults.kind import decode_hook
from chaoskit.model import Verdict
from chaoskit.search.result import Result, Witness
from chaoskit.story import operations, tell

RESULT_FILE = "result.json"


def as_json(results: Sequence[Result]) -> dict[str, Any]:
    """One object: the result itself, or for several scenarios their sum, with the parts in `scenarios`."""
    parts = [_one(result) for result in results]
    if len(parts) == 1:
        return parts[0]
    counted = ("runs", "points", "states", "unique_states", "fired", "missed", "confirmed", "seconds")
    return {
        "schema": 1,
        "verdict": Verdict.merge(result.verdict for result in results).value,
        "seed": results[0].settings.seed,
        **{field: sum(part[field] for part in parts) for field in counted},
        "findings": [finding for part in parts for finding in part["findings"]],
        "scenarios": parts,
    }


def _one(result: Result) -> dict[str, Any]:
    settings, found = result.settings, result.found
    return {
        "schema": 1,
        "verdict": result.verdict.value,
        "seed": settings.seed,
        "scenario": settings.scenario,
        "store": settings.store,
        "mutant": settings.mutant,
        "faults": list(settings.faults),
        "agents": settings.agents,
        "plan": settings.plan,
        "runs": found.runs,
        "points": len(found.points),
        "covered": len(found.places),
        "growth": [list(sample) for sample in result.growth],  # of a fuzz: runs, places crashed by then
        "unreached": list(result.unreached),  # facts that the scenario requires of a fuzz
        "states": found.states,  # crash states rebuilt from a recording...
        "unique_states": found.states,  # ... which are enumerated without repetition
        "fired": found.fired,
        "missed": found.missed,
        "confirmed": found.confirmed,
        "seconds": round(result.seconds, 3),
        "claims": {
            name: {tier: verdict.value for tier, verdict in tiers.items()}
            for name, tiers in found.claims.items()
        },
        "findings": [_finding(witness) for witness in result.witnesses],
        "unknown": [str(doubt) for doubt in result.doubts],
    }


def _finding(witness: Witness) -> dict[str, Any]:
    faults = witness.schedule.faults
    return {
        "invariant": witness.finding.invariant,
        "kind": witness.finding.kind,
        "tier": witness.tier,
        "fault": ", then ".join(fault.name for fault in faults),
        "point": ", then ".join(str(fault.point) for fault in faults),
        "message": witness.finding.message,
        "runs": witness.times,
        "seed": witness.seed,
        "story": list(tell(witness.events)),
        "operations": list(operations(witness.events)),
        "hint": str(witness.hint).splitlines() if witness.hint else [],
        "repro": witness.token,
    }


def save(result: Result, directory: Path) -> None:
    """Saves the result for `chaoskit report`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / RESULT_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(result)))


def load(directory: Path) -> Result:
    return msgspec.json.decode((directory / RESULT_FILE).read_bytes(), type=Result, dec_hook=decode_hook)
