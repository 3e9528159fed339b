"""Clients that cancel, repeat and choose confusing ids; providers that do what their types forbid.

BUG marks what the fuzzer of `tree` found."""

import asyncio
import errno
import os
import random
from pathlib import Path

import pytest
from chaoskit_scenarios import inloop

from reference_agent.daemon.daemon import Daemon
from reference_agent.daemon.delivery import NotAnswered
from reference_agent.daemon.journal import Refused
from reference_agent.daemon.lives import AgentFailed
from reference_agent.daemon.mailbox import Limits
from reference_agent.daemon.provider import ScriptedProvider, ScriptedSession
from reference_agent.daemon.stores import opened_store
from reference_agent.ids import ids_from
from reference_agent.store import event_log
from reference_agent.store.kinds import Location
from reference_agent.store.registry import STORES
from tests.agent.daemon.helpers import SCRIPTED, Home, assert_sound, family, history

SURROGATE = "\ud800"


@pytest.fixture(params=STORES.names())
def home(request, tmp_path):
    return Home(tmp_path, request.param)


class Session(ScriptedSession):
    """A turn does what the message says."""

    async def send(self, message_id, content):
        if content == "hang":
            await asyncio.get_running_loop().create_future()
        if content == "cancel":
            raise asyncio.CancelledError
        reply = await super().send(message_id, content)
        return {"none": None, "number": 7, "surrogate": SURROGATE}.get(content, reply)


class Provider(ScriptedProvider):
    async def create(self, agent_id, model):
        if model == "hang":
            await asyncio.get_running_loop().create_future()
        session = Session((await super().create(agent_id, model)).history, 7, 2.5)
        if model == "stateless":
            session.suspend = lambda: None
        return session

    async def restore(self, agent_id, model, blob):
        return Session((await super().restore(agent_id, model, blob)).history, 7, 2.5)


@pytest.fixture
def unruly(home):
    home.providers = {"scripted": Provider(7)}
    home.limits = Limits(patience=60)
    return home


async def nothing(daemon):
    return list(map(repr, daemon.state.changes()))


@pytest.mark.requirement("S3")
def test_an_id_that_ends_like_that_of_a_reply_is_refused(home):
    """BUG: it was accepted, and then taken for the reply."""

    async def act(daemon):
        await family(daemon)
        with pytest.raises(Refused, match="reserved"):
            await daemon.send("c", "forged", message_id="m1.reply")
        reply = await daemon.ask("b", "question", sender="a", message_id="m1")
        assert reply.startswith("b read m1")
        with pytest.raises(Refused, match="already the id of another"):
            await daemon.send("c", "forged", message_id="m1.reply")
        assert history(daemon, "a") == ["m1.reply"]

    home.run(act)


@pytest.mark.requirement("S3")
@pytest.mark.parametrize(
    "change", [{"content": "other"}, {"receiver": "a"}, {"sender": "b"}, {"wants_reply": True}]
)
def test_a_known_id_is_a_repetition_only_if_the_message_is_the_same(home, change):
    """BUG: another message under a known id was acknowledged, and never handled."""

    async def act(daemon):
        await family(daemon)
        asked = {"receiver": "c", "content": "x", "sender": "a", "message_id": "m"}
        await daemon.send(**asked)
        for settled in (False, True):
            if settled:
                await daemon.settled()
            assert await daemon.send(**asked) == "m"
            with pytest.raises(Refused, match="already the id of another message"):
                await daemon.send(**{**asked, **change})
        assert history(daemon, "c") == ["m"]

    home.run(act)


@pytest.mark.requirement("S3")
def test_there_is_no_reply_to_a_message_that_is_no_question(home):
    """BUG: the caller waited forever."""

    async def act(daemon):
        await family(daemon)
        await daemon.send("c", "x", message_id="m")
        for _ in range(2):
            with pytest.raises(Refused, match="m is no question"):
                await daemon.reply_to("m")
            await daemon.settled()

    home.run(act)


@pytest.mark.requirement("S3")
@pytest.mark.parametrize("field", ["content", "message_id"])
def test_text_that_cannot_be_stored_is_refused(home, field):
    async def act(daemon):
        await daemon.spawn("a", **SCRIPTED)
        with pytest.raises(Refused, match="valid Unicode"):
            await daemon.send("a", **{"content": "x", field: SURROGATE})
        await daemon.send("a", **{"content": "x", field: "\0\u2028\U0001f980"})
        await daemon.close()
        assert len(history(daemon, "a")) == 1

    home.run(act)


@pytest.mark.requirement("S1", "S3")
@pytest.mark.parametrize("content", ["none", "number", "surrogate", "hang", "cancel"])
def test_a_provider_that_returns_no_text_or_nothing_at_all_fails_the_turn(unruly, content):
    """BUG: None made the files store unusable; a surrogate stopped the worker, a hang the whole daemon, and
    a CancelledError ended the calls of others."""

    async def act(daemon):
        await family(daemon)
        asked = asyncio.ensure_future(daemon.ask("b", content, sender="a", message_id="m"))
        other = asyncio.ensure_future(daemon.ask("c", "hello", message_id="n"))
        with pytest.raises(NotAnswered, match="this message 5 times"):
            await asked
        assert (await other).startswith("c read n")
        await daemon.close()
        assert daemon.set_aside() == {"m": "poison"}

    unruly.run(act)
    assert unruly.run(nothing)


@pytest.mark.requirement("S1", "S2")
@pytest.mark.parametrize("model", ["stateless", "hang"])
def test_an_agent_that_has_no_state_is_not_spawned(unruly, model):
    async def act(daemon):
        await daemon.spawn("a", **SCRIPTED)
        with pytest.raises(AgentFailed):
            await daemon.spawn("b", parent="a", provider="scripted", model=model)
        assert set(daemon.state.agents) == {"a"}
        await daemon.close()

    unruly.run(act)
    unruly.run(nothing)


@pytest.mark.requirement("S3")
def test_an_agent_that_hangs_can_be_suspended_and_stopped(unruly):
    async def act(daemon):
        await family(daemon)
        await daemon.send("c", "hang", message_id="m")
        await asyncio.sleep(1)
        await daemon.suspend("b")
        await daemon.send("b", "hello", message_id="n")
        await daemon.stop("c")
        await daemon.settled()
        assert daemon.set_aside() == {"m": "stopped"}
        assert history(daemon, "b") == ["n"]

    unruly.run(act)


OPERATIONS = {
    "send": lambda daemon: daemon.send("c", "x", message_id="m"),
    "ask": lambda daemon: daemon.ask("c", "x", message_id="m"),
    "spawn": lambda daemon: daemon.spawn("d", parent="c", **SCRIPTED),
    "suspend": lambda daemon: daemon.suspend("a"),
    "resume": lambda daemon: daemon.resume("c"),
    "stop": lambda daemon: daemon.stop("b"),
}


@pytest.mark.requirement("S2", "S3")
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_cancelled_operation_is_done_or_not_but_never_on_disk_only(tmp_path, name):
    """BUG: a cancelled send was on disk and not in memory; sent again, it was an IntegrityError."""
    again = set()

    async def act(delay, order):
        connect = inloop.connecting(random.Random(order))
        async with opened_store(Location(tmp_path, "sqlite", connect), clock=lambda: 0.0) as store:
            daemon = Daemon(store, {"scripted": ScriptedProvider(7)}, new_id=ids_from(str(order)))
            await daemon.recover()
            await daemon.start()
            await family(daemon)
            if name == "resume":
                await daemon.suspend("a")
            task = asyncio.ensure_future(OPERATIONS[name](daemon))
            await asyncio.wait({task}, timeout=delay)
            again.add(task.cancel())
            await asyncio.wait({task})
            await daemon.settled()
            before = await nothing(daemon)
            query = store._database.execute
            assert len(daemon.state.undelivered) == (await query("SELECT count(*) FROM messages"))[0][0]
            assert_sound(daemon.state)
            await OPERATIONS[name](daemon)
            await daemon.close()
        async with opened_store(Location(tmp_path, "sqlite", connect), clock=lambda: 0.0) as store:
            assert sorted(map(repr, store.state.changes())) == sorted(await nothing(daemon))
        assert before

    for order, delay in enumerate([0, 0.001, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.5, 9]):
        for path in tmp_path.iterdir():
            path.unlink()
        inloop.run(act(delay, order))
    assert True in again


@pytest.mark.requirement("S4", "S6")
def test_a_segment_that_could_not_be_begun_is_begun_once(tmp_path, monkeypatch):
    """BUG: the retry wrote a second snapshot; after reopening, children and reserved places were doubled."""
    home = Home(tmp_path, "files", segment=10)
    sync, failing = os.fsync, []

    def fsync(fd):
        if failing and Path(f"/proc/self/fd/{fd}").readlink().name == "daemon.000002.jsonl":
            failing.pop()
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(fd)

    async def act(daemon):
        await family(daemon)  # six lines
        failing.append(True)
        monkeypatch.setattr(event_log.os, "fsync", fsync)
        await daemon.send("b", "?", sender="a", wants_reply=True, message_id="m1")
        with pytest.raises(OSError, match="No space"):
            await daemon.settled()
        await daemon.start()
        await daemon.settled()
        assert not failing

    async def look(daemon):
        assert daemon.state.children == {"a": ["b"], "b": ["c"]}
        assert not daemon.state.asking

    home.run(act)
    home.run(look)
