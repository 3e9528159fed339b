"""The supervisor: carries out schedules and records what happens. All side effects are here.

    start life 0 --(fault fires: dead)--> start life 1 --( ... )--> last life, undisturbed --> Run

There are two ways to a Run. `carry_out` executes the whole schedule. `recover` starts from a crash state
that was rebuilt from a recording, which saves the lives before the crash; its findings are confirmed by
`carry_out` before they are reported.

Guarantees:

S1. A fault counts as fired only if the child recorded that it fired *and* the process died of it
    (or, for a survivable fault, if the interposer recorded that it fired).
S2. A planned fault that did not fire, and a death that chaoskit did not cause, put a doubt on the run.
S3. A life that exceeds its deadline is killed and recorded as `hung`. Time in which it was ready to run and
    had no core does not count.
S4. No process of a life's process group is left when the next life starts.
S5. The history is on disk before it is judged.
S6. No life outlasts `until`: a run that is not finished then is abandoned with OutOfTime, never judged.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path

import msgspec

from chaoskit.disk.continued import continued
from chaoskit.disk.kill_states import last_image
from chaoskit.disk.ops import Trace
from chaoskit.disk.staging import StagingDirectory
from chaoskit.disk.verify import differences, links_out, never_synced, surprises, written_elsewhere
from chaoskit.faults.kind import Arming, kind_of
from chaoskit.inside.points import KILLED
from chaoskit.inside.protocol import LifeSpec
from chaoskit.model import (
    Born,
    Crashed,
    Doubt,
    Effect,
    Ended,
    Event,
    Fault,
    Firing,
    History,
    How,
    Invoke,
    Json,
    Mutant,
    Ok,
    Placed,
    Run,
    Scenario,
    Schedule,
    Struck,
    Workload,
)
from chaoskit.recording import CrashState, Recording, firings_of, unfinished
from chaoskit.run.conversation import Conversation
from chaoskit.run.fingerprint import fingerprint
from chaoskit.run.watch import DiskWatch
from chaoskit.run.world import World
from chaoskit.run.zygote import Zygote

HISTORY_FILE = "history.jsonl"
STATE = "state"  # below a run's directory: what the target persists
_JSON = msgspec.json.Encoder()
START_OF_TIME = 1_700_000_000  # of a seeded clock; each life begins some time after the one before
MINUTE = 60
PASSED = 3  # points before a crash that its story shows
LIVES_PER_PROCESS = 120  # bounds the number of states that a leak in the target can affect
BOTH = 8  # rebuilt states at which a fresh process and a reused one both look at first...
EVERY = 16  # ... and then every so many


class OutOfTime(Exception):
    """The time limit ended a run before its end."""


class Supervisor:
    """Runs schedules of one scenario, one at a time; lives after the first have a zygote of their own."""

    def __init__(
        self,
        scenario: Scenario,
        zygote: Zygote,
        later: Zygote | None = None,
        *,
        store: str | None = None,
        mutant: Mutant | None = None,
        deadline: float | None = None,
        watch: DiskWatch | None = None,
        calls: bool = False,
    ) -> None:
        """`calls`: traces include the calls of the World, because faults are to strike them."""
        self._scenario = scenario
        self._zygote = zygote
        self._later = later or zygote
        self._store = store
        self._mutant = mutant
        self._deadline = deadline or scenario.target.deadline
        self._watch = watch
        self._calls = calls
        self.until: float | None = None  # on the monotonic clock
        self._kept: dict[str, _Process] = {}  # reused processes, by what they do
        self._looks = 0  # of reused processes
        self._looks_differ = False  # whether a reused process has seen other content than a fresh one
        self._recoveries = 0
        self._stage: StagingDirectory | None = None
        self._traces: list[Trace] = []  # of the run under way, one per life

    # --- real runs

    def carry_out(
        self, schedule: Schedule, directory: Path, workload: Workload, *, look_again: bool = True
    ) -> Run:
        """One run in its own directory; the target's files are in `state` below it."""
        run = _RunInProgress(self._scenario, directory, workload)
        faults: tuple[Fault | None, ...] = (*schedule.faults, None)
        for life, fault in enumerate(faults):
            zygote = self._later if life else self._zygote
            process = self._start(zygote, directory, life)
            how = self._live(run, process, life, fault, self._watch)
            self._keep_trace(life, schedule)
            if not run.goes_on(how, fault):
                break
            if fault:
                self._finish_off(run, fault)
                if len(schedule.faults) == 1:  # a sweep may crash the recovery, but only if it is a new one
                    run.origin = run.fingerprint(process.process.pid)
        if look_again and self._scenario.target.looks_again and how == "completed":
            if not schedule.faults:
                run.move()
            self._look_again(run, directory, len(faults))
        return run.finish(schedule)

    def _look_again(self, run: _RunInProgress, directory: Path, life: int) -> None:
        """In a process that has not seen the lives before: it knows only what is on the disk."""
        self._live(run, self._start(self._later, directory, life), life, None, None, final=True)

    def _look_at_state(self, run: _RunInProgress, directory: Path, life: int) -> None:
        """In a process that has only looked at other states, which saves a fork. What it remembers of those
        may mislead it, so that a fresh process looks as well, again and again; if the two ever differ, only
        fresh ones look from then on."""
        if self._looks_differ or self._mutant:
            self._look_again(run, directory, life)
            return
        self._looks += 1
        begin, doubts = len(run.events), len(run.doubts)
        self._live(run, self._process_for("look", directory), life, None, None, final=True)
        if self._looks > BOTH and self._looks % EVERY:
            return
        seen = run.events[begin:]
        del run.events[begin:], run.doubts[doubts:]
        self._look_again(run, directory, life)
        self._looks_differ = seen != run.events[begin:]
        if self._looks_differ and self._looks > BOTH + 1:  # others in between were not compared
            differs = "a process that has looked at other states sees other content than a fresh one"
            run.doubts.append(Doubt("remembers", differs))

    def record_recovery(self, earlier: Schedule, directory: Path, workload: Workload) -> Recording | None:
        """The life after these faults, with every disk operation; None if one of the faults did not fire."""
        assert self._watch is not None, "recording needs a disk watch"
        run = self.carry_out(earlier, directory, workload, look_again=False)
        if run.doubts:
            return None
        last = len(earlier.faults)
        mine = tuple(e for e in run.history.events if e.life == last)
        before = tuple(e for e in run.history.events if e.life < last)
        trace = self._trace()
        unseen = differences(last_image(trace), directory / STATE)
        return Recording(trace, mine, tuple(unseen), earlier, before)

    def record(self, directory: Path, workload: Workload) -> tuple[Run, Recording]:
        """The run without faults, with every disk operation."""
        assert self._watch is not None, "recording needs a disk watch"
        run = self.carry_out(Schedule(), directory, workload, look_again=False)
        trace = self._watch.trace()
        unseen = differences(last_image(trace), directory / STATE)
        unseen += [*surprises(trace), *links_out(trace), *never_synced(trace)]
        unseen += written_elsewhere(trace, directory)
        told = msgspec.structs.replace(trace, found=())  # compared, and no longer needed
        return run, Recording(told, run.history.events, tuple(unseen))

    def _finish_off(self, run: _RunInProgress, fault: Fault) -> None:
        """Applies the fault to the directory of the process that it killed."""
        after_death = kind_of(fault.parts[-1]).after_death
        if after_death:
            assert self._watch is not None, f"{fault} needs a disk watch"
            after_death(fault.parts[-1], self._trace(), run.state)

    def _keep_trace(self, life: int, schedule: Schedule) -> None:
        if self._watch is None:
            return
        if life == 0 or kind_of(schedule.faults[life - 1].parts[-1]).after_death:
            self._traces = []  # after a power loss everything that is left is durable
        self._traces.append(self._watch.trace())

    def _trace(self) -> Trace:
        """Of the run so far: what an earlier life did not sync can still be lost in a later one."""
        return reduce(continued, self._traces)

    def recorded(self, run: Run, life: int) -> Recording:
        """One of the last two lives of the run that was carried out last."""
        back = len(run.traces) - 1 - life
        trace = reduce(continued, self._traces[: len(self._traces) - back])
        mine = tuple(e for e in run.history.events if e.life == life)
        before = tuple(e for e in run.history.events if e.life < life)
        return Recording(trace, mine, (), Schedule(run.schedule.faults[:life]), before)

    # --- runs from a rebuilt state

    def recover(self, recording: Recording, state: CrashState, directory: Path, workload: Workload) -> Run:
        """Runs only the life after the recorded one, on what its crash left. `directory` is reused."""
        self._recoveries += 1  # a place of its own: a process that is reused may remember the last one
        run = _RunInProgress(self._scenario, directory, workload, f"state-{self._recoveries}")
        run.begin_with(state.events(recording))
        if self._stage is None or self._stage.parent != str(directory):
            self._stage = StagingDirectory(run.state)
        self._stage.move_to(run.state)
        self._stage.show(state.image, recording.times(state.position), mapped=recording.maps_files)
        life = recording.life + 1
        how = self._live(run, self._process_for("recover", directory), life, None, None)
        if self._scenario.target.looks_again and how == "completed":
            self._look_at_state(run, directory, life + 1)
        return run.finish(Schedule((*recording.earlier.faults, state.fault)))

    def _process_for(self, what: str, directory: Path) -> _Process:
        """A reused process, or a new one for a mutant, whose patch may keep state."""
        kept = self._kept.get(what)
        if kept and (kept.lives >= LIVES_PER_PROCESS or self._mutant):
            self._kept.pop(what).end()
        if what not in self._kept:
            self._kept[what] = self._start(self._later, directory, 1, kept=True)
        return self._kept[what]

    def retire(self) -> None:
        """Ends the reused processes."""
        while self._kept:
            self._kept.popitem()[1].end()

    # --- one life

    def _start(self, zygote: Zygote, directory: Path, life: int, *, kept: bool = False) -> _Process:
        if self._is_over():
            raise OutOfTime
        return _Process(zygote, directory, life, kept=kept)

    def _live(
        self,
        run: _RunInProgress,
        process: _Process,
        life: int,
        fault: Fault | None,
        watch: DiskWatch | None,
        *,
        final: bool = False,
    ) -> How:
        run.events.append(Born(life))
        try:
            arming = kind_of(fault).arm(fault) if fault else Arming()
            if watch:
                watch.arm(run.state, arming.disk, check=life == 0 and fault is None)
        except BaseException:  # a fault that cannot strike: tokens come from anywhere
            process.end()
            raise
        # What a life had reported before it hung must not be lost with it; where the target is somebody
        # else's, that is worth a message at a time.
        buffered = fault is None and (final or not self._scenario.target.looks_again)
        process.begin(self._spec(run, life, arming, watch, buffered=buffered, final=final))
        conversation = Conversation(process.channel, run.world, run.events, arming.call)
        timely = conversation.listen(
            process.process, self._deadline, until=self.until, until_death=not process.kept
        )
        # A life may complete at the very moment at which it is killed for being late.
        survives = process.kept and conversation.reusable and timely
        status = None if survives else process.end()
        if not survives:
            self._kept = {what: each for what, each in self._kept.items() if each is not process}
        if not timely and self._is_over():
            raise OutOfTime
        named, killed_at_name = read_trace(run.directory / f"trace-{life}")
        if not final:  # plans crash what a target does, not the harness' look at it
            passed = firings_of(watch.trace(), run.events, life) if watch else named
            run.traces.append(conversation.calls.among(passed) if self._calls else passed)
        if watch:
            run.doubts += [Doubt("blind-spot", text) for text in _unseen(watch, run.state, fault)]
        fired = (killed_at_name, bool(watch and watch.fired), conversation.calls.fired)
        struck = _all_armed(arming, fired)
        return self._note_end(run, life, fault, conversation, _Ending(timely, status, struck, watch))

    def _is_over(self) -> bool:
        return self.until is not None and time.monotonic() >= self.until

    def _note_end(
        self, run: _RunInProgress, life: int, fault: Fault | None, said: Conversation, end: _Ending
    ) -> How:
        if fault and end.is_the_crash_of(fault):
            return run.end_crashed(life, fault)
        if fault and end.struck:
            run.strike(life, fault)
        elif fault:  # its errors may have struck; the crash that was to follow has not
            run.events += [Struck(life, survived) for survived in fault.parts[:-1]]
        if not end.timely:
            late = f"did not finish in {self._deadline:g} s, its deadline, and was killed"
            return run.end(life, "hung", late)
        if said.last:
            return run.end(life, "completed" if said.last == "completed" else "failed", said.detail)
        return run.end(life, "died", describe_status(end.status or 0))

    def _spec(
        self,
        run: _RunInProgress,
        life: int,
        arming: Arming,
        watch: DiskWatch | None,
        *,
        buffered: bool,
        final: bool,
    ) -> LifeSpec:
        return LifeSpec(
            entry=self._scenario.target.entry,
            patch=self._mutant.patch if self._mutant else None,
            directory=str(run.state),
            trace=None if run.rebuilt else str(run.directory / f"trace-{life}"),
            control=str(watch.control_path) if watch else None,
            buffered=buffered,
            life=life,
            seed=run.workload.seed,
            store=self._store,
            workload=run.content,
            interrupted=interrupted(run.events, life - 1),
            kill=arming.named,
            final=final,
            clock=START_OF_TIME + MINUTE * life if self._scenario.target.seeded_clock else 0,
        )


def _all_armed(arming: Arming, fired: tuple[bool, bool, bool]) -> bool:
    """Whether all that a fault consists of has fired."""
    armed = (arming.named, arming.disk, arming.call)
    return any(armed) and all(did for part, did in zip(armed, fired, strict=True) if part)


class _Ending:
    """How a life's process ended, as observed from outside."""

    def __init__(self, timely: bool, status: int | None, struck: bool, watch: DiskWatch | None) -> None:
        self.timely = timely
        self.status = status
        self.struck = struck
        self._watch = watch

    def is_the_crash_of(self, fault: Fault) -> bool:
        if kind_of(fault).survivable:
            return False
        at_the_end = (  # planned after the last operation: no kill needed
            len(fault.parts) == 1
            and self._watch is not None
            and self._watch.position == fault.point.op
            and self.status == 0
        )
        killed = self.status is not None and os.WIFSIGNALED(self.status)
        return at_the_end or (self.struck and killed and os.WTERMSIG(self.status or 0) == signal.SIGKILL)


class _Process:
    """A process for one life or, if `kept`, for several lives in sequence."""

    def __init__(self, zygote: Zygote, directory: Path, life: int, *, kept: bool = False) -> None:
        self.kept = kept
        self.lives = 0
        self.channel, theirs = socket.socketpair()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        out, err = (os.open(directory / f"{name}-{life}", flags, 0o600) for name in ("stdout", "stderr"))
        try:
            self.process = zygote.start([theirs.fileno(), out, err])
        except BaseException:
            self.channel.close()
            raise
        finally:
            theirs.close()
            os.close(out)
            os.close(err)

    def begin(self, spec: LifeSpec) -> None:
        self.lives += 1
        with suppress(BrokenPipeError):  # it is dead already, which `listen` will notice
            self.channel.sendall(msgspec.json.encode(spec) + b"\n")

    def end(self) -> int:
        """Kills what is left of the process; returns the wait status."""
        self.channel.close()
        return self.process.reap()


class _RunInProgress:
    """A run while it is executed. Names of the files of life n end in `-n`."""

    def __init__(self, scenario: Scenario, directory: Path, workload: Workload, state: str = STATE) -> None:
        self.directory = directory
        self.workload = workload
        self.state = directory / state
        # Also what strict JSON has no room for: halves of surrogate pairs, nan, integers beyond 64 bits.
        self.content = msgspec.Raw(json.dumps(workload.content).encode())
        self.world = World(scenario.services)
        self.events: list[Event] = []
        self.traces: list[tuple[Firing, ...]] = []
        self.fired = 0
        self.rebuilt = False
        self.origin = ""
        self.doubts: list[Doubt] = []
        directory.mkdir(exist_ok=True)  # without parents: a removed workspace must not reappear
        self.state.mkdir(exist_ok=True)

    def begin_with(self, events: Iterable[Event]) -> None:
        """Starts from these events; a crash among them counts as fired."""
        self.rebuilt = True
        self.events += events
        self.world.ledger += [event for event in self.events if isinstance(event, Effect)]
        self.fired = sum(isinstance(event, Crashed) for event in self.events)

    def goes_on(self, how: How, fault: Fault | None) -> bool:
        """Whether another life follows: after a crash or a survivable fault."""
        survivable = fault is not None and kind_of(fault).survivable
        return how == "crashed" or (survivable and how in ("completed", "failed"))

    def strike(self, life: int, fault: Fault) -> None:
        self.fired += 1
        self.events.append(Struck(life, fault))

    def end_crashed(self, life: int, fault: Fault) -> How:
        self.fired += 1
        passed = sum(firing.when != "call" for firing in self.traces[-1])
        at = fault.point.op if fault.point.op is not None else passed
        self.events += unfinished(self.events, life)
        self.events += [Struck(life, survived) for survived in fault.parts[:-1]]
        crash = Crashed(life, at, fault, passed_before(fault, self.traces[-1]))
        self.events += [crash, Ended(life, "crashed")]
        return "crashed"

    def end(self, life: int, how: How, detail: str = "") -> How:
        self.events += unfinished(self.events, life)
        self.events.append(Ended(life, how, detail))
        if how == "died":
            self.doubts.append(Doubt("foreign-death", f"life {life} died ({detail})"))
        return how

    def move(self) -> None:
        """Rebuilt states have a directory of their own: what works only where it was made is not tested."""
        moved = self.state.with_name("moved")
        self.state.rename(moved)
        self.state = moved

    def fingerprint(self, pid: int) -> str:
        """Of all that decides whether a recovery is right: what is on the disk, and what others have seen."""
        seen = _JSON.encode([event for event in self.events if isinstance(event, Placed)])
        return f"{fingerprint(self.state, pid)}-{zlib.crc32(seen):08x}"

    def finish(self, schedule: Schedule) -> Run:
        for fault in schedule.faults[self.fired :]:
            self.doubts.append(Doubt("missed-fault", str(fault)))
        (self.directory / HISTORY_FILE).write_bytes(_JSON.encode_lines(self.events))
        return Run(
            schedule=schedule,
            history=History(tuple(self.events), self.workload.undisturbed),
            traces=tuple(self.traces),
            fired=self.fired,
            doubts=tuple(self.doubts),
            origin=self.origin,
        )


def _unseen(watch: DiskWatch, state: Path, fault: Fault | None) -> list[str]:
    """What the interposer could not record. A real crash also shows a state that no run would leave at its
    end: it must be the one that the trace tells."""
    spots = list(dict.fromkeys(map(str, watch.blind_spots())))
    return spots if fault is None else [*spots, *differences(last_image(watch.trace()), state)]


def passed_before(fault: Fault, trace: Sequence[Firing]) -> tuple[str, ...]:
    """The last few points that a life had passed when the fault struck."""
    op = fault.point.op
    before = [f for f in trace if f.when == "before" and (op is None or (f.point.op or 0) < op)]
    named = [f.point.name for f in before if f.point != fault.point]
    return tuple(named[-PASSED:])


def interrupted(events: Iterable[Event], life: int) -> list[Json]:
    """The arguments of that life's operations that failed or did not return."""
    asked: dict[int, Json] = {}
    for event in events:
        if isinstance(event, Invoke) and event.life == life:
            asked[event.op] = event.args
        elif isinstance(event, Ok) and event.life == life:
            asked.pop(event.op, None)
    return list(asked.values())


def read_trace(path: Path) -> tuple[tuple[Firing, ...], bool]:
    """The named firings of one life, and whether it died of the planned fault."""
    content = path.read_bytes() if path.exists() else b""
    killed = content.endswith(KILLED)
    seen: dict[tuple[str, str], int] = {}
    firings = []
    for line in content.removesuffix(KILLED).decode().splitlines():
        when, name = line.split("\t")
        nth = seen[name, when] = seen.get((name, when), 0) + 1
        firings.append(msgspec.convert({"point": {"name": name, "nth": nth}, "when": when}, Firing))
    return tuple(firings), killed


def describe_status(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit code {os.waitstatus_to_exitcode(status)} before it reported a result"
