"""snapshot: the file beside the log is always complete when a life finds it, and never ahead of the log.

Verifies what each life finds before it touches anything (probe `found`: the snapshot's text, the number of
complete lines in the log). A snapshot is a JSON object with the seq that it covers (`last_seq`). The log
reaches that seq. The run that the snapshot names has started by then, according to the final log. Cannot
see a stale snapshot: a snapshot is a cache, so it may be stale.

Smallest history that breaks it: probe found with half of a snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from chaoskit.model import History, Invariant, NothingToJudge, Probe, Violation, last


def check(history: History) -> Iterator[Violation]:
    probes = [probe for probe in history.of(Probe, "found") if probe.data["snapshot"] is not None]
    if not probes:
        raise NothingToJudge
    end = last(history.of(Probe, "end"))
    log = [json.loads(line) for line in end.data["log"]] if end else None
    for probe in probes:
        snapshot = _parsed(probe.data["snapshot"])
        if snapshot is None:
            yield Violation("torn", f"an incomplete snapshot was found: {probe.data['snapshot'][:40]!r}")
        else:
            yield from _behind(snapshot, probe.data["lines"], log)


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        snapshot = json.loads(text)
    except ValueError:
        return None
    return snapshot if isinstance(snapshot, dict) and type(snapshot.get("last_seq")) is int else None


def _behind(snapshot: dict[str, Any], lines: int, log: list[Any] | None) -> Iterator[Violation]:
    covered = snapshot["last_seq"]
    if covered > lines:
        yield Violation("ahead", f"the snapshot covers {covered} lines, but the log has {lines}")
        return
    run = (snapshot.get("run") or {}).get("run_id")
    if run is None or log is None:
        return
    started = {line.get("run_id") for line in log[:covered] if line["kind"] == "run.started"}
    if run not in started:
        yield Violation("ahead", f"the snapshot covers {covered} lines, but {run} does not start in them")


INVARIANT = Invariant(
    name="snapshot", summary="a snapshot on disk is complete and not ahead of the log", check=check
)
