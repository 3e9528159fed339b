"""A ledger that appends amounts to a file, and the requirement that no acknowledged amount is lost."""

import os
import sys

from chaoskit.model import Ack, Invariant, NothingToJudge, Probe, Scenario, Target, Violation


def main(life):
    path = life.directory / "ledger"
    done = path.read_text().split() if path.exists() else []
    life.probe("recovered", amounts=done)
    with path.open("a") as file:
        for amount in life.workload[len(done) :]:
            sys.audit("persist.point", "ledger.append", "before")
            file.write(f"{amount}\n")
            file.flush()
            os.fsync(file.fileno())
            sys.audit("persist.point", "ledger.append", "after")
            life.ack("appended", amount=amount)


def nothing_lost(history):
    acknowledged = []
    for event in history.events:
        if isinstance(event, Ack):
            acknowledged.append(str(event.data["amount"]))
        elif isinstance(event, Probe) and event.data["amounts"][: len(acknowledged)] != acknowledged:
            yield Violation("lost", f"{acknowledged} were acknowledged, found {event.data['amounts']}")
    if not acknowledged:
        raise NothingToJudge


NOTHING_LOST = Invariant(name="nothing-lost", summary="no acknowledged amount is lost", check=nothing_lost)
SCENARIO = Scenario(
    name="ledger",
    summary="appends amounts to a file",
    target=Target(entry=f"{__file__}:main"),
    workload=lambda seed: [seed, seed + 1, seed + 2],
    invariants=("recovers", f"{__file__}:NOTHING_LOST"),
)
