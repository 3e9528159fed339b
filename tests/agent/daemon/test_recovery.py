"""A crash before and after every persist point; then a recovery that may crash too."""

import asyncio
import json
import subprocess
import sys
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from reference_agent.daemon import state as state_module
from reference_agent.daemon.delivery import NotAnswered
from reference_agent.daemon.files import segment_path, segments
from reference_agent.daemon.journal import Refused
from reference_agent.daemon.records import Enqueued, Message, Settled
from reference_agent.daemon.recovery import PROMPT, prompt
from reference_agent.daemon.state import REMEMBERED
from reference_agent.store.event_log import DamagedLog
from reference_agent.store.registry import STORES
from tests.agent.daemon.deadly import DEAD
from tests.agent.daemon.helpers import MEMORY, SCRIPTED, Death, Home, assert_sound, family, history, watched

SIX = {
    "session.created",
    "session.recorded",
    "tree.linked",
    "message.enqueued",
    "inference",
    "send.completed",
}


@pytest.fixture
def in_memory():
    with TemporaryDirectory(dir=MEMORY) as directory:
        yield Path(directory)


class Client:
    """Does everything once; remembers what was acknowledged, and repeats the rest after a crash."""

    def __init__(self):
        self.spawned = set()
        self.sent = {}  # id -> receiver
        self.replies = {}  # id -> reply
        self.stopped = set()

    async def act(self, daemon):
        for agent, parent in (("a", None), ("b", "a"), ("c", "b"), ("d", "a"), ("e", None)):
            await daemon.spawn(agent, parent=parent, **SCRIPTED)
            self.spawned.add(agent)
        await asyncio.gather(
            self.ask(daemon, "m1", "b", "a"),
            self.ask(daemon, "m2", "c", "user"),
            self.ask(daemon, "m3", "a", "d"),
            self.send(daemon, "m4", "poison", "d"),
            self.send(daemon, "m5", "hello", "d"),
        )
        await daemon.suspend("b")
        await self.send(daemon, "m6", "hello", "c")
        await asyncio.gather(self.ask(daemon, "m7", "d", "a"), self.stop(daemon, "d"))
        await daemon.settled()

    async def send(self, daemon, message, content, receiver, sender="user", **more):
        try:
            await daemon.send(receiver, content, sender=sender, message_id=message, **more)
        except Refused:
            assert receiver in ("d",) or sender in ("d",)
        else:
            self.sent[message] = receiver

    async def ask(self, daemon, message, receiver, sender):
        await self.send(daemon, message, "question", receiver, sender, wants_reply=True)
        try:
            reply = await daemon.reply_to(message)
        except (NotAnswered, Refused):
            assert "d" in (receiver, sender)
        else:
            assert self.replies.setdefault(message, reply) == reply

    async def stop(self, daemon, agent):
        await daemon.stop(agent)
        self.stopped.add(agent)


def check(daemon, client, *, done):
    """Check the five invariants; `done`: also that nothing is left to do."""
    state = daemon.state
    assert_sound(state, client.spawned)
    assert {state.agents[agent].state for agent in client.stopped} <= {"STOPPED"}
    for message, receiver in client.sent.items():
        handled = message in history(daemon, receiver)
        if message not in state.undelivered:
            assert handled or message in daemon.set_aside(), f"{message} is lost"
        assert not done or message not in state.undelivered
    if done:
        assert "m1.reply" in history(daemon, "a")
        assert history(daemon, "c").count("m6") == 1
        assert daemon.set_aside()["m4"] in ("poison", "stopped")


async def nothing(_daemon):
    pass


@pytest.mark.requirement("S3", "S4", "S5", "S6")
@pytest.mark.parametrize(("kind", "segment"), [("sqlite", None), ("files", None), ("files", 4)])
def test_nothing_acknowledged_is_lost_at_any_crash_point(in_memory, kind, segment):
    names = set()
    for deadly in count(1):
        home, client = Home(in_memory / f"{deadly}", kind, segment=segment), Client()
        with watched(deadly) as points:
            try:
                home.run(client.act)
            except Death:
                pass
            else:
                break
        names.add(points.passed[deadly - 1])

        async def look(daemon, client=client):
            assert {record.state for record in daemon.state.agents.values()} <= {"SUSPENDED", "STOPPED"}
            check(daemon, client, done=False)
            return sorted(map(repr, daemon.state.changes()))

        kept = home.run(look, start=False)
        assert home.run(look, start=False) == kept  # a recovery that is repeated changes nothing

        async def go_on(daemon, client=client):
            await daemon.settled()
            await client.act(daemon)
            check(daemon, client, done=True)

        home.run(go_on)
    assert deadly > 100
    assert {(name, when) for name in SIX for when in ("before", "after")} <= names


@pytest.mark.requirement("S4", "S5")
@pytest.mark.parametrize("kind", STORES.names())
def test_a_recovery_may_crash_at_any_point(tmp_path, kind):
    async def half(daemon):
        await family(daemon)
        await daemon.send("c", "question", sender="a", wants_reply=True, message_id="m")
        await daemon.send("b", "question", sender="c", wants_reply=True, message_id="n")

    async def whole(daemon):
        await daemon.settled()
        assert_sound(daemon.state, "abc")
        assert {m for m in history(daemon, "a") if "boot" not in m} == {"m.reply"}
        assert sum("boot" in m for m in history(daemon, "a")) == 1  # one prompt for one crash
        assert "m" in history(daemon, "c")

    for deadly in count(1):
        home = Home(tmp_path / f"{deadly}", kind)
        home.run(half)
        died = 0
        for again in [deadly, 2, 2, 2, 2, 2, 2, 2, None]:  # 2: each life writes once and dies
            with watched(again):
                try:
                    home.run(nothing, start=False)
                except Death:
                    died += 1
                else:
                    break
        home.run(whole)
        if not died:
            break
    assert deadly > 8


@pytest.mark.requirement("S4", "S9")
@pytest.mark.parametrize("kind", STORES.names())
def test_only_roots_are_resumed_with_a_prompt_and_children_on_demand(tmp_path, kind):
    home = Home(tmp_path, kind)

    async def crash(daemon):
        await family(daemon)
        await daemon.spawn("e", **SCRIPTED)
        await daemon.suspend("e")

    async def later(daemon):
        told = list(daemon.state.mailboxes["a"].values())
        await daemon.settled()
        states = {agent: record.state for agent, record in daemon.state.agents.items()}
        assert states == {"a": "ACTIVE", "b": "SUSPENDED", "c": "SUSPENDED", "e": "SUSPENDED"}
        assert [message.content for message in told] == [prompt(daemon.state, "a")]
        assert told[0].content.startswith(PROMPT[:60])
        assert told[0].content.endswith("when you send it a message: b.")
        assert [len(history(daemon, agent)) for agent in "abce"] == [1, 0, 0, 0]
        await daemon.send("c", "wake up", sender="a")
        await daemon.settled()
        assert {daemon.state.agents[agent].state for agent in "abc"} == {"ACTIVE"}

    home.run(crash)
    home.run(later)


@pytest.mark.requirement("S9")
@pytest.mark.parametrize("kind", STORES.names())
@pytest.mark.parametrize("point", ["send.completed", "message.enqueued", "message.delivered"])
def test_a_reply_that_a_crash_kept_from_the_asking_agent_is_delivered(tmp_path, kind, point):
    """B does not repeat it: once its turn is durable, B is not even resumed."""
    home = Home(tmp_path, kind)

    async def crash(daemon):
        await family(daemon)

        def die(name, when):
            passed.append((name, when))
            if (point, "after") in passed[4:]:  # after the question and its turn
                raise Death  # and ever after

        passed = []
        with watched(when_called=die):
            await daemon.ask("b", "question", sender="a", message_id="m")

    async def later(daemon):
        await daemon.settled()
        assert history(daemon, "b") == ["m"]
        assert [m for m in history(daemon, "a") if "boot" not in m] == ["m.reply"]
        assert daemon.state.agents["b"].state == "SUSPENDED"
        assert (await daemon.ask("b", "question", sender="a", message_id="m")).startswith("b read m")
        assert history(daemon, "b") == ["m"]

    with pytest.raises(Death):
        home.run(crash)
    home.run(later)


@pytest.mark.requirement("S4")
def test_the_cost_of_recovery_does_not_grow_with_settled_messages(tmp_path, monkeypatch):
    monkeypatch.setattr(state_module, "REMEMBERED", 10)
    home = Home(tmp_path, "files", segment=50)

    async def busy(daemon):
        await family(daemon)
        for n in range(300):
            await daemon.send("c", "x", message_id=f"m{n}")
            if n % 50 == 49:
                await daemon.settled()
                await daemon.suspend("a")
        await daemon.send("c", "x", message_id="last")

    home.run(busy)
    numbers = segments(tmp_path)
    assert len(numbers) > 15
    assert len(segment_path(tmp_path, numbers[-1]).read_bytes().splitlines()) <= 51

    async def later(daemon):
        await daemon.settled()
        assert len(history(daemon, "c")) == 301
        assert len(daemon.state.settled) == 10

    for number in numbers[:-1]:
        segment_path(tmp_path, number).unlink()  # history: not read by recovery
    home.run(later)


@pytest.mark.requirement("S4")
def test_sqlite_does_not_keep_every_message_ever_sent(tmp_path):
    home = Home(tmp_path, "sqlite")

    async def busy(daemon):
        write = daemon._journal.write
        await daemon.spawn("a", **SCRIPTED)
        for n in range(REMEMBERED + 50):
            await write(Enqueued(Message(f"m{n}", "user", "a", "x")))
            await write(Settled(f"m{n}", "delivered"))
        await write(Enqueued(Message("last", "user", "a", "x")))

    async def look(daemon):
        query = daemon._journal._store._database.execute
        counts = await query("SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM settled)")
        # Including the prompt for the root, which exists once recovery is complete.
        return counts, list(daemon.state.settled)[::999], list(daemon.state.undelivered)

    home.run(busy, start=False)
    counts, settled, undelivered = home.run(look, start=False)
    assert counts == [(2, REMEMBERED)]
    assert settled == ["m50", "m1049"]
    assert undelivered[0] == "last"


@pytest.mark.requirement("S3", "S4")
@pytest.mark.parametrize("kind", STORES.names())
def test_a_message_that_waited_long_is_still_remembered_once_settled(tmp_path, monkeypatch, kind):
    """The messages settled last are remembered, not those sent last."""
    monkeypatch.setattr(state_module, "REMEMBERED", 10)
    home = Home(tmp_path, kind)

    async def busy(daemon):
        write = daemon._journal.write
        await daemon.spawn("a", **SCRIPTED)
        await write(Enqueued(Message("old", "user", "a", "x")))
        for n in range(REMEMBERED + 20):
            await write(Enqueued(Message(f"m{n}", "user", "a", "x")))
            await write(Settled(f"m{n}", "delivered"))
        await write(Settled("old", "delivered"))

    async def later(daemon):
        return daemon.state.knows("old"), daemon.state.knows("m0")

    home.run(busy, start=False)
    assert home.run(later, start=False) == (True, False)


@pytest.mark.requirement("S6")
def test_a_torn_last_line_is_cut_and_other_damage_is_named(tmp_path):
    home = Home(tmp_path, "files")
    home.run(family)
    log = segment_path(tmp_path, 1)
    before = log.read_bytes()
    log.write_bytes(before + b'{"seq": 99, "ki')
    home.run(nothing)
    assert log.read_bytes().startswith(before)
    nobody = b'{"seq": 1, "kind": "session.resumed", "agent_id": "x"}\n'
    for bad in (b'{"seq": 1, "kind": "nonsense"}\n', nobody):
        log.write_bytes(bad)
        with pytest.raises(DamagedLog, match="line 1"):
            home.run(nothing)
        assert log.read_bytes() == bad


@pytest.mark.requirement("S6")
def test_the_log_only_grows(tmp_path):
    home = Home(tmp_path, "files", segment=5)
    seen = {}

    def look(_name, when):
        if when == "after":
            for number in segments(tmp_path):
                now = segment_path(tmp_path, number).read_bytes()
                assert now.startswith(seen.get(number, b""))
                seen[number] = now

    for _ in range(3):
        with watched(when_called=look):
            home.run(Client().act)
    assert len(seen) > 10
    for content in seen.values():
        assert [json.loads(line)["seq"] for line in content.splitlines()] == list(
            range(1, content.count(b"\n") + 1)
        )


def lives_of_a_deadly_daemon(directory, store, broken="nobody"):
    """The number of processes until one exits normally, and the output of that one."""
    for life in range(1, 20):
        command = [sys.executable, "-m", "tests.agent.daemon.deadly", str(directory), store]
        command += [str(life), broken]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode == 0:
            aside, blobs = json.loads(ended.stdout)
            turns = {a: [t["message_id"] for t in json.loads(b)["turns"]] for a, b in blobs.items()}
            return life, aside, turns
        assert (ended.returncode, ended.stderr) == (DEAD, "")
    raise AssertionError("it never does")


@pytest.mark.requirement("S3")
@pytest.mark.parametrize("store", STORES.names())
def test_a_message_that_crashes_the_daemon_is_set_aside_and_messages_in_progress_are_not(tmp_path, store):
    """Five real crashes, each with every agent in the middle of a turn."""
    lives, aside, turns = lives_of_a_deadly_daemon(tmp_path, store)
    assert (lives, aside) == (6, {"mb": "poison"})
    for agent in "acde":
        assert turns[agent].count(f"m{agent}") == 1
    assert "mb" not in turns["b"]


@pytest.mark.requirement("S1", "S3")
def test_a_session_that_crashes_the_daemon_on_restore_does_not_crash_it_forever(tmp_path):
    _, aside, turns = lives_of_a_deadly_daemon(tmp_path, "sqlite", broken="d")
    assert (aside.pop("mb"), aside.pop("md")) == ("poison", "poison")
    assert set(aside.values()) <= {"poison"}  # the prompts that would have resumed d
    assert all(turns[agent].count(f"m{agent}") == 1 for agent in "ace")
