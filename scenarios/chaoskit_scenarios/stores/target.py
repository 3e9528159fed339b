"""A control store as a target: load its content, save what is missing, load again."""

from __future__ import annotations

from chaoskit.inside import Life
from chaoskit.inside.loading import load


def main(life: Life) -> None:
    work = life.workload
    store = load(work["store"])(life.directory, **work["options"])
    found = store.load()
    if life.number:
        life.probe("recovered", saves=found)
    done = max((int(n) for n, _ in found), default=0)
    for n, text in work["saves"]:
        if n > done:
            with life.operation("save", n=n, text=text):
                store.save(n, text)
                life.ack("saved", n=n)
    life.probe("end", saves=store.load())
    store.close()
