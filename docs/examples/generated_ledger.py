"""The same ledger, with another program for every seed: amounts are appended, and taken back."""

import os
import sys

from hypothesis import strategies as st

from chaoskit.model import Ack, Invariant, NothingToJudge, Probe, Scenario, Target, Violation
from chaoskit.strategies import drawn, operation, programs

OPERATIONS = (operation("append", amount=st.integers(1, 99)), operation("take back"))


def main(life):
    path = life.directory / "ledger"
    lines = path.read_text().splitlines() if path.exists() else []
    life.probe("recovered", lines=lines)
    steps = [operation for step in life.workload for operation in step]
    with path.open("a") as file:
        for number, step in list(enumerate(steps))[len(lines) :]:
            line = f"{number}: {step}"
            with life.operation(step["do"]):
                sys.audit("persist.point", "ledger", "before")
                file.write(f"{line}\n")
                file.flush()
                os.fsync(file.fileno())
                sys.audit("persist.point", "ledger", "after")
                life.ack("written", line=line)


def nothing_lost(history):
    acknowledged = []
    for event in history.events:
        if isinstance(event, Ack):
            acknowledged.append(event.data["line"])
        elif isinstance(event, Probe) and not set(acknowledged) <= set(event.data["lines"]):
            yield Violation("lost", f"{acknowledged} were acknowledged, found {event.data['lines']}")
    if not acknowledged:
        raise NothingToJudge


NOTHING_LOST = Invariant(name="nothing-lost", summary="every acknowledged line is found", check=nothing_lost)
SCENARIO = Scenario(
    name="generated-ledger",
    summary="a ledger with a generated workload",
    target=Target(entry=f"{__file__}:main"),
    workload=lambda seed: drawn(programs(*OPERATIONS, max_size=12), seed),
    generated=True,
    must_reach=("invoke:append", "invoke:take back"),
    invariants=("recovers", f"{__file__}:NOTHING_LOST"),
)
