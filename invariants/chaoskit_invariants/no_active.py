"""no-active: after recovery no agent is ACTIVE, and every session record can be read.

Verifies the probe `recovered`, which is taken before any agent resumes: each agent is SUSPENDED or STOPPED,
and its provider can read its blob (`damage` lists those it cannot read). Cannot see whether the blob is the
latest: `delivery` checks that.

Smallest history that breaks it: recovered with an agent that is ACTIVE.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaoskit.model import History, Invariant, NothingToJudge, Probe, Violation


def check(history: History) -> Iterator[Violation]:
    looks = [probe for probe in history.of(Probe) if "damage" in probe.data]
    if not any(probe.data["agents"] or probe.data["damage"] for probe in looks):
        raise NothingToJudge
    for probe in looks:
        for what in probe.data["damage"]:
            yield Violation("damaged", what)
        for agent, found in probe.data["agents"].items():
            if found["state"] not in ("ACTIVE", "SUSPENDED", "STOPPED"):
                yield Violation("damaged", f"{agent} has an unknown state: {found['state']}")
            elif probe.name == "recovered" and found["state"] == "ACTIVE":
                yield Violation("active", f"{agent} is ACTIVE, but was not resumed")


INVARIANT = Invariant(
    name="no-active", summary="recovery leaves no agent ACTIVE and every session record readable", check=check
)
