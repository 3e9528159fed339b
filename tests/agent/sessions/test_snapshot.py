"""The snapshot and the token index are caches of the log: whatever happens to them, the log is the truth."""

import json
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st

from reference_agent.ids import BadSessionId
from reference_agent.sessions.artifacts import Damaged, overlay
from reference_agent.sessions.record import SessionRecord, UnknownSession, session_ids
from reference_agent.sessions.snapshot import (
    Interruption,
    ProviderBlock,
    RecoveryBlock,
    RunBlock,
    SessionSnapshot,
    SnapshotFile,
    WaitBlock,
    fold,
    fold_all,
)
from reference_agent.sessions.times import has_passed, stamp
from reference_agent.sessions.token_index import fold_all_tokens, fold_tokens
from reference_agent.store.event_log import DamagedLog
from reference_agent.store.lock import SessionBusy
from tests.agent.sessions.helpers import START, TORN, Death, Home, dying_at, kinds

TS = "2026-02-21T10:00:00Z"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "sessions")


def filled(home) -> SessionRecord:
    """A saved session with some history whose run is waiting."""
    record = home.open()
    home.start(record)
    home.wait(record, deadline=600)
    record.save()
    return record


# --- O1: the format


@pytest.mark.requirement("O1")
def test_the_files_have_the_specified_format(home):
    with filled(home) as record:
        token = record.snapshot.run.wait.resume_token_id
    assert json.loads(home.snapshot().read_bytes()) == {
        "id": "s",
        "title": "Fix",
        "working_dir": "/repo",
        "provider": {"type": "native", "model": "m1"},
        "created_at": TS,
        "updated_at": TS,
        "last_seq": 4,
        "run": {
            "run_id": "run_1",
            "boot_id": "boot_1",
            "started_at": TS,
            "ended_at": None,
            "end": None,
            "request_id": "q1",
            "wait": {
                "kind": "approval",
                "since_seq": 4,
                "resume_token_id": token,
                "deadline_at": "2026-02-21T10:10:00.000000Z",
                "call_id": "call_1",
            },
        },
        "recovery": {"last_boot_seen": None, "interruption": None},
    }
    lines = [json.loads(line) for line in home.log().read_bytes().splitlines()]
    assert [line["seq"] for line in lines] == [1, 2, 3, 4]
    assert all({"seq", "ts", "kind"} <= line.keys() for line in lines)
    assert home.snapshot().stat().st_mode & 0o777 == 0o600


@pytest.mark.requirement("O1")
def test_a_torn_last_line_is_cut_off_and_other_damage_names_file_and_line(home):
    filled(home).close()
    whole = home.log().read_bytes()
    home.log().write_bytes(whole + TORN)
    home.open().close()
    assert home.log().read_bytes() == whole
    home.log().write_bytes(whole.replace(b'"seq":2', b'"seq":3'))
    with pytest.raises(DamagedLog, match=r"s\.messages\.jsonl, line 2: expected seq 2, found 3"):
        home.open()
    home.log().write_bytes(whole)
    home.open().close()  # the lock was released


FOLDS = [
    # event (besides run_id), run before -> run after
    (
        "run.waiting",
        {"wait_kind": "k", "resume_token_id": "t", "deadline_at": TS, "call_id": "c"},
        RunBlock("r"),
        RunBlock("r", wait=WaitBlock("k", 9, "t", TS, "c")),
    ),
    (
        "run.waiting",
        {"wait_kind": "k", "resume_token_id": "u"},
        RunBlock("r", wait=WaitBlock("k", 3, "t")),
        RunBlock("r", wait=WaitBlock("k", 3, "u")),
    ),
    ("run.resumed", {}, RunBlock("r", wait=WaitBlock("k", 3, "t")), RunBlock("r")),
    ("run.completed", {}, RunBlock("r", wait=WaitBlock("k")), RunBlock("r", ended_at=TS, end="completed")),
    ("run.failed", {}, RunBlock("r"), RunBlock("r", ended_at=TS, end="failed")),
    ("run.cancelled", {}, RunBlock("r"), RunBlock("r", ended_at=TS, end="cancelled")),
    (
        "run.interrupted",
        {},
        RunBlock("r", wait=WaitBlock("k")),
        RunBlock("r", ended_at=TS, end="interrupted", wait=WaitBlock("k")),
    ),
    (
        "run.completed",
        {},
        RunBlock("r", ended_at="x", end="interrupted"),
        RunBlock("r", ended_at=TS, end="completed"),
    ),
    (
        "run.interrupted",
        {},
        RunBlock("r", ended_at="x", end="failed"),
        RunBlock("r", ended_at="x", end="failed"),
    ),
    ("run.waiting", {}, RunBlock("r", end="interrupted"), RunBlock("r", end="interrupted")),
    (
        "run.resumed",
        {},
        RunBlock("r", end="interrupted", wait=WaitBlock("k")),
        RunBlock("r", end="interrupted", wait=WaitBlock("k")),
    ),
    ("message.user", {}, RunBlock("r"), RunBlock("r")),
]


@pytest.mark.requirement("O1")
@pytest.mark.parametrize(("kind", "fields", "before", "after"), FOLDS)
def test_each_event_changes_the_run_as_specified(kind, fields, before, after):
    event = {"seq": 9, "ts": TS, "kind": kind, **fields}
    folded = fold(SessionSnapshot("s", last_seq=8, run=before), event | {"run_id": "r"})
    assert folded.run == after
    assert (folded.last_seq, folded.updated_at) == (9, TS)
    of_another_run = fold(SessionSnapshot("s", last_seq=8, run=before), event | {"run_id": "other"})
    assert of_another_run.run == before


@pytest.mark.requirement("O1")
def test_an_interruption_is_remembered_until_the_next_run(home):
    interrupted = {"seq": 2, "ts": TS, "kind": "run.interrupted", "run_id": "r", "reason": "why"}
    snapshot = fold(SessionSnapshot("s", run=RunBlock("r")), interrupted)
    assert snapshot.recovery == RecoveryBlock(None, Interruption("r", "why", 2, TS))
    snapshot = fold(snapshot, {"seq": 3, "ts": TS, "kind": "boot.seen", "boot_id": "b"})
    assert snapshot.recovery == RecoveryBlock("b", Interruption("r", "why", 2, TS))
    snapshot = fold(snapshot, {"seq": 4, "ts": TS, "kind": "run.started", "run_id": "r2", "boot_id": "b"})
    assert snapshot.recovery == RecoveryBlock("b", None)


JSON = st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=3)
NAMES = [
    "run_id",
    "boot_id",
    "request_id",
    "wait_kind",
    "resume_token_id",
    "deadline_at",
    "token_id",
    "hash",
    "reason",
    "title",
    "provider",
    "status",
    "result",
]
KINDS = [
    "session.created",
    "run.started",
    "run.waiting",
    "run.resumed",
    "run.completed",
    "run.interrupted",
    "boot.seen",
    "token.minted",
    "token.consumed",
    "token.revoked",
    "token.expired",
    "other",
]
EVENTS = st.lists(
    st.builds(
        lambda kind, fields: {"ts": TS, "kind": kind, **fields},
        st.sampled_from(KINDS),
        st.fixed_dictionaries({}, optional={name: st.sampled_from(["a", "b"]) | JSON for name in NAMES}),
    ),
    max_size=12,
).map(lambda events: [{"seq": seq, **event} for seq, event in enumerate(events, 1)])


@pytest.mark.requirement("O1", "O8")
@given(EVENTS, st.integers(0, 12))
def test_folding_any_log_never_fails_and_may_be_split_anywhere(events, cut):
    whole = fold_all(SessionSnapshot("s"), events)
    part = fold_all(SessionSnapshot("s"), events[:cut])
    stored = msgspec.json.decode(msgspec.json.encode(part), type=SessionSnapshot)
    assert stored == part
    assert fold_all(stored, events[cut:]) == whole
    tokens = fold_all_tokens({}, events[:cut])
    before = dict(tokens)
    assert fold_all_tokens(tokens, events[cut:]) == fold_all_tokens({}, events)
    assert tokens == before  # pure


# --- O1: caches


@pytest.mark.requirement("O1")
@pytest.mark.parametrize("lost", ["snapshot", "index", "both", "behind"])
def test_a_cache_that_is_missing_or_behind_changes_nothing(home, lost):
    filled(home).close()
    old = home.snapshot().read_bytes(), home.index().read_bytes()
    with home.open() as record:
        token = record.snapshot.run.wait.resume_token_id
        record.append("token.revoked", token_id=token, reason="x")
        record.append("run.cancelled", run_id="run_1")
        record.save()
        wanted = record.snapshot, record.tokens
    if lost in ("snapshot", "both"):
        home.snapshot().unlink()
    if lost in ("index", "both"):
        home.index().unlink()
    if lost == "behind":
        home.snapshot().write_bytes(old[0])
        home.index().write_bytes(old[1])
    with home.open(create=None) as record:
        assert (record.snapshot, record.tokens) == wanted
        assert kinds(record).count("session.created") == 1


@pytest.mark.requirement("O1")
@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"id": 3}', b'{"id":"s","last_seq":-1}', b"\xff"])
def test_a_damaged_cache_is_rebuilt_and_the_old_file_is_set_aside(home, damage):
    with filled(home) as record:
        wanted = record.snapshot, record.tokens
    home.snapshot().write_bytes(damage)
    home.index().write_bytes(damage)
    with home.open(create=None) as record:
        assert (record.snapshot, record.tokens) == wanted
    assert (home.path / "s.json.set-aside").read_bytes() == damage
    assert SnapshotFile(home.snapshot()).load() == wanted[0]


@pytest.mark.requirement("O1")
def test_a_damaged_snapshot_that_the_log_cannot_replace_is_an_error_and_left_unchanged(home):
    home.log().write_bytes(b'{"seq":1,"ts":"x","kind":"message.user","content":"hi"}\n')
    home.snapshot().write_bytes(b'{"id": "s", "title": "preci')
    for create in (None, {"title": "new"}):
        with pytest.raises(Damaged, match=r"s\.json: not a JSON object"):
            home.open(create=create)
    assert home.snapshot().read_bytes() == b'{"id": "s", "title": "preci'
    assert len(home.log().read_bytes().splitlines()) == 1


@pytest.mark.requirement("O1")
def test_a_snapshot_ahead_of_the_log_is_not_trusted_even_when_the_log_has_grown(home):
    filled(home).close()
    lines = home.log().read_bytes().splitlines(keepends=True)
    ahead = json.loads(home.snapshot().read_bytes()) | {"mine": 1, "title": "Kept"}
    home.snapshot().write_text(json.dumps(ahead))
    home.log().write_bytes(b"".join(lines[:2]))  # the wait and its token are lost
    with home.open() as record:
        assert record.snapshot.run == RunBlock("run_1", "boot_1", TS, request_id="q1")
        assert record.tokens == {}
        for _ in range(4):
            record.append("message.user", content="x")
        # and dies without a save
    with home.open() as record:
        assert record.snapshot.run.wait is None
        assert record.tokens == {}
    assert json.loads((home.path / "s.json.set-aside").read_bytes()) == ahead
    assert json.loads(home.snapshot().read_bytes())["mine"] == 1


@pytest.mark.requirement("O1")
def test_fields_known_only_to_a_snapshot_ahead_of_the_log_are_kept(home):
    home.log().write_bytes(b'{"seq":1,"ts":"x","kind":"message.user","content":"hi"}\n')
    stored = SessionSnapshot("s", "T", "/w", ProviderBlock("p", "m"), TS, TS, 7, RunBlock("r"))
    SnapshotFile(home.snapshot()).save(stored)
    for _ in range(2):
        with home.open() as record:
            assert record.snapshot.title == "T"
            assert record.snapshot.provider == ProviderBlock("p", "m")
            assert (record.snapshot.run, record.snapshot.last_seq) == (None, 1)
            assert kinds(record) == ["message.user"]


@pytest.mark.requirement("O1")
def test_a_snapshot_whose_log_is_gone_or_of_another_session_is_an_error(home):
    filled(home).close()
    home.log().unlink()
    before = home.snapshot().read_bytes()
    for _ in range(2):
        with pytest.raises(
            Damaged, match=r"s\.json: at seq 4, but the log ends at 0: s\.messages\.jsonl is missing"
        ):
            home.open()
    assert home.snapshot().read_bytes() == before
    home.snapshot().rename(home.snapshot("t"))
    with pytest.raises(Damaged, match=r"t\.json: belongs to session 's'"):
        home.open("t")


@pytest.mark.requirement("O1")
def test_a_snapshot_is_replaced_as_a_whole_or_not_at_all(home):
    file = SnapshotFile(home.snapshot())
    old, new = SessionSnapshot("s", "old"), SessionSnapshot("s", "new")
    for deadly, wanted in ((1, old), (2, new)):
        file.save(old)
        with dying_at(deadly) as points, pytest.raises(Death):
            file.save(new)
        assert points.passed[-1][0] == "snapshot.save"
        assert file.load() == wanted
    temporary = home.path / "s.json.tmp"
    temporary.write_bytes(b"what a crash left, and longer than all that is to be written" * 100)
    file.save(old)
    assert file.load() == old
    assert not temporary.exists()


@pytest.mark.requirement("O1")
def test_a_snapshot_is_synced_before_it_gets_its_name_and_the_name_after(home, monkeypatch):
    done = []
    fsync, rename = os.fsync, Path.replace

    def synced(fd):
        done.append(("fsync", str(Path(f"/proc/self/fd/{fd}").readlink())))
        fsync(fd)

    def renamed(path, target):
        done.append(("rename", str(path), str(target)))
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    SnapshotFile(home.snapshot()).save(SessionSnapshot("s"))
    name = str(home.snapshot())
    assert done == [("fsync", f"{name}.tmp"), ("rename", f"{name}.tmp", name), ("fsync", str(home.path))]


@pytest.mark.requirement("O1")
def test_a_full_disk_leaves_the_snapshot_unchanged(home, monkeypatch):
    file = SnapshotFile(home.snapshot())
    file.save(SessionSnapshot("s", "old"))

    def full(_fd):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            file.save(SessionSnapshot("s", "new"))
    assert file.load() == SessionSnapshot("s", "old")


@pytest.mark.requirement("O1")
def test_only_what_has_changed_is_written(home):
    with filled(home) as record, dying_at(None) as points:
        record.save()
        assert points.passed == []
        record.append("message.user", content="x")
        record.save()
    assert [name for name, when in points.passed if when == "after"] == ["log.append", "snapshot.save"]


# --- sessions


def test_a_missing_or_busy_session_cannot_be_opened(home):
    with pytest.raises(UnknownSession, match="no session nobody in"):
        home.open("nobody", create=None)
    assert list(home.path.iterdir()) == []
    with filled(home), pytest.raises(SessionBusy):
        home.open()
    home.log("empty").touch()  # a crash before the first line
    with pytest.raises(UnknownSession):
        home.open("empty", create=None)
    with home.open("empty") as record:
        assert kinds(record) == ["session.created"]


def test_an_existing_session_is_not_created_again(home):
    filled(home).close()
    with home.open(create={"title": "Another"}) as record:
        assert record.snapshot.title == "Fix"
        assert kinds(record).count("session.created") == 1


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".a", "a/b", "../a", "a b", "a\n", "a\0", "é", "a" * 101, "a.tokens", "a\\b", "~"]
)
def test_an_invalid_session_id_is_refused(home, name):
    with pytest.raises(BadSessionId, match="session id: expected 1 to 64 letters"):
        home.open(name)
    assert list(home.path.iterdir()) == []


def test_sessions_are_found_by_their_files(home):
    for name in ("a", "a_b", "-x", "a" * 64):
        with home.open(name) as record:
            home.start(record)
            home.wait(record)
            record.save()
    home.log("only-log").write_bytes(b"")
    home.snapshot("only-snapshot").write_bytes(b"{}")
    for other in (".hidden.json", "sessions.db", "notes.txt", "a.json.tmp", "a.json.set-aside"):
        (home.path / other).touch()
    assert session_ids(home.path) == sorted(["a", "a_b", "-x", "a" * 64, "only-log", "only-snapshot"])


# --- small parts


@given(st.integers(0, 4 * 10**15).map(lambda micro: micro / 10**6))
def test_times_round_trip_and_sort(moment):
    assert has_passed(stamp(moment), moment)
    assert not has_passed(stamp(moment), moment - 0.001)
    assert (stamp(moment) < stamp(START)) == (moment < START)


def test_an_unreadable_deadline_has_passed_and_a_missing_one_never_does():
    assert has_passed("soon", 0.0)
    assert not has_passed(None, 1e12)
    assert has_passed("2026-02-21T10:00:00Z", START)
    assert not has_passed("2026-02-21T10:00:00Z", START - 1)
    assert not has_passed("2026-02-21T10:00:00", START - 1)


@pytest.mark.requirement("O8")
def test_unknown_fields_stay_with_the_object_they_belong_to():
    old = {"a": 1, "x": 1, "run": {"run_id": "r", "x": 2, "wait": {"resume_token_id": "t", "x": 3}}}
    same = {"a": 2, "run": {"run_id": "r", "wait": {"resume_token_id": "t"}}}
    assert overlay(old, same) == {
        "a": 2,
        "x": 1,
        "run": {"run_id": "r", "x": 2, "wait": {"resume_token_id": "t", "x": 3}},
    }
    other = {"a": 2, "run": {"run_id": "r2", "wait": {"resume_token_id": "t"}}}
    assert overlay(old, other) == {"x": 1, **other}
    assert overlay(old, {"a": 2, "run": None}) == {"a": 2, "x": 1, "run": None}


def test_a_token_leaves_the_active_state_only_once():
    minted = {"kind": "token.minted", "token_id": "t", "hash": "h"}
    ends = [{"kind": f"token.{state}", "token_id": "t"} for state in ("consumed", "revoked", "expired")]
    for first in ends:
        tokens = fold_all_tokens({}, [minted, first])
        for second in [*ends, minted]:
            assert fold_tokens(tokens, second) == tokens
    assert fold_tokens({}, ends[0]) == {}
