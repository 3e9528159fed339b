"""snapshot: the file beside the log is always complete when a life finds it, and never ahead of the log.

Verifies what each life finds before it touches anything (probe `found`: the snapshot's text, the number of
complete lines in the log). Cannot see a stale snapshot: it is a cache, so it may be stale.

Smallest history that breaks it: probe found with half of a snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from chaoskit.model import History, Invariant, NothingToJudge, Probe, Violation


def check(history: History) -> Iterator[Violation]:
    probes = [probe for probe in history.of(Probe, "found") if probe.data["snapshot"] is not None]
    if not probes:
        raise NothingToJudge
    for probe in probes:
        try:
            snapshot = json.loads(probe.data["snapshot"])
        except ValueError:
            yield Violation("torn", f"an incomplete snapshot was found: {probe.data['snapshot'][:40]!r}")
            continue
        if snapshot["last_seq"] > probe.data["lines"]:
            yield Violation(
                "ahead",
                f"the snapshot covers {snapshot['last_seq']} lines, but the log has {probe.data['lines']}",
            )


INVARIANT = Invariant(
    name="snapshot", summary="a snapshot on disk is complete and not ahead of the log", check=check
)
