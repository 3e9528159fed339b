"""Files written by older releases are read, and only appended to."""

import json
import shutil
from pathlib import Path

import pytest

from tests.agent.sessions.helpers import Home, kinds

OLDER = Path(__file__).parents[1] / "fixtures" / "older"
SESSIONS = {
    # session: status after a boot, and the lines that it added
    "running": ("interrupted_startup", ["run.interrupted", "boot.seen", "status.derived"]),
    "interrupted": ("interrupted_waiting", ["boot.seen"]),
    "ended": ("idle", ["boot.seen", "status.derived"]),
    "messages": ("idle", ["boot.seen", "status.derived"]),
    "snapshot-only": ("idle", ["boot.seen", "status.derived"]),
    "foreign": ("interrupted_startup", ["run.interrupted", "boot.seen", "status.derived"]),
    "agent": ("interrupted_startup", ["run.interrupted", "boot.seen", "status.derived"]),
}


@pytest.fixture
def home(tmp_path):
    shutil.copytree(OLDER, tmp_path / "sessions")
    return Home(tmp_path / "sessions")


def older(session, ending):
    path = OLDER / f"{session}{ending}"
    return path.read_bytes() if path.exists() else b""


def lacking(old, new, where=""):
    """The parts of `old` that are not in `new`."""
    for name, value in old.items():
        if name not in new:
            yield f"{where}{name}"
        elif isinstance(value, dict) and new[name] is not None:
            yield from lacking(value, new[name], f"{where}{name}.")


def test_every_fixture_is_tested():
    found = {path.name.split(".")[0] for path in OLDER.iterdir()} - {"README"}
    assert found == set(SESSIONS)


@pytest.mark.requirement("O8")
@pytest.mark.parametrize("session", SESSIONS)
def test_an_older_log_is_read_and_only_appended_to(home, session):
    status, added = SESSIONS[session]
    for boot in ("boot_1", "boot_1", "boot_2"):
        report = home.manager(boot).boot(home.path)
        assert report.failed == {}
        assert report.status[session] == status
    log = home.log(session).read_bytes()
    assert log.startswith(older(session, ".messages.jsonl"))
    new = [json.loads(line)["kind"] for line in log[len(older(session, ".messages.jsonl")) :].splitlines()]
    assert new == [*added, "boot.seen"]  # of the second boot
    old = json.loads(older(session, ".json") or "{}")
    assert list(lacking(old, json.loads(home.snapshot(session).read_bytes()))) == []


@pytest.mark.requirement("O8")
def test_missing_fields_have_defaults_and_known_ones_their_values(home):
    with home.open("running", create=None) as record:
        assert (record.snapshot.title, record.snapshot.provider.model) == ("Fix flaky test", "old-model")
        assert (record.snapshot.run.end, record.snapshot.run.request_id) == (None, None)
        assert (record.snapshot.recovery, record.tokens) == (None, {})
    with home.open("messages", create=None) as record:
        assert (record.snapshot.title, record.snapshot.run, record.snapshot.last_seq) == ("", None, 2)
        assert record.snapshot.created_at == "2025-11-03T08:01:00Z"
    with home.open("ended", create=None) as record:
        assert record.snapshot.run.end == "completed"


@pytest.mark.requirement("O8")
def test_an_interruption_recorded_only_in_the_log_is_not_written_again(home):
    with home.open("interrupted", create=None) as record:
        run = record.snapshot.run
        assert (run.end, run.wait.resume_token_id) == ("interrupted", "rt_5f0")
        assert record.snapshot.recovery.interruption.reason == "process_exit"
        assert record.snapshot.last_seq == 4
        home.manager().sweep(record)
        assert kinds(record).count("run.interrupted") == 1


@pytest.mark.requirement("O8")
def test_unknown_fields_are_kept_as_long_as_the_object_they_belong_to(home):
    home.manager().boot(home.path)
    stored = json.loads(home.snapshot("foreign").read_bytes())
    assert stored["tags"] == ["a", "b"]
    assert stored["provider"]["region"] == "eu"
    assert stored["run"]["pid"] == 4711
    assert stored["run"]["wait"]["asked"] == "ann"
    assert stored["recovery"]["host"] == "h1"
    with home.open("foreign") as record:
        home.start(record, "run_new")
        record.save()
    stored = json.loads(home.snapshot("foreign").read_bytes())
    assert "pid" not in stored["run"]  # of another run
    assert (stored["tags"], stored["recovery"]["host"]) == (["a", "b"], "h1")


@pytest.mark.requirement("O8")
def test_an_index_keeps_unknown_fields_but_not_unknown_tokens(home):
    with home.open("new") as record:
        home.start(record)
        home.wait(record)
        record.save()
        name = record.snapshot.run.wait.resume_token_id
        index = json.loads(home.index("new").read_bytes())
        index["made_by"] = "x"
        index["tokens"][name]["shown"] = 2
        index["tokens"]["rt_nobody"] = {**index["tokens"][name], "token_id": "rt_nobody"}
        home.index("new").write_text(json.dumps(index))
        record.append("token.revoked", token_id=name, reason="x")
        record.save()
    index = json.loads(home.index("new").read_bytes())
    assert index["made_by"] == "x"
    assert index["tokens"][name]["shown"] == 2
    assert index["tokens"][name]["state"] == "revoked"
    assert list(index["tokens"]) == [name]


@pytest.mark.requirement("O8")
def test_a_session_without_a_name_gets_a_session_created_line(home):
    with home.open("agent") as record:
        assert kinds(record)[-1] == "session.created"
        assert (record.snapshot.title, record.snapshot.run.run_id) == ("Fix", "run_f")
    with home.open("snapshot-only") as record:  # this one has a name
        assert kinds(record) == []
