"""Databases and logs that are damaged, torn or from a later release are reported and left unchanged."""

import sqlite3
from pathlib import Path

import aiosqlite
import pytest

from reference_agent.messages import Message
from reference_agent.store.database import CorruptStore, Database, NewerStore
from reference_agent.store.event_log import DamagedLog, EventLog
from tests.agent.helpers import Home, entry, play
from tests.agent.stores import fresh, opened

# --- damage


def whole_database(path: Path) -> bytes:
    async def main():
        store = await fresh(path)
        for turn in range(40):
            await store.add_message(Message("user", "x" * 900), turn)
        await store.close()

    play(main())
    return path.read_bytes()


def garbage_header(content: bytes) -> bytes:
    return b"not a database at all" + content[21:]


def flipped_page(content: bytes) -> bytes:
    """Overwrite the page type of every page but the first."""
    pages = bytearray(content)
    for start in range(4096, len(pages), 4096):
        pages[start] ^= 0x55
    return bytes(pages)


def one_flipped_page(content: bytes) -> bytes:
    """Damage only messages, which opening does not read unless it checks everything."""
    page = content.rindex(b"x" * 900) // 4096 * 4096
    return content[:page] + bytes([content[page] ^ 0x55]) + content[page + 1 :]


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def in_mid_page(content: bytes) -> bytes:
    return content[: len(content) // 2 + 100]


DAMAGES = [garbage_header, flipped_page, one_flipped_page, truncated, in_mid_page]


@pytest.mark.requirement("K3")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_reported_and_left_unchanged(tmp_path, damage):
    path = tmp_path / "sessions.db"
    content = damage(whole_database(path))
    path.write_bytes(content)
    with pytest.raises(CorruptStore, match=r"sessions\.db is damaged.*Restore"):
        play(opened(path))
    assert path.read_bytes() == content


@pytest.mark.requirement("K3")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_and_its_write_ahead_log_are_left_unchanged(tmp_path, damage):
    # BUG found by this test: closing the connection moved the log into the damaged file.
    live = tmp_path / "live.db"
    whole_database(live)
    keep = sqlite3.connect(live)
    keep.execute("INSERT INTO plans VALUES ('a', 'b')")
    keep.commit()
    path, wal = tmp_path / "sessions.db", tmp_path / "sessions.db-wal"
    path.write_bytes(damage(live.read_bytes()))
    wal.write_bytes((tmp_path / "live.db-wal").read_bytes())
    keep.close()
    before = path.read_bytes(), wal.read_bytes()
    with pytest.raises(CorruptStore):
        play(opened(path))
    assert wal.exists()
    assert (path.read_bytes(), wal.read_bytes()) == before


@pytest.mark.requirement("K3")
def test_damage_is_reported_even_if_the_second_check_fails(tmp_path):
    path = tmp_path / "sessions.db"
    path.write_bytes(flipped_page(whole_database(path)))
    opened_for_good = []

    def connect(database, **options):
        if "mode=ro" in str(database):
            raise sqlite3.OperationalError("unable to open database file")
        opened_for_good.append(aiosqlite.connect(database, **options))
        return opened_for_good[-1]

    with pytest.raises(CorruptStore, match="is damaged"):
        play(Database.open(path, connect))
    assert [connection._connection for connection in opened_for_good] == [None]  # it is closed


@pytest.mark.requirement("K3")
def test_a_sound_database_is_not_reported_as_damaged(tmp_path):
    whole_database(tmp_path / "db")

    async def main():
        store = await opened(tmp_path / "db")
        found = await store.messages()
        await store.close()
        return found

    assert len(play(main())) == 40


@pytest.mark.requirement("K3")
def test_a_database_of_a_later_release_is_refused(tmp_path):
    whole_database(tmp_path / "db")
    db = sqlite3.connect(tmp_path / "db")
    db.execute("PRAGMA user_version = 99")
    db.close()
    before = (tmp_path / "db").read_bytes()
    with pytest.raises(NewerStore, match="version 99"):
        play(opened(tmp_path / "db"))
    assert (tmp_path / "db").read_bytes() == before


# --- the event log


def log_of(path: Path, kinds=("a", "b", "c")) -> bytes:
    log = EventLog(path, lambda: 0.0)
    for kind in kinds:
        log.append(kind, text="ü" * 3)
    log.close()
    return path.read_bytes()


@pytest.mark.requirement("K2")
def test_a_torn_last_line_is_cut_off_wherever_it_was_torn(tmp_path):
    path = tmp_path / "log"
    content = log_of(path)
    whole = content[: content[:-1].rindex(b"\n") + 1]
    for size in range(len(whole), len(content)):
        path.write_bytes(content[:size])
        log = EventLog(path, lambda: 0.0)
        assert [event["kind"] for event in log.events] == ["a", "b"]
        assert path.read_bytes() == whole
        assert log.append("d") == 3
        log.close()


@pytest.mark.requirement("K2")
@pytest.mark.parametrize(
    ("line", "bad"),
    [
        (1, b"rubbish"),
        (2, b""),
        (2, b"[]"),
        (3, b'{"seq": 7}'),
        (2, b'{"seq": 1}'),
        (3, b'{"kind": "no seq"}'),
        (2, b'{"seq": 2, "kind": "\xff"}'),
        (1, b"\x00" * 20),
    ],
)
@pytest.mark.parametrize("tail", [b"", b'{"seq": 4, "ki'])
def test_any_other_damage_is_reported_with_file_and_line_and_left_unchanged(tmp_path, line, bad, tail):
    # BUG found by this test: with a torn last line as well, the file was cut before it was checked.
    path = tmp_path / "s.messages.jsonl"
    lines = log_of(path).split(b"\n")
    lines[line - 1] = bad
    content = b"\n".join(lines) + tail
    path.write_bytes(content)
    with pytest.raises(DamagedLog, match=rf"s\.messages\.jsonl, line {line}:"):
        EventLog(path, lambda: 0.0)
    assert path.read_bytes() == content


@pytest.mark.requirement("K2")
def test_a_session_that_failed_to_open_is_not_left_locked(tmp_path):
    # BUG found by this test: the lock was kept by a process that had nothing open.
    home = Home(tmp_path, entry())
    path = tmp_path / "s.messages.jsonl"
    path.write_bytes(b"rubbish\n")

    async def main():
        with pytest.raises(DamagedLog):
            await home.open()
        path.unlink()
        async with home.life() as agent:
            return await agent.say("go", request_id="r")

    assert play(main()) == "Done. []"
