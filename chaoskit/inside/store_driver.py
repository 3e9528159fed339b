"""A third party's store as a target: drives an adapter through saves, crashes and looks.

An adapter is a class of about twenty lines (docs/adapters.md). Its methods may be sync or async:

    open(directory)              needed; opens, and so recovers
    close()                      needed
    save(session, state)         returning is the acknowledgement      } one of the two pairs,
    load(session)                the latest state, or None             } or both
    append(session, items)       returning is the acknowledgement      }
    items(session)               all of them, in order                 }
    history(session)             every version, the oldest first
    delete(session)              forgets a session
    records(session)             {what: value}: records that belong together, and must agree
    settle()                     waits until a recovery in the background is done
    settings()                   what is really in force, for the certificate

`callers` says from where an application may call it: "threads" (every session is saved to from a thread of
its own, in turns), "tasks" (the saves of different sessions are under way at once); else from one place.

Reported: each operation with its acknowledgement, and looks (`recovered`, `end`): for every session the
numbers of the saves that were found. A state is recognised by its number and must read exactly as it was
saved; anything else is reported as found, shortened.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import signal
import sqlite3
import sys
import tempfile
import uuid
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from chaoskit.inside.life import Life, said_by
from chaoskit.inside.loading import load

ODD = 'Zürich \u2028 \U0001f4a5 \x00 "quotes" \\ back \x7f \n line'  # what breaks naive formats
CONNECT = sqlite3.connect  # the real one: a process that is used again is made repeatable again
MOST = 3  # items in one call, unless the adapter says that a call takes fewer
PLAIN = 100_000  # characters from which on a text has no odd ones
FRESH = 1000  # saves with this number and above are made after a crash, to see that life goes on


def main(life: Life) -> None:
    make_repeatable(life)
    store = Store(load(life.workload["adapter"]), life.directory)
    try:
        if life.workload.get("zombie"):
            meet_a_zombie(life, store)
        else:
            _live(life, store)
    finally:
        store.leave()


def _live(life: Life, store: Store) -> None:
    sessions = life.workload["sessions"]
    trouble = store.opens()
    if trouble:
        life.tainted = True  # half open, and nobody can close it
        life.probe("recovered", sessions={}, trouble=trouble)
        return
    if life.number:
        life.probe("recovered", sessions={s: store.look(s) for s in sessions})
        _change(life, store, [{**operation, "again": True} for operation in life.interrupted])
        _change(life, store, [_step(store, s, FRESH + life.number) for s in sessions])
    else:
        _change(life, store, life.workload["steps"])
    life.probe("end", sessions={s: store.look(s) for s in sessions}, settings=store.settings())
    store.close()


def _step(store: Store, session: str, n: int) -> dict[str, Any]:
    return {"do": "append" if store.appends else "save", "session": session, "n": n, "size": 40}


def _change(life: Life, store: Store, steps: list[dict[str, Any]]) -> None:
    """One step after the other, in the way of the adapter's callers."""
    if store.callers == "tasks":
        for group in at_once(steps):
            store.finish(_gathered([_do_as_task(life, store, step) for step in group]))
        return
    for step in steps:
        store.in_its_thread(step["session"], partial(_do, life, store, step))


def at_once(steps: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Steps that follow each other, as long as each belongs to another session: those keep their order."""
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
            sys.audit("persist.point", step["do"], "after")  # a store without files dies here, too
    except Exception:  # noqa: BLE001 - it is in the history as `fail`; a library may raise anything
        return


class Store:
    """An adapter's class, its methods called in one way whether they are async or not."""

    def __init__(self, adapter: Callable[[], Any], directory: Path) -> None:
        self._adapter = adapter()
        self._directory = directory
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self.appends = not hasattr(self._adapter, "save")
        self.callers: str = getattr(self._adapter, "callers", "one")
        self._most: int = getattr(self._adapter, "items_per_call", MOST)

    def opens(self) -> str:
        """Nothing, or what kept it from opening."""
        try:
            self._call("open", str(self._directory))
            if hasattr(self._adapter, "settle"):
                self._call("settle")
        except Exception as error:  # noqa: BLE001 - whatever a library raises
            return self.said(error)
        return ""

    def close(self) -> None:
        self._call("close")

    def leave(self) -> None:
        for thread in self._threads.values():
            thread.shutdown()
        if self._loop:
            self._loop.close()

    def settings(self) -> dict[str, Any]:
        found = self._call("settings") if hasattr(self._adapter, "settings") else {}
        return found if self.callers == "one" else {**found, "callers": self.callers}

    def in_its_thread(self, session: str, work: Callable[[], None]) -> None:
        """Here, or in the thread that this session has: one at a time, so that two runs are the same."""
        if self.callers != "threads":
            work()
            return
        if session not in self._threads:
            self._threads[session] = ThreadPoolExecutor(1, thread_name_prefix=session)
        self._threads[session].submit(work).result()

    def do(self, step: dict[str, Any]) -> None:
        self.finish(self.begin(step))

    def begin(self, step: dict[str, Any]) -> Any:
        """Done when it returns, or an awaitable."""
        session = step["session"]
        if step["do"] == "delete":
            return self._adapter.delete(session)
        if step["do"] == "append":
            items = deepcopy(items_of(session, step["n"], step["size"], self._most))
            return self._adapter.append(session, items)
        return self._adapter.save(session, dict(state_of(session, step["n"], step["size"])))

    def look(self, session: str) -> dict[str, Any]:
        """What is there: numbers of saves that read as they were made, else the words that are there."""
        readers: dict[str, Callable[[Any], Any]] = {
            "load": lambda found: None if found is None else recognised(session, found),
            "history": lambda found: [recognised(session, state) for state in found],
            "items": lambda found: [recognised(session, item) for item in found],
            "records": lambda found: found,
        }
        seen: dict[str, Any] = {}
        for method, read in readers.items():
            if hasattr(self._adapter, method):
                try:
                    seen[method] = read(self._call(method, session))
                except Exception as error:  # noqa: BLE001 - a load may fail in any way
                    seen["trouble"] = f"{method}: {self.said(error)}"
        return seen

    def said(self, error: BaseException) -> str:
        name, words = type(error).__name__, said_by(error, self._directory)
        return name if words == name else f"{name}: {words}"[:300]

    def _call(self, method: str, *args: Any) -> Any:
        return self.finish(getattr(self._adapter, method)(*args))

    def finish(self, answer: Any) -> Any:
        if inspect.isawaitable(answer):
            self._loop = self._loop or asyncio.new_event_loop()
            return self._loop.run_until_complete(awaited(answer))
        return answer


async def awaited(answer: Any) -> Any:
    return await answer


# --- what is saved: known by its number, checked letter by letter


@lru_cache(maxsize=512)  # made once per process: most of it is compared again and again
def state_of(session: str, n: int, size: int) -> dict[str, Any]:
    return {"n": n, "session": session, "size": size, "text": _text(session, n, size)}


@lru_cache(maxsize=512)
def items_of(session: str, n: int, size: int, most: int = MOST) -> list[dict[str, Any]]:
    """What one call appends: one to three items that belong together, at most as many as a call takes."""
    count = min(1 + n % 3, most)
    return [
        {
            "n": n,
            "part": part,
            "of": count,
            "session": session,
            "size": size,
            "text": _text(session, n + part, size),
        }
        for part in range(count)
    ]


@lru_cache(maxsize=512)
def _text(session: str, n: int, size: int) -> str:
    letters = random.Random(f"{session}/{n}").choices("abcdefghijklmnopqrstuvwxyz ", k=min(size, 997))
    body = "".join(letters) * (size // max(1, len(letters)) + 1)
    # One character beyond Latin-1 makes four bytes of each: a large text is there for its size.
    odd = ODD[: size // 4] if size < PLAIN else ""
    return odd + body[: size - len(odd)]


def recognised(session: str, found: Any) -> Any:
    """[n], [n, part, of], or what is wrong with it."""
    try:
        n, size, owner = found["n"], found["size"], found["session"]
        if "part" in found:
            same = found == items_of(owner, n, size, found["of"])[found["part"]]
            known = [n, found["part"], found["of"]]
        else:
            same, known = found == state_of(owner, n, size), [n]
    except Exception:  # noqa: BLE001 - anything may have been read
        return f"unreadable: {found!r}"[:120]
    if not same:
        return f"damaged: {found!r}"[:120]
    return known if owner == session else f"of session {owner}: save {n}"


# --- a paused process that comes back


def meet_a_zombie(life: Life, store: Store) -> None:
    """One process opens and saves, and is stopped; another takes over; then the first goes on.

    What the second process was promised must be there in the end, whatever answer the first one gets.
    """
    session, first, second, late = "a", 1, 2, 3
    reading, writing = os.pipe()
    zombie = os.fork()
    if zombie == 0:
        os._exit(_be_the_zombie(store, session, first, late, writing))
    os.close(writing)
    os.read(reading, 1)  # it has saved and is about to stop itself, or has failed
    _, status = os.waitpid(zombie, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        raise RuntimeError("the process that should have been stopped could not save")
    trouble = store.opens()
    if trouble:  # as long as the first one lives, nobody else gets in
        life.probe("zombie", trouble=trouble)
        os.kill(zombie, signal.SIGKILL)
        os.waitpid(zombie, 0)
        return
    try:
        store.look(session)
        store.do(_step(store, session, second))
    except Exception as error:  # noqa: BLE001 - refused in its own way: there is no newer state
        trouble = store.said(error)
    os.kill(zombie, signal.SIGCONT)
    _, status = os.waitpid(zombie, 0)
    if trouble:
        life.probe("zombie", trouble=trouble)
        return
    refused = os.waitstatus_to_exitcode(status) != 0
    life.probe("zombie", refused=refused, before=second, late=late, **store.look(session))
    store.close()


def _be_the_zombie(store: Store, session: str, first: int, late: int, writing: int) -> int:
    """0 if its late save was accepted."""
    try:
        if store.opens():
            return 1
        store.do(_step(store, session, first))
        store.look(session)
        os.write(writing, b"x")
        os.kill(os.getpid(), signal.SIGSTOP)
        store.do(_step(store, session, late))
        store.close()
    except BaseException:  # noqa: BLE001 - refused, in whatever way
        return 1
    return 0


# --- one seed, one story


def make_repeatable(life: Life) -> None:
    """Ids and random numbers from the seed and the life, and SQL's own clock; Python's stays real."""
    rng = random.Random(f"{life.seed}/{life.number}")
    random.seed(f"{life.seed}/{life.number}")
    os.urandom = rng.randbytes
    # Names of temporary files: the module seeds a generator of its own from the kernel.
    tempfile._name_sequence = iter(lambda: f"{rng.getrandbits(40):010x}", "")  # type: ignore[attr-defined]  # noqa: SLF001
    uuid.uuid4 = lambda: uuid.UUID(int=rng.getrandbits(128), version=4)
    uuid.uuid1 = lambda node=None, clock_seq=None: uuid.UUID(int=rng.getrandbits(128), version=1)  # noqa: ARG005
    _make_sql_time_stand_still(f"2026-01-01 00:{life.number % 60:02d}:00")


def _make_sql_time_stand_still(now: str) -> None:
    """CURRENT_TIMESTAMP is the same for a whole life, as it is for all that happens within a second.

    SQLite does not write a page that an update leaves as it was: whether an `updated_at` costs a write
    would depend on the second in which it is made.
    """

    def connects(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = CONNECT(*args, **kwargs)
        db.create_function("current_timestamp", 0, lambda: now)
        return db

    sqlite3.connect = connects  # type: ignore[assignment]
    sqlite3.dbapi2.connect = connects  # type: ignore[assignment]
