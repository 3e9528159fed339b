"""A library itself on a real file system that loses power, without the interposer and without a model.

The library saves a few times, once alone and once while the kernel commits all the time. Each disk that a
power loss could have left is mounted, and the library, in a fresh fork, opens and reads it. Then the save
that had not been acknowledged is repeated, as by a client.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from chaoskit import registry
from chaoskit.run import environment
from tests.realdisk.crashes import Crash, crashes
from tests.realdisk.device import CrashedDisk, LiveDisk, Workshop
from tests.realdisk.whole_stores import committing

DRIVER = Path(__file__).with_name("library_driver.py")
SAVES = 4
MOST = 250  # disks of one run, spread over it


def on_a_real_disk(shop: Workshop, target: str) -> Counter[str]:
    adapter = registry.adapter(target)
    assert adapter.subject == "store", f"{target} is an agent"
    python = environment.interpreter(adapter.requires, print)
    found: Counter[str] = Counter()
    for commits in (False, True):
        with LiveDisk(shop) as live:
            live.mark("start")
            with committing(live) if commits else nullcontext():
                _run(python, "save", adapter.reference, str(SAVES), cwd=live.root / "watched", live=live)
        with CrashedDisk(shop) as crashed, _looking(python, adapter.reference) as look:
            for crash in _spread(list(crashes(live.log(), shop.blank, random.Random(0)))):
                with crashed.mounted(crash.blocks) as root:
                    under_way = crash.done + 1 if crash.done < SAVES else 0
                    found[verdict(look(root / "watched", under_way), crash.done)] += 1
    return found


def verdict(seen: dict[str, Any], acknowledged: int) -> str:
    if "trouble" in seen:
        return f"unreadable ({seen['trouble'][:100]})"
    shown = [part for part in _parts(seen) if part is not None]
    damaged = [part for part in shown if isinstance(part, str)]
    if damaged:
        return f"damaged ({damaged[0][:60]})"
    latest = max((part[0] for part in shown), default=0)
    if latest < acknowledged:
        return "lost"
    again = seen.get("again", {})
    if "trouble" in again:
        return f"holds, but cannot go on ({again['trouble'][:100]})"
    repeated = Counter(map(json.dumps, again.get("items", ())))
    return (
        "holds, but the repeated save is stored twice" if max(repeated.values(), default=1) > 1 else "holds"
    )


def _parts(seen: dict[str, Any]) -> Iterator[Any]:
    for method in ("load", "history", "items"):
        if method in seen:
            yield from [seen[method]] if method == "load" else seen[method]


def _spread(found: list[Crash]) -> list[Crash]:
    step = max(1, -(-len(found) // MOST))
    return found[::step]


def _run(python: str, *arguments: str, cwd: Path, live: LiveDisk) -> None:
    command = [python, str(DRIVER), *arguments]
    subprocess.run(command, cwd=cwd, env={**_environment(), **live.variables()}, check=True)


@contextmanager
def _looking(python: str, reference: str) -> Iterator[Any]:
    command = [python, str(DRIVER), "look", reference]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment(), text=True
    ) as driver:
        assert driver.stdin
        assert driver.stdout

        def look(directory: Path, repeated: int) -> dict[str, Any]:
            print(json.dumps([str(directory), repeated]), file=driver.stdin, flush=True)
            found: dict[str, Any] = json.loads(driver.stdout.readline())
            return found

        yield look
        driver.stdin.close()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": environment.only_inside(), "OPENBLAS_NUM_THREADS": "1"}
