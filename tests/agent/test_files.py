"""The store on files: one synced line per change, nothing rewritten, damage refused."""

import errno
import json
import os

import pytest

from reference_agent.messages import Message
from reference_agent.store import event_log as log_module
from reference_agent.store.event_log import DamagedLog, EventLog, read_log
from reference_agent.store.kinds import Location, WrongStore, find
from reference_agent.store.registry import STORES
from reference_agent.turn.tools import Tool
from tests.agent.helpers import Home, Points, entry, play, step
from tests.agent.stores import Place

pytestmark = pytest.mark.requirement("O1")

LOG = "s.messages.jsonl"
SCRIPT = (entry([step("act", n=1), step("look", n=2)], [step("act", n=3)]), entry(answer="Again."))


def home_of(path, store="files") -> Home:
    path.mkdir(exist_ok=True)
    home = Home(path, *SCRIPT, store=store)

    async def look(args, key):
        return "\u2028 \x00 \U0001f600 \x85"

    home.tools = [home.acting(), Tool(name="look", run=look)]
    return home


def talk(home) -> list[str]:
    async def main():
        async with home.life() as agent:
            return [await agent.say(text, request_id=text) for text in ("go", "more")]

    return play(main())


# --- the lines


def test_a_message_has_the_specified_format(tmp_path):
    async def main():
        async with Place("files", tmp_path).open() as store:
            await store.add_message(Message("user", "run tests"), 1)

    play(main())
    _created, line = (tmp_path / LOG).read_text().splitlines()
    assert line == (
        '{"seq":2,"ts":"1970-01-01T00:16:40Z","kind":"message.user","message_id":"msg_2",'
        '"content":"run tests","turn":1}'
    )


def test_each_line_is_one_persist_point_with_the_same_name_as_on_sqlite(tmp_path, monkeypatch):
    seen = {}
    for store in STORES.names():
        points = Points(monkeypatch)
        home = home_of(tmp_path / store, store)
        talk(home)
        play(home.life().__aenter__())  # and a recovery
        seen[store] = [name for name in points.seen if name not in ("schema.migrate",)]
    assert len(seen["files"]) == len(read_log(tmp_path / "files" / LOG))
    # If there is nothing to roll back, nothing is written.
    assert [name for name in seen["sqlite"] if name != "messages.rollback"] == seen["files"]


def test_both_stores_reach_the_same_state(tmp_path):
    found = {}
    for store in STORES.names():
        home = home_of(tmp_path / store, store)
        answers = talk(home)
        seen = home.seen()
        messages = [list(row) for row in seen["messages"]]
        usage = [list(row) for row in seen["usage"]]
        found[store] = (
            answers,
            messages,
            seen["answers"],
            seen["versions"],
            usage,
            seen["errors"],
            home.told_without_seq(),
        )
    assert found["files"] == found["sqlite"]


def test_a_life_only_appends_to_the_log(tmp_path):
    home = home_of(tmp_path)
    home.on_tell = lambda name, _facts: home.die() if name == "finished" else None

    async def main():
        async with home.life() as agent:
            await agent.say("go", request_id="go")

    play(main())
    assert home.dead
    before = (tmp_path / LOG).read_bytes()
    home.on_tell = lambda _name, _facts: None
    assert talk(home)[1] == "Again. []"
    after = (tmp_path / LOG).read_bytes()
    assert after.startswith(before)
    assert [event["seq"] for event in read_log(tmp_path / LOG)] == list(range(1, after.count(b"\n") + 1))


# --- a disk that fails


class Failing:
    """The nth write or sync of the log fails, in one of the ways in which they can."""

    def __init__(self, monkeypatch, at: int, how: str) -> None:
        self.left = at
        self._how = how
        monkeypatch.setattr(log_module, "os", self)

    def __getattr__(self, name):
        return getattr(os, name)

    def _now(self) -> bool:
        self.left -= 1
        return self.left == 0

    def write(self, fd, line):
        if self._how == "full" and self._now():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._how == "short" and self._now():
            return os.write(fd, line[: len(line) // 2])
        return os.write(fd, line)

    def fsync(self, fd):
        if self._how == "unsynced" and self._now():
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def kinds(home) -> list[str]:
    events = read_log(home.path / LOG)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    return sorted(event["kind"] for event in events)


@pytest.mark.requirement("K9")
@pytest.mark.parametrize("how", ["full", "short", "unsynced"])
def test_any_failed_write_is_retried_and_the_result_is_the_same(tmp_path, monkeypatch, how):
    undisturbed = home_of(tmp_path / "undisturbed")
    answers = talk(undisturbed)
    for at in range(1, 200):
        home = home_of(tmp_path / str(at))
        failing: list[Failing] = []

        async def main(home=home, at=at, failing=failing):
            async with home.life() as agent:
                failing.append(Failing(monkeypatch, at, how))
                said = [await agent.say(text, request_id=text) for text in ("go", "more")]
                await agent.catch_up()
                return said, await agent.status()

        said, status = play(main())
        monkeypatch.setattr(log_module, "os", os)
        assert (said, status.degraded) == (answers, False)
        # A call that had to wait changes the order of parallel calls, and nothing else.
        assert kinds(home) == kinds(undisturbed)
        assert home.seen()["messages"] == undisturbed.seen()["messages"]
        if failing[0].left > 0:
            break
    assert at > 30  # the number of writes: each failed once


# --- damage


def content_of(path) -> bytes:
    home = home_of(path)
    talk(home)
    return (path / LOG).read_bytes()


def test_a_torn_last_line_is_cut_off_and_only_that(tmp_path):
    content = content_of(tmp_path)
    start = content[:-1].rindex(b"\n") + 1
    last = content[start:]
    torn = [last[:size] for size in range(1, len(last))]
    torn += [last[:9] + bytes(20), bytes(len(last)), last[:9] + bytes(len(last) - 12) + last[-3:]]
    for tail in torn:
        (tmp_path / LOG).write_bytes(content[:start] + tail)
        assert len(read_log(tmp_path / LOG)) == content.count(b"\n") - 1  # a reader touches nothing
        assert (tmp_path / LOG).read_bytes() == content[:start] + tail
        log = EventLog(tmp_path / LOG, lambda: 0.0)
        log.close()
        assert (tmp_path / LOG).read_bytes() == content[:start]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (lambda line: bytes(len(line)), "not a JSON object"),
        (lambda line: line[:20] + bytes(len(line) - 20), "not a JSON object"),
        (lambda line: line[:-1], "not a JSON object"),
        (lambda line: line.replace(b'"content"', b'"cant"'), "missing required field `content`"),
        (lambda line: line.replace(b'"turn":1', b'"turn":"1"'), "Expected `int`"),
        (lambda line: line.replace(b'"seq":4', b'"seq":5'), "expected seq 4, found 5"),
    ],
)
def test_damage_in_the_middle_is_reported_with_file_and_line_and_left_unchanged(tmp_path, bad, why):
    lines = content_of(tmp_path).split(b"\n")
    assert b'"message.user"' in lines[3]
    lines[3] = bad(lines[3])
    content = b"\n".join(lines) + b'{"seq":99,"ki'  # also torn: not cut off
    (tmp_path / LOG).write_bytes(content)
    with pytest.raises(DamagedLog, match=rf"s\.messages\.jsonl, line 4: .*{why}"):
        play(home_of(tmp_path).open())
    assert (tmp_path / LOG).read_bytes() == content


def test_unsynced_lines_of_a_killed_life_are_synced_before_they_count(tmp_path, monkeypatch):
    content_of(tmp_path)
    synced = []
    monkeypatch.setattr(log_module.os, "fsync", synced.append)
    log = EventLog(tmp_path / LOG, lambda: 0.0)
    assert synced == [log._fd]
    log.close()


def test_the_directory_entry_of_an_empty_log_left_by_a_kill_is_synced(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(log_module, "sync_directory", synced.append)
    for _ in range(2):
        EventLog(tmp_path / LOG, lambda: 0.0).close()
    assert synced == [tmp_path] * 2


# --- listing sessions


def test_the_sessions_of_each_store_are_listed_without_being_touched(tmp_path):
    for session, store in (("a", "sqlite"), ("b", "files"), ("c", "files")):
        home = home_of(tmp_path, store)
        home.session = session
        talk(home)
    torn = (tmp_path / "c.messages.jsonl").read_bytes()[:-5]
    (tmp_path / "c.messages.jsonl").write_bytes(torn)
    listed = [play(find(kind).read_sessions(Location(tmp_path, kind))) for kind in STORES.names()]
    assert listed == [[("a", 9)], [("b", 9), ("c", 9)]]
    assert (tmp_path / "c.messages.jsonl").read_bytes() == torn
    files, place = find("files"), Location(tmp_path, "files")
    assert play(files.read_session(place, "a")) is None
    assert play(files.read_session(place, "nobody")) is None
    found = play(files.read_session(place, "b"))
    assert [each.message.content for each in found.messages][-1] == "Again. []"
    assert found.unfinished == []


@pytest.mark.parametrize(("first", "then"), [("sqlite", "files"), ("files", "sqlite")])
def test_a_session_cannot_be_opened_in_the_other_store(tmp_path, first, then):
    talk(home_of(tmp_path, first))
    before = (tmp_path / LOG).read_bytes()
    with pytest.raises(WrongStore, match=f"session s is in the store {first}: .* in {then}"):
        play(home_of(tmp_path, then).open())
    assert (tmp_path / LOG).read_bytes() == before
    assert json.loads(before.splitlines()[0])["seq"] == 1
