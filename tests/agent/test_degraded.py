"""A full or failing disk: the agent continues, acknowledges nothing, and catches up."""

import errno
import os

import pytest

from reference_agent.store.event_log import EventLog
from reference_agent.turn.tools import Tool
from tests.agent.helpers import FULL, Home, entry, play, step


def reading(home) -> Tool:
    async def run(args, key):
        home.effects.append(args)
        return "read"

    return Tool(name="look", run=run)


@pytest.mark.requirement("K9")
def test_a_full_disk_shows_in_the_status_and_nothing_is_acknowledged_until_it_recovers(tmp_path):
    home = Home(tmp_path, entry([step("look")]))
    home.tools = [reading(home)]

    async def main():
        async with home.life() as agent:
            healthy = await agent.status()
            home.fill_disk()
            answer = await agent.say("go", request_id="r")
            ill = await agent.status()
            still = await agent.catch_up()
            told = list(home.told)
            stored = home.rows("SELECT COUNT(*) FROM messages")
            home.clear_disk()
            well = await agent.catch_up()
            return healthy, answer, ill, still, told, stored, well, await agent.status()

    healthy, answer, ill, still, told, stored, well, cured = play(main())
    assert (healthy.degraded, healthy.waiting, healthy.last_error) == (False, 0, None)
    assert answer == "Done. [read]"  # it continued
    assert ill.degraded
    assert ill.waiting > 0
    assert FULL in ill.last_error
    assert not still
    assert told == []
    assert stored == [(0,)]
    assert well
    assert (cured.degraded, cured.waiting, cured.last_error) == (False, 0, None)
    assert home.names_told() == ["accepted", "decided", "turn", "decided", "turn", "answer"]
    roles = [row[0] for row in home.rows("SELECT role FROM messages ORDER BY id")]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert home.rows("SELECT version, turn FROM checkpoints") == [(1, 1), (2, 2)]
    assert home.rows("SELECT request_id, answer FROM requests") == [("r", "Done. [read]")]


@pytest.mark.requirement("K9")
def test_a_full_disk_delays_acknowledgements_but_changes_none(tmp_path):
    def told(directory, full):
        directory.mkdir()
        home = Home(directory, entry([step("look")], [step("look")]), entry())
        home.tools = [reading(home)]

        async def main():
            async with home.life() as agent:
                if full:
                    home.fill_disk()
                await agent.say("go", request_id="r")
                home.clear_disk()
                await agent.say("more", request_id="r2")

        play(main())
        return home.told, home.rows("SELECT turn, role, content FROM messages ORDER BY id")

    assert told(tmp_path / "full", True) == told(tmp_path / "free", False)


@pytest.mark.requirement("K9")
@pytest.mark.requirement("H2")
def test_a_mutating_call_does_not_run_while_it_cannot_be_recorded(tmp_path):
    home = Home(tmp_path, entry([step("act", n=1)], [step("act", n=1)]))
    home.tools = [home.acting()]

    async def main():
        async with home.life() as agent:
            home.fill_disk()
            home.on_ask = lambda: home.clear_disk() if len(home.asked) == 2 else None
            return await agent.say("go", request_id="r")

    answer = play(main())
    assert f"error: not run: call.issue could not be made durable: OperationalError: {FULL}" in answer
    assert answer.endswith("; effect 1]")  # the retry, with space on the disk
    assert len(home.effects) == 1


@pytest.mark.requirement("K9")
def test_the_call_runs_if_the_disk_recovers_within_the_retries(tmp_path):
    home = Home(tmp_path, entry([step("act", n=1)]))
    home.tools = [home.acting()]
    slept = []

    async def main():
        async with home.life() as agent:
            home.fill_disk()

            async def sleep(seconds):
                slept.append(seconds)
                if len(slept) == 2:
                    home.clear_disk()

            agent._backlog._sleep = sleep
            return await agent.say("go", request_id="r")

    assert play(main()) == "Done. [effect 1]"
    assert slept == [0.1, 0.2]


@pytest.mark.requirement("K9")
@pytest.mark.requirement("H3")
def test_a_call_whose_completion_waits_for_the_disk_is_not_run_again(tmp_path):
    # BUG found by this test: the journal was read before it had caught up.
    home = Home(tmp_path, entry([step("act", n=1)], [step("act", n=1)]))

    async def run(args, key):
        home.effects.append(args)
        home.fill_disk()
        return f"effect {len(home.effects)}"

    home.tools = [Tool(name="act", run=run, mutating=True)]

    async def main():
        async with home.life() as agent:

            async def sleep(_seconds):
                home.clear_disk()

            agent._backlog._sleep = sleep
            return await agent.say("go", request_id="r")

    assert play(main()) == "Done. [effect 1; effect 1]"
    assert len(home.effects) == 1


@pytest.mark.requirement("K9")
def test_requests_that_wait_for_the_disk_keep_their_own_answers(tmp_path):
    # BUG found by this test: a waiting request was answered again, with the answer to the last one.
    home = Home(tmp_path, *(entry(answer=answer) for answer in ("One.", "Two.", "Three.")))

    async def main():
        async with home.life() as agent:
            home.on_tell = lambda name, _facts: home.fill_disk() if name == "accepted" else None
            answers = [await agent.say("a", request_id="a"), await agent.say("b", request_id="b")]
            home.on_tell = lambda _name, _facts: None
            again = await agent.say("a", request_id="a")
            home.clear_disk()
            answers.append(await agent.say("c", request_id="c"))
            return answers, again

    answers, again = play(main())
    assert answers == ["One. []", "Two. []", "Three. []"]
    assert again == "One. []"
    stored = home.rows("SELECT request_id, answer FROM requests ORDER BY rowid")
    assert stored == list(zip("abc", answers, strict=True))
    told = [facts["answer"] for name, facts in home.told if name == "answer"]
    assert told == answers
    assert home.rows("SELECT COUNT(*) FROM runs") == [(3,)]


@pytest.mark.requirement("K9")
def test_an_agent_that_dies_degraded_has_claimed_nothing_that_is_lost(tmp_path):
    home = Home(tmp_path, entry([step("look")]))
    home.tools = [reading(home)]

    async def main():
        async with home.life() as agent:
            home.on_tell = lambda name, _facts: home.fill_disk() if name == "accepted" else None
            await agent.say("go", request_id="r")
            home.dead = True
        assert home.names_told() == ["accepted"]
        home.on_tell = lambda _name, _facts: None
        home.clear_disk()
        async with home.life() as agent:
            return await agent.say("go", request_id="r")

    assert play(main()) == "Done. [read]"
    assert home.names_told().count("answer") == 1


# --- the event log on a failing disk


def failing_once(monkeypatch, name, failure):
    """The first call of os.`name` fails."""
    works = getattr(os, name)
    calls = []

    def call(*args):
        calls.append(args)
        return failure(works, *args) if len(calls) == 1 else works(*args)

    monkeypatch.setattr(os, name, call)
    return calls


def short(works, fd, line):
    return works(fd, line[:10])


def full(_works, *_args):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.requirement("K9")
@pytest.mark.parametrize(("name", "failure"), [("write", short), ("write", full), ("fsync", full)])
def test_a_log_line_that_failed_does_not_count_and_is_written_again(tmp_path, monkeypatch, name, failure):
    path = tmp_path / "log"
    log = EventLog(path, lambda: 0.0)
    assert log.append("first") == 1
    whole = path.read_bytes()
    with monkeypatch.context() as patched:
        failing_once(patched, name, failure)
        with pytest.raises(OSError, match=r"wrote 10 of|No space"):
            log.append("second")
        assert len(log.events) == 1
        written = failing_once(patched, "write", lambda works, *args: works(*args))
        assert log.append("second") == 2
    assert len(written) == 1  # written again: a failed sync says nothing about the old bytes
    log.close()
    again = EventLog(path, lambda: 0.0)
    again.close()
    assert [event["kind"] for event in again.events] == ["first", "second"]
    assert path.read_bytes().startswith(whole)


@pytest.mark.requirement("K9")
@pytest.mark.parametrize(("name", "failure"), [("write", short), ("fsync", full)])
def test_an_agent_whose_log_fails_claims_nothing_that_follows_it(tmp_path, monkeypatch, name, failure):
    home = Home(tmp_path, entry([step("look")]))
    home.tools = [reading(home)]

    async def main():
        async with home.life() as agent:
            works = getattr(os, name)
            with monkeypatch.context() as patched:
                patched.setattr(os, name, lambda *args: failure(works, *args))
                answer = await agent.say("go", request_id="r")
                assert (await agent.status()).degraded
                assert home.told == []
            assert await agent.catch_up()
            return answer

    assert play(main()) == "Done. [read]"
    assert home.names_told() == ["accepted", "decided", "turn", "decided", "turn", "answer"]
    log = EventLog(tmp_path / "s.messages.jsonl", lambda: 0.0)
    log.close()
    assert [event["kind"] for event in log.events] == [
        "run.started",
        "turn.completed",
        "turn.completed",
        "run.completed",
    ]
