"""Real processes, real kills."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from chaoskit.faults.kill import Kill
from chaoskit.faults.kind import decode_hook
from chaoskit.inside.life import said_by
from chaoskit.model import (
    Ack,
    Born,
    Crashed,
    Effect,
    Ended,
    Event,
    Fail,
    Info,
    Invoke,
    Ok,
    PersistPoint,
    Probe,
    Schedule,
)
from chaoskit.recording import unfinished
from chaoskit.run.supervisor import HISTORY_FILE, OutOfTime, interrupted
from chaoskit.run.zygote import CannotStart


def kill(name, nth=1, when="after"):
    return Kill(PersistPoint(name, nth), when)


def crash(rig, *faults):
    return rig.run(Schedule(tuple(faults)), rig.workload())[0]


@pytest.mark.requirement("C1")
@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize(
    ("when", "nth", "found"), [("before", 1, ""), ("after", 1, "1"), ("before", 3, "12")]
)
def test_a_kill_is_exactly_at_its_point(rig, cold, when, nth, found):
    target = rig("COUNTING", cold=cold)
    run = crash(target, kill("append", nth, when))
    assert [p.data["text"] for p in run.history.of(Probe, "recovered")] == [found]
    assert [p.data["text"] for p in run.history.of(Probe, "end")] == ["123"]
    assert (run.fired, run.doubts) == (1, ())


def test_nothing_of_the_target_runs_after_the_point(rig):
    run = crash(rig("COUNTING"), kill("append", 2, "after"))
    first_life = [e.data["number"] for e in run.history.of(Ack) if e.life == 0]
    assert first_life == [1], "2 was written, but its acknowledgement would come after the kill"


def test_one_run_can_have_several_crashes(rig):
    run = crash(rig("COUNTING"), kill("append", 1), kill("append", 1), kill("append", 1, "before"))
    assert [e.how for e in run.history.of(Ended)] == ["crashed"] * 3 + ["completed"]
    assert [p.data["text"] for p in run.history.of(Probe, "recovered")] == ["1", "12", "12"]


def test_an_asynchronous_entry_is_awaited(rig):
    assert [e.how for e in crash(rig("ASYNCHRONOUS")).history.of(Ended)] == ["completed"]


def test_an_operation_ends_in_ok_or_in_info_when_its_process_died(rig):
    history = crash(rig("COUNTING"), kill("append", 2)).history
    assert [(e.life, e.op) for e in history.of(Ok)] == [(0, 1), (1, 1)]
    assert [(e.life, e.op) for e in history.of(Info)] == [(0, 2)]


def test_effects_of_a_dead_process_stay_done(rig):
    run = crash(rig("SPENDING"), kill("done", 1, "before"))
    assert [(e.life, e.at, e.args) for e in run.history.of(Effect)] == [
        (0, 2, {"euro": 5}),
        (1, 2, {"euro": 5}),
    ]


def test_positions_in_the_trace_order_acknowledgements_against_points(rig):
    run = crash(rig("COUNTING"), kill("append", 2))
    assert [(e.life, e.at) for e in run.history.of(Ack)] == [(0, 2), (1, 2)]
    assert [e.at for e in run.history.of(Crashed)] == [4]
    assert len(run.traces[0]) == 4


@pytest.mark.requirement("C2")
def test_a_fault_that_did_not_fire_is_a_doubt(rig):
    run = crash(rig("COUNTING"), kill("append", 99))
    assert run.fired == 0
    assert list(map(str, run.doubts)) == ["the planned fault did not fire: kill after append#99"]


def test_a_second_fault_that_is_never_reached_is_a_doubt(rig):
    run = crash(rig("POINTLESS"), kill("append", 1), kill("append", 1))
    assert (run.fired, len(run.doubts)) == (1, 1)


@pytest.mark.parametrize(
    ("scenario", "death"),
    [("STRANGER", "signal SIGSEGV"), ("QUIET", "exit code 7 before it reported a result")],
)
def test_a_death_that_chaoskit_did_not_cause_is_a_doubt(rig, scenario, death):
    run = crash(rig(scenario), kill("append", 1))
    assert [e.how for e in run.history.of(Ended)] == ["crashed", "died"]
    assert list(map(str, run.doubts)) == [f"life 1 died ({death}), but chaoskit did not kill it"]


@pytest.mark.requirement("C1")
def test_a_hang_ends_at_the_deadline_and_is_reported(rig):
    run = crash(rig("HANGING", deadline=0.3), kill("append", 1))
    assert [e.how for e in run.history.of(Ended)] == ["crashed", "hung"]
    assert "did not finish in 0.3 s" in list(run.history.of(Ended))[-1].detail


@pytest.fixture
def crowded_core():
    """This process, what it starts, and others that are always busy share one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    yield
    os.sched_setaffinity(0, before)
    for other in others:
        other.kill()
        other.wait()


@pytest.mark.requirement("C1")
@pytest.mark.parametrize(("scenario", "how"), [("BUSY", "completed"), ("HANGING", "hung")])
def test_time_that_a_life_waits_for_a_core_does_not_count(rig, crowded_core, scenario, how):
    """BUG of the harness: beside other work, a life of a sound agent was reported as hung."""
    run = crash(rig(scenario, deadline=0.8), kill("append", 1))
    assert [e.how for e in run.history.of(Ended)] == ["crashed", how]


@pytest.mark.requirement("C1")
def test_no_process_is_started_when_the_time_is_up(rig):
    """One that is started and then abandoned would live on, and keep its socket open."""
    under_test = rig("HANGING", deadline=0.3)
    under_test.stop_at(0.0)
    before = psutil.Process().children(recursive=True)
    with pytest.raises(OutOfTime):
        crash(under_test)
    assert psutil.Process().children(recursive=True) == before


def test_an_exception_is_reported_with_its_traceback(rig):
    end = list(crash(rig("FAILING"), kill("append", 1)).history.of(Ended))[-1]
    assert end.how == "failed"
    assert end.detail.strip().endswith("RuntimeError: cannot read my own file")


@pytest.mark.requirement("C1")
@pytest.mark.parametrize("fault", [(), (kill("append", 1),)])
def test_nothing_that_a_life_started_outlives_it(rig, fault):
    run = crash(rig("CHILDREN"), *fault)
    pids = [pid for probe in run.history.of(Probe, "children") for pid in probe.data["pids"]]
    assert pids
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_output_and_history_are_kept_with_the_run(rig):
    target = rig("CHATTY")
    run, directory = target.run(Schedule((kill("append", 1),)), target.workload())
    # A killed process loses what it had not flushed; a life that ends normally does not.
    assert Path(directory, "stdout-1").read_text() == "to stdout\n"
    assert Path(directory, "stderr-1").read_text() == "to stderr\n"
    lines = Path(directory, HISTORY_FILE).read_bytes().splitlines()
    assert (
        tuple(msgspec.json.decode(line, type=Event, dec_hook=decode_hook) for line in lines)
        == run.history.events
    )


def test_a_wrong_phase_is_refused_rather_than_ignored(rig):
    end = list(crash(rig("MISSPELT")).history.of(Ended))[-1]
    assert "'before' or 'after', got 'befor'" in end.detail


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        ("THREADED", r"expected one thread before a fork, found 2 \(watcher.*OPENBLAS_NUM_THREADS"),
        ("OPENED", "expected no open file before a fork, found .*toy_targets.py"),
    ],
)
def test_a_zygote_that_is_not_safe_to_fork_refuses(rig, scenario, reason):
    with pytest.raises(CannotStart, match=reason):
        crash(rig(scenario))


def test_a_target_that_cannot_be_imported_is_reported_with_its_traceback(rig):
    with pytest.raises(CannotStart, match="there_is_no_such_function"):
        rig("MISSING")


def test_operations_that_were_interrupted_or_failed_are_retried():
    asked = [Invoke(0, 0, op, "change", {"n": op}) for op in (1, 2, 3)]
    events = [Born(0), *asked, Fail(0, 1, 2, "full"), Ok(0, 1, 1), Born(1)]
    assert unfinished(events, 0) == [Info(0, 3)]  # one that failed is not unfinished ...
    assert interrupted(events, 0) == [{"n": 2}, {"n": 3}]  # ... but is retried
    assert (unfinished(events, 1), interrupted(events, 1)) == ([], [])


def test_an_error_message_does_not_depend_on_where_the_state_directory_is():
    missing = FileNotFoundError(2, "No such file", "/run-7/state/a.json")
    assert said_by(missing, Path("/run-7/state")) == "[Errno 2] No such file: './a.json'"
    assert said_by(TimeoutError(), Path("/run-7")) == "TimeoutError"
