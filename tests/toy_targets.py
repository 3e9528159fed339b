"""Small targets, each for one thing that the supervisor must notice. They run inside its processes."""

from __future__ import annotations

import os
import random
import signal
import string
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec

from chaoskit.inside import Life
from chaoskit.inside.life import ReplyLost, WorldRefused
from chaoskit.model import (
    Ack,
    History,
    Invariant,
    NothingToJudge,
    Probe,
    Scenario,
    Service,
    Target,
    Violation,
    last,
)

ODD = {"text": "\ud800 \u2028", "numbers": [float("nan"), float("inf"), 2**80], "empty": ""}
HERE = str(Path(__file__).resolve())


def persist(life: Life, name: str, text: str) -> None:
    sys.audit("persist.point", name, "before")
    with (life.directory / "file").open("a") as file:
        file.write(text)
    sys.audit("persist.point", name, "after")


def counting(life: Life) -> None:
    """Appends 1, 2, 3 to a file; after a crash it continues."""
    file = life.directory / "file"
    done = file.read_text() if file.exists() else ""
    if life.number:
        life.probe("recovered", text=done)
    for number in range(len(done) + 1, 4):
        with life.operation("append", number=number) as operation:
            persist(life, "append", str(number))
            life.ack("appended", number=number)
            operation.result = number
    life.probe("end", text=file.read_text())


def deliberate(life: Life) -> None:
    """Counts as above, and its recovery takes the more steps the more there is to recover."""
    file = life.directory / "file"
    done = file.read_text() if file.exists() else ""
    if life.number:
        for step in range(1 + len(done)):
            sys.audit("persist.point", f"check {step}", "before")
        life.probe("recovered", text=done)
    for number in range(len(done) + 1, 4):
        persist(life, "append", str(number))


async def asynchronous(life: Life) -> None:
    counting(life)


def spending(life: Life) -> None:
    persist(life, "intent", "x")
    life.call("bank", "pay", key="k", euro=5)
    persist(life, "done", "y")


def shopping(life: Life) -> None:
    """Buys what its workload names, as often as it must; a life gives up at the second error."""
    file = life.directory / "file"
    done = file.read_text() if file.exists() else ""
    if life.number:
        life.probe("recovered", text=done)
    for name in life.workload["names"][len(done) :]:
        with life.operation("buy", what=name):
            _buy(life, name)
            persist(life, "bought", name)
            life.ack("bought", what=name)
    life.probe("end", text=file.read_text())


def _buy(life: Life, name: str) -> None:
    try:
        life.call("shop", "buy", key=f"{life.seed}", what=name)
    except WorldRefused:
        life.probe("refused")
        life.call("shop", "buy", key=f"{life.seed}", what=name)
    except ReplyLost:
        life.probe("lost")
        life.call("shop", "happened", key=f"{life.seed}")


def toughened(life: Life) -> None:
    """Writes each name to a file of its own, and writes it again if the disk refuses the first time."""
    if life.number:
        life.probe("recovered", names=sorted(path.name for path in life.directory.iterdir()))
    for name in life.workload["names"]:
        with life.operation("write", letter=name):
            for _ in range(3):
                try:
                    _write_file(life.directory / name, name * 4)
                    break
                except OSError:
                    life.probe("refused")
            life.ack("written", letter=name)
    life.probe("end", names=sorted(path.name for path in life.directory.iterdir()))


def _write_file(path: Path, text: str) -> None:
    for where, flags in ((path, os.O_WRONLY | os.O_CREAT), (path.parent, os.O_RDONLY)):
        file = os.open(where, flags)
        try:
            if flags != os.O_RDONLY:
                os.write(file, text.encode())
            os.fsync(file)
        finally:
            os.close(file)


def exacting(life: Life) -> None:
    """Its workload has values that not every encoding can carry."""
    if repr(life.workload) != repr(ODD):
        raise ValueError(f"got {life.workload!r}")
    persist(life, "append", "1")


def chatty(life: Life) -> None:
    print("to stdout")
    print("to stderr", file=sys.stderr)
    persist(life, "append", "1")


def hanging_when_resumed(life: Life) -> None:
    persist(life, "append", "1")
    while life.number:
        signal.pause()


def busy_when_resumed(life: Life) -> None:
    persist(life, "append", "1")
    while life.number and time.process_time() < life.workload["seconds"]:
        pass


def slow_when_resumed(life: Life) -> None:
    persist(life, "append", "1")
    if life.number:
        time.sleep(1.5)


def failing_when_resumed(life: Life) -> None:
    if life.number:
        raise RuntimeError("cannot read my own file")
    persist(life, "append", "1")


def failing_when_resumed_from_paper(life: Life) -> None:
    if life.number and life.store == "paper":
        raise RuntimeError("cannot read my own hand")
    persist(life, "append", "1")


def failing_always(life: Life) -> None:
    persist(life, "append", "1")
    raise RuntimeError("broken from the start")


def killed_by_a_stranger(life: Life) -> None:
    persist(life, "append", "1")
    if life.number:
        os.kill(os.getpid(), signal.SIGSEGV)


def leaving_quietly(life: Life) -> None:
    persist(life, "append", "1")
    if life.number:
        os._exit(7)


def with_children(life: Life) -> None:
    """Starts one child in its group and one in a session of its own; both would outlive it."""
    code = "import time; time.sleep(600)"
    children = [
        subprocess.Popen([sys.executable, "-c", code]),
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True),
    ]
    life.probe("children", pids=[child.pid for child in children])
    persist(life, "append", "1")


def silent(life: Life) -> None:
    (life.directory / "file").write_text("nobody saw this")


def without_points_when_resumed(life: Life) -> None:
    if not life.number:
        persist(life, "append", "1")


def unrepeatable(life: Life) -> None:
    persist(life, "append", "1")
    life.probe("end", number=random.SystemRandom().random())


def crowded(life: Life) -> None:
    """Each agent writes its name at its own persist point; after a crash it continues."""
    file = life.directory / "file"
    done = file.read_text() if file.exists() else ""
    if life.number:
        sys.audit("persist.point", "look", "before")
        life.probe("recovered", text=done)
    for name in life.workload["names"][len(done) :]:
        with life.operation("write", letter=name):
            persist(life, f"write {name}", name)
    life.probe("end", text=file.read_text())


def _unlucky(life: Life, words: str) -> None:
    if life.seed % 5 == 0:
        raise RuntimeError(words)


def crowded_and_brittle(life: Life) -> None:
    """Some workloads do not survive a crash."""
    if life.number:
        _unlucky(life, "one of us is gone")
    crowded(life)


def crowded_and_lame(life: Life) -> None:
    """Some workloads fail without any crash."""
    crowded(life)
    _unlucky(life, "we cannot stand each other")


def crowded_and_fickle(life: Life) -> None:
    """Seed 0 is repeatable, others are not."""
    if life.seed:
        life.probe("mood", number=random.SystemRandom().random())
    crowded(life)


def _crowd(seed: int, agents: int) -> dict[str, object]:
    if agents > 26:
        raise ValueError(f"expected up to 26 agents, got {agents}")
    return {"names": random.Random(seed).choices(string.ascii_lowercase[:agents], k=agents)}


def misspelt_phase(life: Life) -> None:
    sys.audit("persist.point", "append", "befor")


def _scenario(
    entry: str, *services: Service, preload: tuple[str, ...] = (), stores: tuple[str, ...] = ()
) -> Scenario:
    return Scenario(
        name=entry,
        summary=entry,
        target=Target(entry=f"{HERE}:{entry}", preload=preload),
        workload=lambda seed: {"seed": seed},
        invariants=("recovers",),
        services=services,
        stores=stores,
    )


COUNTING = _scenario("counting")
DELIBERATE = _scenario("deliberate")
CROWD, BRITTLE_CROWD, LAME_CROWD, FICKLE_CROWD = (
    msgspec.structs.replace(_scenario(entry), workload=partial(_crowd, agents=2), workload_for=_crowd)
    for entry in ("crowded", "crowded_and_brittle", "crowded_and_lame", "crowded_and_fickle")
)
GENERATED, BRITTLE_GENERATED = (
    msgspec.structs.replace(
        _scenario(entry), workload=partial(_crowd, agents=4), generated=True, must_reach=("probe:never",)
    )
    for entry in ("crowded", "crowded_and_brittle")
)
SHOPPING = msgspec.structs.replace(
    _scenario("shopping", Service(name="shop", verifiable=True)),
    workload=partial(_crowd, agents=4),
    generated=True,
    world_faults=True,
    must_reach=("probe:lost", "ok:buy", "struck:world"),
)
TOUGHENED = msgspec.structs.replace(
    _scenario("toughened"), workload=partial(_crowd, agents=4), generated=True
)
EXACTING = msgspec.structs.replace(_scenario("exacting"), workload=lambda _seed: ODD, generated=True)
ASYNCHRONOUS = _scenario("asynchronous")
SPENDING = _scenario("spending", Service(name="bank"))
CHATTY = _scenario("chatty")
SLOW = _scenario("slow_when_resumed")
HANGING = _scenario("hanging_when_resumed")
BUSY = msgspec.structs.replace(_scenario("busy_when_resumed"), workload=lambda _seed: {"seconds": 0.4})
FAILING = _scenario("failing_when_resumed")
CHOOSING = _scenario("failing_when_resumed_from_paper", stores=("stone", "paper"))
BROKEN = _scenario("failing_always")
STRANGER = _scenario("killed_by_a_stranger")
QUIET = _scenario("leaving_quietly")
CHILDREN = _scenario("with_children")
SILENT = _scenario("silent")
POINTLESS = _scenario("without_points_when_resumed")
UNREPEATABLE = _scenario("unrepeatable")
MISSPELT = _scenario("misspelt_phase")
MISSING = _scenario("there_is_no_such_function")
THREADED = _scenario("counting", preload=(f"{HERE}:start_a_thread",))
OPENED = _scenario("counting", preload=(f"{HERE}:open_a_file",))
NOT_A_SCENARIO = 7

_held: list[object] = []


def __getattr__(name: str) -> object:
    """What a careless target does on import, here only on request."""
    if name == "start_a_thread":
        thread = threading.Thread(target=threading.Event().wait, daemon=True, name="watcher")
        thread.start()
        return thread
    if name == "open_a_file":
        _held.append(Path(HERE).open())  # noqa: SIM115 - left open on purpose
        return _held
    raise AttributeError(name)


# --- recoveries: the same points, but not the same recovery


def settling(life: Life) -> None:
    """Does each job in two steps; its recovery finishes an interrupted one, and is careless about `mail`."""
    journal, done = life.directory / "journal", life.directory / "done"
    finished = done.read_text().split() if done.exists() else []
    if life.number and journal.exists() and journal.read_text():
        job = journal.read_text()
        if job == "mail":  # forgets the job before it is done
            with announced("forget"):
                journal.write_text("")
            with announced("settle"):
                done.write_text(" ".join([*finished, job]))
        else:
            with announced("forget"):
                done.write_text(" ".join(dict.fromkeys([*finished, job])))
            with announced("settle"):
                journal.write_text("")
    if life.workload["reports"]:
        life.probe("recovered", done=done.read_text() if done.exists() else "")
    for job in life.workload["jobs"]:
        if job not in (done.read_text() if done.exists() else "") and not life.number:
            with announced("promise"):
                journal.write_text(job)
            life.ack("promised", job=job)
            with announced("do"):
                done.write_text(" ".join([*finished, job]))
            with announced("finish"):
                journal.write_text("")
            finished.append(job)
    life.probe("end", done=done.read_text() if done.exists() else "")


@contextmanager
def announced(name: str) -> Iterator[None]:
    sys.audit("persist.point", name, "before")
    yield
    sys.audit("persist.point", name, "after")


def promised_jobs_are_done(history: History) -> Iterator[Violation]:
    promised = [ack.data["job"] for ack in history.of(Ack, "promised")]
    end = last(history.of(Probe, "end"))
    if end is None or not promised:
        raise NothingToJudge
    for job in promised:
        if job not in end.data["done"].split():
            yield Violation("forgotten", f"{job} was promised and never done")


KEPT = Invariant(name="kept", summary="a promised job is done", check=promised_jobs_are_done)
SETTLING = Scenario(
    name="settling",
    summary="jobs in two steps",
    target=Target(entry=f"{HERE}:settling"),
    workload=lambda _seed: {"jobs": ["pay", "mail"], "reports": True},
    invariants=("recovers", f"{HERE}:KEPT"),
)
UNREPORTED = msgspec.structs.replace(
    SETTLING, name="unreported", workload=lambda _seed: {"jobs": ["mail"], "reports": False}
)
