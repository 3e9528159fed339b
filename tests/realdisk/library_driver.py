"""Runs in the interpreter that has the library: saves through its adapter, or looks at what crashes left.

    library_driver.py save ADAPTER SAVES      in the directory to save to; marks each acknowledgement
    library_driver.py look ADAPTER            reads directories, writes what the store shows in each

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
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.write(writer, json.dumps(seen(adapter, Path(line.strip()))).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            print(pipe.read() or json.dumps({"trouble": "it died"}), flush=True)
        os.wait()


def seen(adapter: type, directory: Path) -> dict[str, object]:
    store = Store(adapter(), directory)
    trouble = store.opens()
    return {"trouble": f"open: {trouble}"} if trouble else store.look(SESSION)


if __name__ == "__main__":
    what, reference, *rest = sys.argv[1:]
    if what == "save":
        save(reference, int(rest[0]))
    else:
        look(reference)
