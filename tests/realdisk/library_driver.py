"""Runs in the interpreter that has the library: saves through its adapter, or looks at what crashes left.

    library_driver.py save ADAPTER SAVES      in the directory to save to; marks each acknowledgement
    library_driver.py look ADAPTER            reads directories and the save that was under way there, writes
                                              what the store shows before and after that save is repeated

An adapter may write in threads: each directory is looked at in a fork of its own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from chaoskit.inside.loading import load
from chaoskit.inside.store import Store

SESSION = "a"


def save(reference: str, saves: int) -> None:
    store = Store(load(reference)(), Path.cwd())
    trouble = store.opens()
    assert not trouble, trouble
    control = os.open(os.environ["DISK_CONTROL"], os.O_WRONLY)
    for n in range(1, saves + 1):
        store.in_its_thread(SESSION, lambda n=n: store.do(store.step(SESSION, n)))
        os.pwrite(control, f"op {n}".encode(), 0)
    store.close()
    store.leave()


def look(reference: str) -> None:
    adapter = load(reference)
    for line in sys.stdin:
        directory, repeated = json.loads(line)
        reader, writer = os.pipe()
        if os.fork() == 0:
            with os.fdopen(writer, "w") as found:
                json.dump(seen(adapter, Path(directory), repeated), found)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            print(pipe.read() or json.dumps({"trouble": "it died"}), flush=True)
        os.wait()


def seen(adapter: type, directory: Path, repeated: int) -> dict[str, object]:
    store = Store(adapter(), directory)
    trouble = store.opens()
    if trouble:
        return {"trouble": f"open: {trouble}"}
    before = dict(store.look(SESSION))
    if "trouble" not in before and repeated:
        try:
            store.in_its_thread(SESSION, lambda: store.do(store.step(SESSION, repeated)))
            before["again"] = store.look(SESSION)
        except Exception as error:  # noqa: BLE001 - as a user would see it
            before["again"] = {"trouble": f"{type(error).__name__}: {error}"}
    return before


if __name__ == "__main__":
    what, reference, *rest = sys.argv[1:]
    if what == "save":
        save(reference, int(rest[0]))
    else:
        look(reference)
