"""A database with the previous schema is upgraded completely or left unchanged."""

import sqlite3

import pytest

from reference_agent.messages import Message, ToolCall
from reference_agent.recovery.rollback import NO_RESULT
from reference_agent.store import schema
from tests.agent.helpers import Home, entry, play

OLD = {
    "sessions": [("s", "agent", "old-model", "old-provider", 1)],
    "messages": [
        (1, "s", "agent", 0, "user", "hello", None, None, None, 1),
        (2, "s", "agent", 0, "assistant", "", None, None, '[{"id":"c1","name":"t","args":{"a":1}}]', 1),
        (3, "s", "agent", 0, "tool", "fine", "c1", "t", None, 2),
        (4, "s", "agent", 1, "assistant", "bye", None, None, None, 3),
    ],
    "token_usage": [(1, "s", "agent", 0, 10, 20, 1), (2, "s", "agent", 1, 1, 2, 3)],
    "errors": [(1, "s", "agent", 0, "llm_stream", "old", 1), (2, "s", "agent", 1, "x", "y", 2)],
}
LOADED = [
    Message("user", "hello"),
    Message("assistant", "", (ToolCall("c1", "t", {"a": 1}),)),
    Message("tool", "fine", call_id="c1", tool="t"),
    Message("assistant", "bye"),
]


def make_old(path, rows=None):
    db = sqlite3.connect(path)
    db.executescript(schema.V1)
    for table, values in (rows or OLD).items():
        for row in values:
            db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608
    db.execute("PRAGMA user_version = 1")
    db.commit()
    db.close()


def contents(path) -> dict[str, list]:
    """The data of version 1, whatever the version is now."""
    db = sqlite3.connect(path)
    found = {}
    for table, rows in OLD.items():
        names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")][: len(rows[0])]
        found[table] = db.execute(f"SELECT {', '.join(names)} FROM {table}").fetchall()  # noqa: S608
    db.close()
    return found


def shape(path) -> list:
    db = sqlite3.connect(path)
    found = db.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()
    found += db.execute("PRAGMA user_version").fetchall()
    db.close()
    return found


@pytest.mark.requirement("K3")
def test_an_older_database_is_upgraded_without_losing_a_row(tmp_path):
    make_old(tmp_path / "sessions.db")
    home = Home(tmp_path, entry(), entry(answer="Still here."))

    async def main():
        async with home.life() as agent:
            loaded = list(agent.conversation)
            upgraded = contents(tmp_path / "sessions.db")
            spent = (await agent.status()).budget.spent_tokens
            answer = await agent.say("more", request_id="r")
            return loaded, upgraded, spent, answer, await agent._store.errors()

    loaded, upgraded, spent, answer, errors = play(main())
    assert upgraded == OLD
    assert loaded == LOADED
    assert spent == 33
    assert answer == "Still here. []"
    assert [error.attempt for error in errors] == [0, 0]
    assert home.rows("SELECT MAX(version) FROM checkpoints") == [(1,)]


@pytest.mark.requirement("K3")
def test_an_upgraded_database_has_the_shape_of_a_new_one(tmp_path):
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    make_old(tmp_path / "old" / "sessions.db")

    async def main():
        for name in ("old", "new"):
            async with Home(tmp_path / name).life():
                pass

    play(main())

    def columns(name):
        db = sqlite3.connect(tmp_path / name / "sessions.db")
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found = {t: db.execute(f"PRAGMA table_info({t})").fetchall() for t in tables}
        db.close()
        return found

    assert columns("old") == columns("new")


@pytest.mark.requirement("K3")
def test_a_crash_at_any_statement_of_the_upgrade_leaves_the_old_shape_and_every_row(tmp_path):
    fired = 0
    while True:
        directory = tmp_path / str(fired)
        directory.mkdir()
        path = directory / "sessions.db"
        make_old(path)
        old_shape = shape(path)
        home = Home(directory, entry(), entry())
        left = iter(range(fired, -1, -1))

        def die_at_the_nth(sql, home=home, left=left):
            writes = sql.split()[0] in ("BEGIN", "ALTER", "CREATE", "COMMIT")
            if (writes or "SET request_id" in sql or "user_version =" in sql) and next(left) == 0:
                home.die()

        home.on_sql = die_at_the_nth
        if not dies(home):
            break
        fired += 1
        assert shape(path) == old_shape
        assert contents(path) == OLD
        home.on_sql = lambda _sql: None
        assert not dies(home)
        assert contents(path) == OLD
    # Every statement of the steps, and BEGIN, the version and COMMIT: all were tried.
    assert fired == (schema.V2 + schema.V3).count(";") + 3


def dies(home) -> bool:
    """Whether a life dies between opening and closing."""

    async def main():
        try:
            agent = await home.open()
        except BaseException:
            if not home.dead:  # errors of a dead life do not matter
                raise
            free(home)
            return True
        home.on_sql = lambda _sql: None
        await agent.close()
        return False

    return play(main())


def free(home) -> None:
    """Release the lock of a life that died while opening: within one process, nothing else does."""
    (home.path / f"{home.session}.lock").unlink()


@pytest.mark.requirement("K3")
@pytest.mark.requirement("K2")
def test_calls_left_open_by_an_older_release_get_one_error_result(tmp_path):
    make_old(tmp_path / "sessions.db", OLD | {"messages": OLD["messages"][:2]})
    home = Home(tmp_path, entry(), entry())

    async def main():
        async with home.life() as agent:
            first = list(agent.conversation)
        async with home.life() as agent:
            again = list(agent.conversation)
            await agent.say("more", request_id="r")  # the model would refuse an orphan
            return first, again

    first, again = play(main())
    said = Message("tool", NO_RESULT, call_id="c1", tool="t", is_error=True)
    assert first == again == [*LOADED[:2], said]


@pytest.mark.requirement("H6")
@pytest.mark.requirement("K3")
def test_a_session_of_an_older_release_gets_its_own_scratchpad(tmp_path, monkeypatch):
    # BUG found by this test: it was the current directory of the process.
    monkeypatch.chdir(tmp_path)
    make_old(tmp_path / "sessions.db")

    async def main():
        async with Home(tmp_path).life() as agent:
            return await agent.scratchpad()

    assert play(main()) == tmp_path / "s.scratch"
