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
import random
import select
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
from chaoskit.inside.protocol import ADAPTER_METHODS

ODD = 'Zürich \u2028 \U0001f4a5 \x00 "quotes" \\ back \x7f \n line'  # breaks naive formats
CONNECT = sqlite3.connect  # the original: each life of a reused process patches it again
MOST = 3  # items per call, unless the adapter's limit is lower
PLAIN = 100_000  # characters; texts from this size on contain no ODD ones
WRITING = os.O_WRONLY | os.O_RDWR
SOME = 2  # sessions that are changed after a crash, besides the interrupted one and a new one
TAKE_OVER = 8.0  # seconds that a second process has to open, read and save beside a paused one
LOOK_EVERY = 0.05
# flock and fcntl by number, on x86-64 and on arm64
LOCKING = {"x86_64": ("73", "72"), "aarch64": ("32", "25")}.get(os.uname().machine, ())
FRESH = 1000  # numbers from here on are saves after a crash, which check that the store still works


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
        _change(life, store, [{**operation, "again": True} for operation in life.interrupted])
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


def _fresh_changes(life: Life, store: Store) -> list[dict[str, Any]]:
    """One change of each of a few sessions, and of a new one: the store must still work.

    A session whose change was repeated keeps that as its latest: a newer one would hide its loss.
    """
    repeated = {operation["session"] for operation in life.interrupted}
    others = [s for s in life.workload["sessions"] if s not in repeated][:SOME]
    names = [*others, _new_session(life.number)]
    return [store.step(s, FRESH + life.number, place) for place, s in enumerate(names)]


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


class Store:
    """Wraps an adapter, so that sync and async methods are called alike."""

    def __init__(self, adapter: Any, directory: Path) -> None:
        self._adapter = adapter
        self._directory = directory
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._kinds = [do for do in ("save", "append") if hasattr(adapter, do)]
        self.callers: str = getattr(self._adapter, "callers", "one")
        self._most: int = getattr(self._adapter, "items_per_call", MOST)

    def opens(self) -> str:
        """Empty, or the error that prevented it from opening."""
        try:
            self._call("open", str(self._directory))
            if hasattr(self._adapter, "settle"):
                self._call("settle")
        except Exception as error:  # noqa: BLE001 - a library may raise anything
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
        named = self._call("settings") if hasattr(self._adapter, "settings") else {}
        found: dict[str, Any] = {str(name): self._without_path(value) for name, value in named.items()}
        return found if self.callers == "one" else {**found, "callers": self.callers}

    def _without_path(self, value: Any) -> Any:
        """Every run has a directory of its own, which must not make its settings differ."""
        return value.replace(str(self._directory), ".") if isinstance(value, str) else value

    def in_its_thread(self, session: str, work: Callable[[], None]) -> None:
        """Runs `work` here or in the session's own thread; one at a time, so that runs are repeatable."""
        if self.callers != "threads":
            work()
            return
        if session not in self._threads:
            self._threads[session] = ThreadPoolExecutor(1, thread_name_prefix=session)
        self._threads[session].submit(work).result()

    def step(self, session: str, n: int, place: int = 0) -> dict[str, Any]:
        """A small change; neighbours use each way of changing that the adapter has."""
        return {"do": self._kinds[place % len(self._kinds)], "session": session, "n": n, "size": 40}

    def do(self, step: dict[str, Any]) -> None:
        self.finish(self.begin(step))

    def begin(self, step: dict[str, Any]) -> Any:
        """Performs the step, or returns an awaitable that does."""
        session = step["session"]
        if step["do"] == "delete":
            return self._adapter.delete(session)
        if step["do"] == "append":
            items = deepcopy(items_of(session, step["n"], step["size"], self._most))
            return self._adapter.append(session, items)
        return self._adapter.save(session, dict(state_of(session, step["n"], step["size"])))

    def look(self, session: str) -> dict[str, Any]:
        """What the store holds: the numbers of intact saves, and a description of anything else."""
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


# --- the saved data: identified by number, compared in full


@lru_cache(maxsize=512)  # the same states are compared many times per process
def state_of(session: str, n: int, size: int) -> dict[str, Any]:
    return {"n": n, "session": session, "size": size, "text": _text(session, n, size)}


@lru_cache(maxsize=512)
def items_of(session: str, n: int, size: int, most: int = MOST) -> list[dict[str, Any]]:
    """The items of one append: one to three, at most `most`."""
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
    # A single character outside the BMP makes CPython use four bytes for every character of the text.
    # Large texts test size only, so they contain none.
    odd = ODD[: size // 4] if size < PLAIN else ""
    return odd + body[: size - len(odd)]


def recognised(session: str, found: Any) -> Any:
    """[n] or [n, part, of] if intact, else a description of the damage."""
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
    """A process opens the store, saves and is paused; a second one takes over; then the first resumes.

    The second process' acknowledged save must survive, whatever result the first one gets. A third process
    looks: the second one might answer from its memory.
    """
    session, first, second, late = "a", 1, 2, 3
    reading, writing = os.pipe()
    zombie = os.fork()
    if zombie == 0:
        os._exit(_be_the_zombie(store, session, first, late, writing))
    os.close(writing)
    os.read(reading, 1)  # the first process has saved and is about to pause, or has failed
    _, status = os.waitpid(zombie, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        raise RuntimeError("the first process could not save before it was to be paused")
    refusal = _in_a_child(lambda: _take_over(store, session, second), or_blocked=True)
    if refusal:  # the store admits no second process while the first one lives: there is no newer state
        life.probe("zombie", refused=None, trouble=refusal)
        os.kill(zombie, signal.SIGKILL)
        os.waitpid(zombie, 0)
        return
    os.kill(zombie, signal.SIGCONT)
    _, status = os.waitpid(zombie, 0)
    refused = os.waitstatus_to_exitcode(status) != 0
    found = _in_a_child(lambda: _look_afresh(store, session))
    life.probe("zombie", refused=refused, before=second, late=late, **found)


def _take_over(store: Store, session: str, n: int) -> str:
    """Nothing, or why the second process could not save."""
    trouble = store.opens()
    if trouble:
        return trouble
    try:
        store.look(session)
        store.do(store.step(session, n))
        store.close()
    except BaseException as error:  # noqa: BLE001 - any exception is a refusal
        return store.said(error)
    return ""


def _look_afresh(store: Store, session: str) -> dict[str, Any]:
    """What a new process reads, by the method that shows what `Store.step` changes."""
    trouble = store.opens()
    seen = {"trouble": trouble} if trouble else store.look(session)
    return {key: value for key, value in seen.items() if key != "items" or "load" not in seen}


def _in_a_child(work: Callable[[], Any], *, or_blocked: bool = False) -> Any:
    """What `work` returns in a process of its own; with `or_blocked`, a text if it waits for a lock."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            with os.fdopen(writing, "w") as pipe:
                json.dump(work(), pipe)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    blocked = or_blocked and _stays_blocked(child, reading)
    if blocked:
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    if blocked:
        return "the second process waits until the paused one has ended"
    if not text:
        raise RuntimeError("a process that was to take over from the paused one died without a report")
    return json.loads(text)


def _stays_blocked(child: int, pipe: int) -> bool:
    """Whether the child waits for a lock (for TAKE_OVER seconds: for anything) instead of reporting."""
    in_lock = 0
    for _ in range(int(TAKE_OVER / LOOK_EVERY)):
        if select.select([pipe], [], [], LOOK_EVERY)[0]:
            return False
        in_lock = in_lock + 1 if _waits_for_a_lock(child) else 0
        if in_lock >= 10:
            return True
    return True


def _waits_for_a_lock(pid: int) -> bool:
    """By the system call that a thread of the process is in; False where the kernel does not show it."""
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            if Path(f"/proc/{pid}/task/{task}/syscall").read_text().split()[0] in LOCKING:
                return True
    except OSError:
        return False
    return False


def _be_the_zombie(store: Store, session: str, first: int, late: int, writing: int) -> int:
    """0 if its late save was accepted."""
    try:
        if store.opens():
            return 1
        store.do(store.step(session, first))
        store.look(session)
        os.write(writing, b"x")
        os.kill(os.getpid(), signal.SIGSTOP)
        store.do(store.step(session, late))
        store.close()
    except BaseException:  # noqa: BLE001 - any exception is a refusal
        return 1
    return 0


# --- determinism


def make_repeatable(life: Life) -> None:
    """Derives ids, random numbers and SQL's clock from the seed and the life; Python's clock stays real."""
    rng = random.Random(f"{life.seed}/{life.number}")
    random.seed(f"{life.seed}/{life.number}")
    os.urandom = rng.randbytes
    # Names of temporary files: tempfile seeds its own generator from the kernel.
    tempfile._name_sequence = iter(lambda: f"{rng.getrandbits(40):010x}", "")  # type: ignore[attr-defined]  # noqa: SLF001
    uuid.uuid4 = lambda: uuid.UUID(int=rng.getrandbits(128), version=4)
    uuid.uuid1 = lambda node=None, clock_seq=None: uuid.UUID(int=rng.getrandbits(128), version=1)  # noqa: ARG005
    _make_sql_time_stand_still(f"2026-01-01 00:{life.number % 60:02d}:00")


def _make_sql_time_stand_still(now: str) -> None:
    """Makes CURRENT_TIMESTAMP constant for a whole life.

    SQLite does not write a page that an update leaves unchanged, so whether setting `updated_at` causes a
    write would depend on whether the clock has reached the next second.
    """

    def connects(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = CONNECT(*args, **kwargs)
        db.create_function("current_timestamp", 0, lambda: now)
        return db

    sqlite3.connect = connects  # type: ignore[assignment]
    sqlite3.dbapi2.connect = connects  # type: ignore[assignment]
