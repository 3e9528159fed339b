"""A paused process that comes back, after another one has taken over its store."""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaoskit.inside.life import Life
from chaoskit.inside.store import Store

TAKE_OVER = 8.0  # seconds that a second process has to open, read and save beside a paused one
LOOK_EVERY = 0.05
# flock and fcntl by number, on x86-64 and on arm64
LOCKING = {"x86_64": ("73", "72"), "aarch64": ("32", "25")}.get(os.uname().machine, ())


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
