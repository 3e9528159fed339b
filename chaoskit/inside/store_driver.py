"""Drives a third-party store as a target: calls an adapter to save, and reads back after crashes.

An adapter is a class of about twenty lines (docs/adapters.md). Its methods may be sync or async:

    open(directory)              required; opens the store, which includes recovery
    close()                      required
    save(session, state)         returning is the acknowledgement      } one of the two pairs,
    load(session)                the latest state, or None             } or both
    append(session, items)       returning is the acknowledgement      }
    items(session)               all of them, in order                 }
    history(session)             every version, the oldest first
    delete(session)              forgets a session
    records(session)             {what: value}: records that belong together and must agree
    settle()                     waits until recovery in the background is done
    settings()                   the settings in force, for the certificate

`callers` declares how an application may call it: "threads" (each session saves from its own thread, one at
a time), "tasks" (saves of different sessions run concurrently); by default everything from one thread.

The driver reports each operation with its acknowledgement, and the content of the store (probes `recovered`
and `end`): for every session, the numbers of the saves that were found. A state is recognised by its number
and must read exactly as it was saved; anything else is reported as found, shortened.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from chaoskit.inside.life import Life
from chaoskit.inside.loading import load
from chaoskit.inside.protocol import ADAPTER_METHODS
from chaoskit.inside.repeatable import make_repeatable
from chaoskit.inside.store import Store
from chaoskit.inside.zombie import meet_a_zombie

WRITING = os.O_WRONLY | os.O_RDWR
SOME = 2  # sessions that are changed after a crash, besides the interrupted one and a new one
FRESH = 1000  # numbers from here on are changes after a crash, which check that the store still works


def main(life: Life) -> None:
    make_repeatable(life)
    if life.number == 0:
        sys.addaudithook(_note_opened)
    adapter = load(life.workload["adapter"])()
    introduce(life, adapter)
    store = Store(adapter, life.directory)
    try:
        if life.workload.get("zombie"):
            meet_a_zombie(life, store)
        else:
            _live(life, store)
    finally:
        store.leave()


def introduce(life: Life, adapter: Any) -> None:
    """Report the adapter as Python sees it: what was read from its source must agree."""
    if life.number == 0:
        methods = sorted(name for name in ADAPTER_METHODS if hasattr(adapter, name))
        promises = getattr(adapter, "promises", None)
        life.probe("adapter", methods=methods, promises=json.loads(json.dumps(promises, default=repr)))


def _live(life: Life, store: Store) -> None:
    sessions = [*life.workload["sessions"], *(_new_session(number) for number in range(1, life.number + 1))]
    trouble = store.opens()
    if trouble:
        life.tainted = True  # half open, and cannot be closed
        life.probe("recovered", sessions={}, trouble=trouble)
        return
    if life.number and not _saves_first(life):
        life.probe("recovered", sessions={s: store.look(s) for s in sessions})
    if life.number and not life.final:
        repeated = [operation for operation in life.interrupted if not _gives_up(operation)]
        _change(life, store, [{**operation, "again": True} for operation in repeated])
        _change(life, store, _fresh_changes(life, store))
    elif not life.number:
        _change(life, store, life.workload["steps"])
    if not life.final:
        looks = {s: store.look(s) for s in sessions}
        # Only where nothing was seen in the directory: names of other files may differ from run to run.
        unseen = life.number == 0 and life.position == 0
        outside = {"elsewhere": opened_outside(life.directory)} if unseen else {}
        life.probe("end", sessions=looks, settings=store.settings(), **outside)
    store.close()


def _new_session(life: int) -> str:
    return f"new-{life}"


def _saves_first(life: Life) -> bool:
    """Whether this life changes the store before it has read anything, as a client may: after every other
    interrupted change. A store that recovers when it is first read has not recovered then."""
    numbers = [operation.get("n", 0) for operation in life.interrupted]
    return not life.final and sum(numbers) % 2 == 1


def _gives_up(operation: dict[str, Any]) -> bool:
    """Whether the client makes another change instead of repeating the interrupted one: in half of the cases.
    A store that writes over what is left of it shows that only if the new content differs."""
    return bool(operation.get("n", 0) // 2 % 2)


def _fresh_changes(life: Life, store: Store) -> list[dict[str, Any]]:
    """One change of each of a few sessions, and of a new one: the store must still work.

    A session whose change was repeated keeps that as its latest: a newer one would hide its loss.
    """
    given_up = {op["session"]: None for op in life.interrupted if _gives_up(op)}
    interrupted = {op["session"] for op in life.interrupted}
    others = [s for s in life.workload["sessions"] if s not in interrupted][:SOME]
    names = [*given_up, *others, _new_session(life.number)]
    # Numbers that differ: they decide how the next life treats a change that is interrupted.
    return [store.step(s, FRESH * life.number + place, place) for place, s in enumerate(names)]


_opened: set[str] = set()  # files that this process opened for writing, and databases


def _note_opened(event: str, args: tuple[Any, ...]) -> None:
    if event == "sqlite3.connect" or (event == "open" and isinstance(args[2], int) and args[2] & WRITING):
        _opened.add(str(args[0]))


def opened_outside(directory: Path) -> list[str]:
    """A few files outside the directory that may hold what the target persists."""
    inside = (str(directory), str(directory.resolve()), "/proc/", "/dev/", ":memory:")
    places = {os.path.abspath(path) if path != ":memory:" else path for path in _opened}
    return sorted(path for path in places if not path.startswith(inside))[:5]


def _change(life: Life, store: Store, steps: list[dict[str, Any]]) -> None:
    """Performs the steps in order, called as the adapter's `callers` declares."""
    if store.callers == "tasks":
        for group in at_once(steps):
            store.finish(_gathered([_do_as_task(life, store, step) for step in group]))
        return
    for step in steps:
        store.in_its_thread(step["session"], partial(_do, life, store, step))


def at_once(steps: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Groups consecutive steps of different sessions: steps of one session keep their order."""
    group: list[dict[str, Any]] = []
    for step in steps:
        if any(step["session"] == other["session"] for other in group):
            yield group
            group = []
        group.append(step)
    if group:
        yield group


def _do(life: Life, store: Store, step: dict[str, Any]) -> None:
    with _reported(life, step):
        store.do(step)


async def _do_as_task(life: Life, store: Store, step: dict[str, Any]) -> None:
    with _reported(life, step):
        answer = store.begin(step)
        if inspect.isawaitable(answer):
            await answer


async def _gathered(tasks: list[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*tasks)


@contextmanager
def _reported(life: Life, step: dict[str, Any]) -> Iterator[None]:
    """One operation; an error is reported, and the client continues with the next."""
    try:
        with life.operation("change", **step):
            sys.audit("persist.point", step["do"], "before")
            yield
            life.ack("changed", **step)
            sys.audit("persist.point", step["do"], "after")  # for stores that keep nothing on disk
    except GeneratorExit:
        raise
    except BaseException:  # noqa: BLE001 - it is in the history as `fail`; a library may raise anything
        return
