import sqlite3
from contextlib import closing

import pytest

from chaoskit.run.fingerprint import fingerprint


@pytest.fixture
def made(tmp_path):
    """Directories with the given files; each call makes another one."""

    def make(name, **files):
        directory = tmp_path / name / "state"
        directory.mkdir(parents=True)
        for file, text in files.items():
            (directory / file).write_text(text)
        return directory

    return make


def database(directory, *rows, mode="wal"):
    db = sqlite3.connect(directory / "a.db")
    db.execute(f"PRAGMA journal_mode={mode}")
    db.execute("CREATE TABLE t (x)")
    db.executemany("INSERT INTO t VALUES (?)", [(row,) for row in rows])
    db.commit()
    return db


def test_content_and_names_decide(made):
    one = fingerprint(made("one", a="x"), 1)
    assert fingerprint(made("same", a="x"), 1) == one
    assert fingerprint(made("other", a="y"), 1) != one
    assert fingerprint(made("renamed", b="x"), 1) != one
    assert fingerprint(made("more", a="x", b=""), 1) != one


def test_the_process_number_in_a_lock_file_does_not(made):
    assert fingerprint(made("one", lock="pid 4711"), 4711) == fingerprint(made("two", lock="pid 4712"), 4712)


def test_a_database_is_what_can_be_read_from_it(made):
    places = [made(name) for name in ("one", "two", "three")]
    with (
        closing(database(places[0], 1, 2)),
        closing(database(places[1], 1, 2)),
        closing(database(places[2], 1, 3)),
    ):
        one, two, three = (fingerprint(place, 1) for place in places)
        logs = [(place / "a.db-wal").read_bytes() for place in places[:2]]
    assert logs[0] != logs[1]  # random salts
    assert one == two != three


def test_looking_changes_nothing(made):
    place = made("one")
    with closing(database(place, 1)):
        before = {path.name: path.read_bytes() for path in place.iterdir()}
        fingerprint(place, 1)
        assert {path.name: path.read_bytes() for path in place.iterdir()} == before
    assert [path.name for path in place.parent.iterdir()] == ["state"]


def test_a_damaged_database_is_its_bytes(made):
    one, two = made("one"), made("two")
    (one / "a.db").write_bytes(b"SQLite format 3\x00" + b"x" * 100)
    (two / "a.db").write_bytes(b"SQLite format 3\x00" + b"y" * 100)
    assert fingerprint(one, 1) != fingerprint(two, 1)
