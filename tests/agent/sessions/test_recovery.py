"""The sweep: it does what is due after a restart or a deadline, exactly once."""

import json

import pytest

from reference_agent.recovery.manager import due
from tests.agent.sessions.helpers import Home, id_of, kinds


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "sessions")


@pytest.fixture
def record(home):
    with home.open() as record:
        home.start(record)
        yield record


def swept(home, record, boot="boot_1"):
    """One sweep; checks that a second one has nothing to do."""
    manager = home.manager(boot)
    appended = manager.sweep(record)
    assert manager.sweep(record) == []
    assert due(record, boot, home.now) is None
    return appended, manager.status(record)


def interruptions(record):
    return [
        (event["run_id"], event["reason"]) for event in record.events if event["kind"] == "run.interrupted"
    ]


# --- O3: boot


@pytest.mark.requirement("O3")
def test_a_restart_during_a_run_gives_one_interruption_and_the_status_says_so(home, record):
    assert swept(home, record, "boot_2") == (
        ["run.interrupted", "boot.seen", "status.derived"],
        "interrupted_startup",
    )
    assert interruptions(record) == [("run_1", "process_restart")]
    assert record.snapshot.recovery.interruption.reason == "process_restart"
    for boot in ("boot_3", "boot_4"):
        assert swept(home, record, boot) == (["boot.seen"], "interrupted_startup")
    assert len(interruptions(record)) == 1


@pytest.mark.requirement("O3")
def test_a_run_of_this_boot_is_left_alone(home, record):
    assert swept(home, record) == (["boot.seen", "status.derived"], "running")
    home.wait(record)
    assert swept(home, record) == (["status.derived"], "waiting")


@pytest.mark.requirement("O3")
@pytest.mark.parametrize("end", ["run.completed", "run.failed", "run.cancelled", "run.interrupted"])
def test_a_run_with_an_end_is_never_interrupted(home, record, end):
    record.append(end, run_id="run_1", reason="x")
    appended, status = swept(home, record, "boot_2")
    assert appended == ["boot.seen", "status.derived"]
    assert status == "idle"
    assert len(interruptions(record)) == (end == "run.interrupted")


@pytest.mark.requirement("O3")
def test_each_run_of_an_older_boot_gets_its_end_not_only_the_latest(home, record):
    first = home.wait(record)
    home.start(record, "run_2")
    home.start(record, "run_3", boot="boot_2")
    assert swept(home, record, "boot_2")[1] == "running"
    assert interruptions(record) == [(f"run_{n}", "process_restart") for n in (1, 2)]
    assert record.tokens[id_of(first)].state == "revoked"
    assert record.snapshot.run.run_id == "run_3"
    assert swept(home, record, "boot_3")[1] == "interrupted_startup"
    assert len(interruptions(record)) == 3


@pytest.mark.requirement("O3")
def test_an_earlier_run_of_this_boot_may_still_be_running(home, record):
    home.start(record, "run_2")
    assert swept(home, record)[0] == ["boot.seen", "status.derived"]
    assert record.open_runs == {"run_1": "boot_1", "run_2": "boot_1"}
    record.append("run.completed", run_id="run_1")
    assert record.open_runs == {"run_2": "boot_1"}
    assert record.snapshot.run.end is None


@pytest.mark.requirement("O3")
def test_a_run_without_a_boot_id_belongs_to_an_older_boot(home):
    with home.open() as record:
        record.append("run.started", run_id="run_1", request_id="q")  # as older releases of the agent did
        assert swept(home, record)[1] == "interrupted_startup"


@pytest.mark.requirement("O3")
def test_a_new_run_ends_what_the_status_says_about_the_old_one(home, record):
    swept(home, record, "boot_2")
    home.start(record, "run_2", "boot_2")
    assert swept(home, record, "boot_2") == (["status.derived"], "running")
    record.append("run.completed", run_id="run_2")
    assert swept(home, record, "boot_2") == (["status.derived"], "idle")


# --- O4: waits


@pytest.mark.requirement("O4")
def test_a_deadline_that_passed_ends_the_wait_once_and_revokes_the_token(home, record):
    text = home.wait(record, ttl=100, deadline=60)
    home.now += 59.999
    assert swept(home, record)[1] == "waiting"
    home.now += 0.001
    assert swept(home, record) == (
        ["token.revoked", "run.interrupted", "status.derived"],
        "interrupted_waiting",
    )
    assert interruptions(record) == [("run_1", "wait_timeout")]
    assert record.tokens[id_of(text)].state == "revoked"
    home.now += 1000
    assert swept(home, record) == ([], "interrupted_waiting")
    assert swept(home, record, "boot_2") == (["boot.seen"], "interrupted_waiting")


@pytest.mark.requirement("O4")
def test_a_token_and_a_deadline_that_end_together_are_a_timeout(home, record):
    text = home.wait(record, ttl=60, deadline=60)
    home.now += 60
    assert swept(home, record)[0] == ["token.revoked", "run.interrupted", "boot.seen", "status.derived"]
    assert interruptions(record) == [("run_1", "wait_timeout")]
    assert record.tokens[id_of(text)].reason == "wait_timeout"


@pytest.mark.requirement("O4", "O5")
@pytest.mark.parametrize("how", ["revoked", "expired", "missing"])
def test_a_wait_whose_token_is_invalid_is_interrupted_and_cannot_be_resumed(home, record, how):
    service = home.service(record)
    if how == "missing":
        wait = {"wait_kind": "approval", "resume_token_id": "rt_none"}
        record.append("run.waiting", run_id="run_1", **wait)
    else:
        text = home.wait(record, ttl=60, deadline=600)
    if how == "revoked":
        service.revoke(id_of(text), "x")
    if how == "expired":
        home.now += 60
    assert home.manager().status(record) == "interrupted_waiting"  # also before any sweep
    appended, status = swept(home, record)
    assert appended == ["token.expired"] * (how == "expired") + [
        "run.interrupted",
        "boot.seen",
        "status.derived",
    ]
    assert status == "interrupted_waiting"
    assert interruptions(record) == [("run_1", "token_invalid")]
    home.now += 1000  # and its deadline causes nothing more
    assert swept(home, record) == ([], "interrupted_waiting")


@pytest.mark.requirement("O4")
def test_a_consumed_token_resumes_its_run_even_if_the_deadline_has_passed_since(home, record):
    text = home.wait(record, deadline=60)
    record.append("token.consumed", token_id=id_of(text), request_id="q2", result=1)
    home.now += 100
    assert swept(home, record) == (["run.resumed", "boot.seen", "status.derived"], "running")
    assert home.service(record).consume(text, "q2", 1).first is False
    assert kinds(record).count("run.resumed") == 1


@pytest.mark.requirement("O4")
def test_a_fresh_message_while_waiting_revokes_the_token_and_starts_a_new_run(home, record):
    text = home.wait(record, deadline=60)
    home.service(record).revoke(id_of(text), "new_run")
    record.append("run.cancelled", run_id="run_1")
    record.append("message.user", message_id="m", content="never mind")
    home.start(record, "run_2")
    assert home.manager().status(record) == "running"
    home.now += 1000
    assert swept(home, record) == (["boot.seen", "status.derived"], "running")
    assert interruptions(record) == []


@pytest.mark.requirement("O4", "O5")
def test_tokens_of_ended_runs_do_not_stay_active(home, record):
    first = home.wait(record, ttl=60)
    record.append("run.completed", run_id="run_1")
    home.start(record, "run_2")
    early = home.service(record).mint("run_2", "approval", None, 60)  # its wait is about to begin
    assert swept(home, record)[0] == ["token.revoked", "boot.seen", "status.derived"]
    assert record.tokens[id_of(first)].reason == "run_over"
    assert record.tokens[id_of(early)].state == "active"
    home.now += 60
    assert swept(home, record)[0] == ["token.expired"]


# --- boot over all sessions


@pytest.mark.requirement("O3")
def test_boot_sweeps_all_sessions_even_if_some_are_damaged(home):
    for name in ("fine", "busy", "torn", "bad-log", "bad-snapshot", "idle"):
        with home.open(name) as record:
            if name != "idle":
                home.start(record)
            record.save()
    with home.log("torn").open("ab") as file:
        file.write(b'{"seq":3,"ts"')
    home.log("bad-log").write_bytes(b"nothing\n")
    home.snapshot("bad-snapshot").write_bytes(b"nothing")
    home.log("bad-snapshot").write_bytes(b"")
    home.log("never-began").touch()
    (home.path / "other.txt").touch()
    files = {name: home.log(name).read_bytes() for name in ("busy", "bad-log", "bad-snapshot")}
    with home.open("busy"):
        report = home.manager("boot_2").boot(home.path)
    assert report.status == {"fine": "interrupted_startup", "torn": "interrupted_startup", "idle": "idle"}
    assert report.appended["fine"] == ["run.interrupted", "boot.seen", "status.derived"]
    assert report.appended["idle"] == ["boot.seen", "status.derived"]
    assert sorted(report.failed) == ["bad-log", "bad-snapshot", "busy"]
    assert "another process" in report.failed["busy"]
    assert "bad-log.messages.jsonl, line 1" in report.failed["bad-log"]
    assert "bad-snapshot.json" in report.failed["bad-snapshot"]
    assert {name: home.log(name).read_bytes() for name in files} == files
    again = home.manager("boot_2").boot(home.path)
    assert set(map(tuple, again.appended.values())) == {
        (),
        ("run.interrupted", "boot.seen", "status.derived"),
    }
    assert sorted(again.failed) == ["bad-log", "bad-snapshot"]


@pytest.mark.requirement("O3")
def test_a_write_error_in_one_session_does_not_stop_the_others(home, monkeypatch):
    for name in ("a", "b"):
        with home.open(name) as record:
            home.start(record)
    blocked = home.path / "a.json.tmp"
    blocked.mkdir()  # the snapshot cannot be written
    report = home.manager("boot_2").boot(home.path)
    assert list(report.failed) == ["a"]
    assert report.status == {"b": "interrupted_startup"}
    blocked.rmdir()
    again = home.manager("boot_2").boot(home.path)
    assert again.appended == {"a": [], "b": []}  # its lines were durable
    assert json.loads(home.snapshot("a").read_bytes())["run"]["end"] == "interrupted"
