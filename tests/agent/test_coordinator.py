"""The coordinator: Q1 to Q4 of its docstring, on both stores. The clock is set, nobody sleeps."""

import ast
import asyncio
from pathlib import Path

import pytest

import reference_agent
from reference_agent.service.coordinator import Busy, NotDurable, NothingToDo, Stopping
from reference_agent.sessions.record import UnknownSession
from reference_agent.sessions.tokens import TokenRefused
from reference_agent.store.registry import STORES
from tests.agent.helpers import Points, play
from tests.agent.service import Disk, Service

pytestmark = pytest.mark.requirement("O6")
NOTED = "I have written that down (note {})."


@pytest.fixture(params=STORES.names())
def service(tmp_path, request):
    return Service(tmp_path, request.param)


@pytest.fixture
def disk(monkeypatch):
    return Disk(Points(monkeypatch))


def played(service, main):
    """A coroutine with the coordinator of the first boot; whatever is open is closed afterwards."""

    async def whole():
        await service.boot()
        try:
            await main(service.coordinator)
        finally:
            await service.coordinator.close()

    play(whole())


async def refused(code, awaitable):
    with pytest.raises(TokenRefused) as caught:
        await awaitable
    assert caught.value.code == code


async def waits(service, request="q", question="may I?"):
    """A request that waits, and its token."""
    outcome = await service.say(f"ask {question}", request)
    assert (outcome.request_id, outcome.state) == (request, "waiting")
    assert outcome.token
    return outcome.token


async def thinks(service, request="t", content="think"):
    """A request that is in progress until `service.model.go_on` is set."""
    outcome = await service.coordinator.post("s", content, request)
    assert outcome.state == "running"
    await service.model.thinking.wait()
    return outcome


# --- Q1: accepted once it is durable; the same id is the same request


def test_an_accepted_request_is_on_disk_and_gets_its_answer(service):
    async def main(coordinator):
        accepted = await thinks(service)
        (started,) = [event for event in service.log() if event["kind"] == "run.started"]
        assert (started["run_id"], started["request_id"]) == (accepted.run_id, "t")
        assert await service.status() == "running"
        service.model.go_on.set()
        outcome = await coordinator.outcome("s", "t")
        assert (outcome.state, outcome.answer) == ("answered", NOTED.format(1))
        assert outcome.run_id == accepted.run_id
        assert service.runs() == [["run.completed"]]
        assert await service.status() == "idle"

    played(service, main)


def test_a_request_posted_again_is_told_its_outcome_and_nothing_is_done(service):
    async def main(coordinator):
        first = await service.say("milk", "a")
        length = len(service.log())
        assert await coordinator.post("s", "milk", "a") == first
        assert await coordinator.post("s", "other words", "a") == first
        assert await coordinator.outcome("s", "a") == first
        await service.boot()
        again = await service.coordinator.post("s", "milk", "a")
        assert (again.state, again.answer) == (first.state, first.answer)
        assert await service.coordinator.outcome("s", "a") == again
        assert service.notes() == 1
        assert service.kinds()[length:] == ["boot.seen"]

    played(service, main)


def test_a_running_request_posted_again_is_running_and_any_other_is_refused(service):
    async def main(coordinator):
        accepted = await thinks(service)
        assert await coordinator.post("s", "think", "t") == accepted
        with pytest.raises(Busy):
            await coordinator.post("s", "something else", "u")
        with pytest.raises(Busy):
            await coordinator.go_on("s")
        assert await coordinator.outcome("s", "u") is None  # at once: it is another's run
        both = asyncio.gather(*(coordinator.outcome("s", "t") for _ in range(2)))
        await asyncio.sleep(0)
        service.model.go_on.set()
        first, second = await both
        assert first == second
        assert first.state == "answered"
        assert service.notes() == 1
        assert service.model.asked == 2

    played(service, main)


def test_posts_of_one_request_at_once_start_one_run(service):
    async def main(coordinator):
        posts = await asyncio.gather(*(coordinator.post("s", "milk", "a") for _ in range(10)))
        assert len({post.run_id or "later" for post in posts} - {"later"}) == 1
        assert (await coordinator.outcome("s", "a")).answer == NOTED.format(1)
        assert service.runs() == [["run.completed"]]
        assert service.notes() == 1

    played(service, main)


def test_of_different_posts_at_once_one_is_accepted_and_the_others_are_busy(service):
    async def main(coordinator):
        posts = (coordinator.post("s", f"think {n}", str(n)) for n in range(5))
        outcomes = await asyncio.gather(*posts, return_exceptions=True)
        assert sorted(type(each).__name__ for each in outcomes) == ["Busy"] * 4 + ["Outcome"]
        service.model.go_on.set()

    played(service, main)


def test_a_request_that_a_restart_interrupted_goes_on_when_it_is_posted_again(service):
    async def main(coordinator):
        await thinks(service)
        await service.boot()
        assert await service.status() == "interrupted_startup"
        service.model.go_on.set()
        outcome = await service.say("think", "t")
        assert outcome.state == "answered"
        assert service.runs() == [["run.interrupted"], ["run.completed"]]
        assert service.notes() == 1

    played(service, main)


def test_an_unknown_session_and_an_unknown_request(service):
    async def main(coordinator):
        files = sorted(service.path.iterdir())
        for call in (
            coordinator.post("none", "x", "a"),
            coordinator.outcome("none", "a"),
            coordinator.read("none"),
            coordinator.go_on("none"),
            coordinator.cancel("none"),
            coordinator.rotate("none"),
            coordinator.resume("none", "a.b", "r", "x"),
            coordinator.glance("none"),
        ):
            with pytest.raises(UnknownSession):
                await call
        assert sorted(service.path.iterdir()) == files
        assert await coordinator.outcome("s", "none") is None

    played(service, main)


# --- Q1 and G8: a disk that refuses


@pytest.mark.parametrize("points", [(), ("log.append", "run.start")])
def test_what_the_disk_refuses_is_not_accepted(service, disk, points):
    async def main(coordinator):
        await coordinator.read("s")
        before = service.log()
        disk.refuse(*points)
        with pytest.raises(NotDurable, match="No space left"):
            await coordinator.post("s", "milk", "a")
        for told in (coordinator.outcome("s", "a"), coordinator.post("s", "milk", "a")):
            with pytest.raises(NotDurable):  # nor is the answer told that it has in mind
                await told
        assert service.log() == before
        disk.take()
        outcome = await service.say("milk", "a")
        assert outcome.state == "answered"
        assert service.runs() == [["run.completed"]]

    played(service, main)


def test_an_answer_is_told_once_it_is_durable(service, disk):
    async def main(coordinator):
        await thinks(service)
        disk.refuse()
        service.model.go_on.set()
        for told in (coordinator.outcome("s", "t"), coordinator.outcome("s", "t")):
            with pytest.raises(NotDurable):
                await told
        assert service.runs() == [[]]
        await coordinator.sweep()  # survives it
        disk.take()
        await coordinator.sweep()
        assert (await coordinator.outcome("s", "t")).state == "answered"
        assert service.runs() == [["run.completed"]]

    played(service, main)


def test_a_wait_whose_token_cannot_be_put_on_record_is_not_told_and_can_be_continued(service, disk):
    async def main(coordinator):
        await coordinator.read("s")
        session = await coordinator.session("s")
        mint = session.tokens.mint

        def refuses(*args):
            disk.refuse()
            return mint(*args)

        session.tokens.mint = refuses
        await coordinator.post("s", "ask may I?", "q")
        with pytest.raises(NotDurable):
            await coordinator.outcome("s", "q")
        disk.take()
        session.tokens.mint = mint
        outcome = await coordinator.go_on("s")  # the same run: nothing new to wait for
        assert (outcome.request_id, outcome.state) == ("q", "waiting")
        await coordinator.resume("s", outcome.token, "r", "yes")
        assert (await coordinator.outcome("s", "q")).answer == "They say: yes"
        assert service.runs() == [["run.completed"]]

    played(service, main)


def test_a_session_that_could_not_be_opened_is_not_left_locked(service, disk):
    async def main(coordinator):
        await service.boot(create=False)
        disk.refuse()
        with pytest.raises(OSError, match="No space left"):
            await service.coordinator.read("s")
        disk.take()
        assert (await service.coordinator.read("s")).status == "idle"

    played(service, main)


# --- Q2: a fresh message while a run waits


@pytest.mark.requirement("O4")
def test_a_fresh_message_revokes_the_token_and_cancels_the_run_that_waits(service):
    async def main(coordinator):
        token = await waits(service)
        outcome = await service.say("milk", "a")
        assert outcome.answer == NOTED.format(1)
        assert service.runs() == [["run.cancelled"], ["run.completed"]]
        assert "run.interrupted" not in service.kinds()
        await refused("revoked", coordinator.resume("s", token, "r", "yes"))
        old = await coordinator.outcome("s", "q")
        assert (old.state, old.reason, old.token) == ("cancelled", "superseded by a new message", None)
        assert await coordinator.post("s", "ask may I?", "q") == old
        assert await service.status() == "idle"
        await service.boot()
        assert (await service.coordinator.outcome("s", "q")).state == "cancelled"

    played(service, main)


@pytest.mark.requirement("O4")
def test_a_fresh_message_that_waits_itself_has_its_own_token(service):
    async def main(coordinator):
        old = await waits(service, "q", "this?")
        new = await waits(service, "r", "or that?")
        await refused("revoked", coordinator.resume("s", old, "x", "yes"))
        await coordinator.resume("s", new, "y", "that")
        assert (await coordinator.outcome("s", "r")).answer == "They say: that"

    played(service, main)


@pytest.mark.requirement("O4")
def test_a_fresh_message_after_a_restart_cancels_what_waited_before_it(service):
    async def main(coordinator):
        await waits(service)
        await service.boot()
        assert (await service.say("milk", "a")).state == "answered"
        assert service.runs() == [["run.interrupted"], ["run.cancelled"], ["run.completed"]]
        assert (await service.coordinator.outcome("s", "q")).state == "cancelled"

    played(service, main)


# --- Q3: a token resumes one run once


@pytest.mark.requirement("O5")
def test_of_ten_that_resume_with_one_token_one_wins_and_is_told_so_again(service):
    async def main(coordinator):
        token = await waits(service)
        tried = [coordinator.resume("s", token, f"r{n}", f"answer {n}") for n in range(10)]
        told = await asyncio.gather(*tried, return_exceptions=True)
        (winner,) = [n for n, each in enumerate(told) if not isinstance(each, Exception)]
        codes = [each.code for n, each in enumerate(told) if n != winner]
        assert codes == ["consumed"] * 9
        answer = f"They say: answer {winner}"
        assert (await coordinator.outcome("s", "q")).answer == answer
        assert await coordinator.resume("s", token, f"r{winner}", "something else") == told[winner]
        for n in set(range(10)) - {winner}:
            await refused("consumed", coordinator.resume("s", token, f"r{n}", f"answer {n}"))
        assert (await coordinator.outcome("s", "q")).answer == answer
        assert service.kinds("token.consumed", "run.resumed") == ["token.consumed", "run.resumed"]
        assert service.runs() == [["run.completed"]]

    played(service, main)


@pytest.mark.requirement("O5")
def test_the_winner_is_told_the_same_after_a_restart(service):
    async def main(coordinator):
        token = await waits(service)
        told = await coordinator.resume("s", token, "r", "yes")
        await coordinator.outcome("s", "q")
        await service.boot()
        assert await service.coordinator.resume("s", token, "r", "yes") == told
        await refused("consumed", service.coordinator.resume("s", token, "other", "yes"))
        assert service.runs() == [["run.completed"]]

    played(service, main)


@pytest.mark.requirement("O5")
def test_the_secret_is_told_to_one_only(service):
    async def main(coordinator):
        await coordinator.post("s", "ask may I?", "q")
        told = await asyncio.gather(*(coordinator.outcome("s", "q") for _ in range(3)))
        assert len([each for each in told if each.token]) == 1
        assert {each.state for each in told} == {"waiting"}
        assert (await coordinator.post("s", "ask may I?", "q")).token is None

    played(service, main)


@pytest.mark.requirement("O5")
def test_a_rotated_token_replaces_the_other_also_one_that_nobody_has_fetched(service):
    async def main(coordinator):
        await coordinator.post("s", "ask may I?", "q")
        session = await coordinator.session("s")
        await asyncio.wait({session.going.task})
        old = session.outcomes["q"].token
        rotated = await coordinator.rotate("s")
        assert (rotated.request_id, rotated.state) == ("q", "waiting")
        assert (await coordinator.outcome("s", "q")).token is None
        await refused("revoked", coordinator.resume("s", old, "r", "yes"))
        await coordinator.resume("s", rotated.token, "r", "yes")
        assert (await coordinator.outcome("s", "q")).answer == "They say: yes"
        with pytest.raises(NothingToDo):
            await coordinator.rotate("s")

    played(service, main)


# --- Q4: after a restart


@pytest.mark.requirement("O3", "O4")
def test_a_restart_interrupts_the_wait_and_continuing_gives_a_new_token(service):
    async def main(coordinator):
        token = await waits(service)
        for _ in range(3):
            await service.boot()
            await service.coordinator.sweep()
        coordinator = service.coordinator
        assert await service.status() == "interrupted_startup"
        assert service.report.status == {"s": "interrupted_startup"}
        assert service.kinds("run.interrupted", "token.revoked") == ["token.revoked", "run.interrupted"]
        await refused("revoked", coordinator.resume("s", token, "r", "yes"))
        assert await service.status() == "interrupted_startup"  # nothing goes on by itself
        assert await coordinator.outcome("s", "q") is None
        going = await coordinator.go_on("s")
        assert (going.request_id, going.state) == ("q", "running")
        outcome = await coordinator.outcome("s", "q")
        assert outcome.run_id == going.run_id
        await coordinator.resume("s", outcome.token, "r", "yes")
        assert (await coordinator.outcome("s", "q")).answer == "They say: yes"
        assert service.runs() == [["run.interrupted"], ["run.completed"]]
        with pytest.raises(NothingToDo):
            await coordinator.go_on("s")

    played(service, main)


@pytest.mark.requirement("O4")
def test_any_message_takes_up_what_was_accepted_before(service):
    async def main(coordinator):
        await thinks(service)
        await service.boot()
        service.model.go_on.set()
        assert (await service.say("milk", "a")).answer == NOTED.format(2)
        assert (await service.coordinator.outcome("s", "t")).answer == NOTED.format(1)
        assert service.runs() == [["run.interrupted"], ["run.completed"], ["run.completed"]]

    played(service, main)


def test_while_a_message_takes_up_an_older_one_it_can_be_cancelled_and_deadlines_are_looked_at(service):
    async def main(coordinator):
        await thinks(service)
        await service.boot()
        coordinator = service.coordinator
        await coordinator.create("other", title="", provider="", model="")
        await coordinator.post("other", "ask may I?", "q")
        await coordinator.outcome("other", "q")
        post = asyncio.create_task(coordinator.post("s", "milk", "a"))
        await service.model.thinking.wait()
        service.now += 1000
        await coordinator.sweep()
        assert (await coordinator.glance("other")).status == "interrupted_waiting"
        cancelled = await coordinator.cancel("s")
        assert (cancelled.request_id, cancelled.state) == ("t", "running")
        service.model.go_on.set()
        await post
        assert (await coordinator.outcome("s", "a")).answer == NOTED.format(2)  # its turn was decided
        assert (await coordinator.outcome("s", "t")).state == "cancelled"

    played(service, main)


# --- deadlines


@pytest.mark.requirement("O4")
@pytest.mark.parametrize("again", ["continue", "post"])
def test_after_the_deadline_the_token_is_refused_and_going_on_gives_a_new_one(service, again):
    async def main(coordinator):
        token = await waits(service)
        service.now += 599
        await coordinator.sweep()
        assert await service.status() == "waiting"
        service.now += 1
        await refused("expired", coordinator.resume("s", token, "r", "yes"))
        assert await service.status() == "interrupted_waiting"
        for _ in range(3):
            await coordinator.sweep()
        assert service.kinds("run.interrupted") == ["run.interrupted"]
        (line,) = [event for event in service.log() if event["kind"] == "run.interrupted"]
        assert line["reason"] == "wait_timeout"
        await refused("revoked", coordinator.resume("s", token, "r", "yes"))
        assert await coordinator.outcome("s", "q") is None  # it does not wait any more
        if again == "post":
            await coordinator.post("s", "ask may I?", "q")
        else:
            await coordinator.go_on("s")
        outcome = await coordinator.outcome("s", "q")
        assert outcome.token not in (None, token)
        await coordinator.resume("s", outcome.token, "r2", "yes")
        assert (await coordinator.outcome("s", "q")).answer == "They say: yes"
        assert service.runs() == [["run.interrupted"], ["run.completed"]]

    played(service, main)


@pytest.mark.requirement("O4")
def test_a_sweep_survives_that_a_session_is_opened_meanwhile(service):
    async def main(coordinator):
        session = await coordinator.session("s")
        async with session.turn:
            sweep = asyncio.create_task(coordinator.sweep())
            await asyncio.sleep(0)
            await coordinator.create("new", title="", provider="", model="")
            assert not sweep.done()  # it was in the middle
        await sweep
        assert coordinator.names() == ["new", "s"]

    played(service, main)


@pytest.mark.requirement("O4")
def test_one_session_whose_disk_refuses_does_not_keep_the_sweep_from_the_others(service):
    async def main(coordinator):
        await waits(service)
        broken = await coordinator.create("a", title="", provider="", model="")
        assert broken.status == "idle"
        session = await coordinator.session("a")

        def refuses():
            raise OSError("the disk is gone")

        session.wake = refuses
        service.now += 1000
        await coordinator.sweep()
        assert service.kinds("run.interrupted") == ["run.interrupted"]
        del session.wake

    played(service, main)


# --- cancel


def test_a_run_that_waits_is_cancelled_at_once(service):
    async def main(coordinator):
        token = await waits(service)
        outcome = await coordinator.cancel("s")
        assert (outcome.request_id, outcome.state) == ("q", "cancelled")
        assert await coordinator.outcome("s", "q") == outcome
        await refused("revoked", coordinator.resume("s", token, "r", "yes"))
        assert service.runs() == [["run.cancelled"]]
        assert await service.status() == "idle"
        with pytest.raises(NothingToDo):
            await coordinator.cancel("s")

    played(service, main)


def test_a_run_in_progress_ends_with_its_turn(service):
    async def main(coordinator):
        await thinks(service)
        assert (await coordinator.cancel("s")).state == "running"
        service.model.go_on.set()
        outcome = await coordinator.outcome("s", "t")
        assert (outcome.state, outcome.reason) == ("cancelled", "cancelled by the user")
        assert service.notes() == 1  # what was decided is done
        assert service.model.asked == 1
        assert service.runs() == [["run.cancelled"]]
        assert (await service.say("milk", "a")).state == "answered"
        await service.boot()
        assert await service.coordinator.post("s", "think", "t") == without_run(outcome)

    played(service, main)


def without_run(outcome):
    """A later boot does not say which run it was."""
    return type(outcome)(request_id=outcome.request_id, state=outcome.state, reason=outcome.reason)


def test_an_answer_that_comes_all_the_same_stays_one(service):
    """Its last turn was in progress when it was cancelled: what was told must not change."""

    async def main(coordinator):
        complete = service.model.complete

        async def slow(conversation, **how):
            if conversation[-1].role == "tool":
                service.model.thinking.set()
                await service.model.go_on.wait()
            return await complete(conversation, **how)

        service.model.complete = slow
        await thinks(service, content="milk")
        await coordinator.cancel("s")
        service.model.go_on.set()
        outcome = await coordinator.outcome("s", "t")
        assert outcome.state == "answered"
        await service.boot()
        later = await service.coordinator.outcome("s", "t")
        assert (later.state, later.answer) == ("answered", outcome.answer)
        assert service.runs() == [["run.completed"]]

    played(service, main)


def test_what_a_restart_interrupted_can_be_cancelled(service):
    async def main(coordinator):
        await waits(service)
        await service.boot()
        assert (await service.coordinator.cancel("s")).state == "cancelled"
        assert service.runs() == [["run.interrupted"], ["run.cancelled"]]
        assert await service.status() == "idle"

    played(service, main)


# --- what must not be touched


def test_a_late_repeat_of_an_old_request_touches_nothing_that_waits_or_runs(service):
    async def main(coordinator):
        old = await service.say("milk", "old")
        token = await waits(service)
        before = service.log()
        assert await coordinator.post("s", "milk", "old") == old
        assert service.log() == before
        assert await service.status() == "waiting"
        await coordinator.resume("s", token, "r", "yes")
        await coordinator.outcome("s", "q")
        await thinks(service)
        assert await coordinator.post("s", "milk", "old") == old
        assert (await coordinator.post("s", "ask may I?", "q")).answer == "They say: yes"
        service.model.go_on.set()
        assert (await coordinator.outcome("s", "t")).state == "answered"
        assert service.notes() == 2

    played(service, main)


def test_what_waits_cannot_be_continued_without_its_token(service):
    async def main(coordinator):
        token = await waits(service)
        with pytest.raises(NothingToDo, match="waits"):
            await coordinator.go_on("s")
        assert service.kinds("token.minted") == ["token.minted"]
        await coordinator.resume("s", token, "r", "yes")
        assert (await coordinator.outcome("s", "q")).state == "answered"

    played(service, main)


def test_looking_at_a_session_leaves_it_to_others(service):
    async def main(coordinator):
        await waits(service)
        await service.boot(create=False)
        assert (await service.coordinator.glance("s")).status == "interrupted_startup"
        other = Service(service.path, service.store)
        other.boots = service.boots
        await other.boot()  # nobody has its lock
        assert await other.status() == "interrupted_startup"
        await other.coordinator.close()

    played(service, main)


# --- stopping


@pytest.mark.requirement("O3")
def test_whoever_waits_when_it_stops_is_told_and_the_next_boot_goes_on(service):
    async def main(coordinator):
        await thinks(service)
        waiting = asyncio.create_task(coordinator.outcome("s", "t"))
        seen = []

        async def watch():
            seen.extend([event["status"] async for event in coordinator.watch("s", 0)])

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0)
        await coordinator.stop()
        with pytest.raises(Stopping):
            await waiting
        await watching
        assert seen == ["idle", "running"]
        with pytest.raises(Stopping):
            await coordinator.post("s", "more", "m")
        assert service.runs() == [[]]  # as after a kill
        await service.boot()
        service.model.go_on.set()
        await service.coordinator.go_on("s")
        assert (await service.coordinator.outcome("s", "t")).state == "answered"
        assert service.runs() == [["run.interrupted"], ["run.completed"]]
        messages = (await service.coordinator.read("s")).messages
        assert [each.role for each in messages] == ["user", "assistant", "tool", "assistant"]

    played(service, main)


def test_nothing_is_left_running_when_it_is_closed(service):
    async def main(coordinator):
        await thinks(service)
        await coordinator.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    played(service, main)


# --- who watches


@pytest.mark.requirement("O7")
def test_watching_has_every_status_and_interruption_from_where_one_was(service):
    async def main(coordinator):
        await waits(service)
        service.now += 1000
        await coordinator.sweep()
        await coordinator.go_on("s")
        await coordinator.outcome("s", "q")
        await coordinator.cancel("s")
        observed = [e for e in service.log() if e["kind"] in ("status.derived", "run.interrupted")]
        told = [event.get("status", "run.interrupted") for event in observed]
        assert told == ["idle", "waiting", "run.interrupted", "interrupted_waiting", "waiting", "idle"]
        for start in range(len(service.log()) + 1):
            wanted = [event for event in observed if event["seq"] > start]
            watch = coordinator.watch("s", start)
            assert [await anext(watch) for _ in wanted] == wanted
            await watch.aclose()

    played(service, main)


# --- O6: the facade has no persistence and no derivation

STATUSES = {"running", "waiting", "idle", "interrupted_startup", "interrupted_waiting"}
WRITERS = {"os", "io", "shutil", "tempfile", "sqlite3", "aiosqlite", "fcntl", "reference_agent.store.durable"}


def tree_of(module):
    path = Path(reference_agent.__file__).parent / f"{module}.py"
    return ast.parse(path.read_text())


def status_literals(tree):
    """Of a session's status; the state of a request may be said or asked for: `state=`, `.state ==`."""
    of_requests = set()
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="state", value=value):
                of_requests.add(value)
            case ast.Compare(left=ast.Attribute(attr="state"), comparators=values):
                of_requests.update(values)
            case ast.AnnAssign(target=ast.Name(id="state"), annotation=annotation):
                of_requests.update(ast.walk(annotation))
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [each.value for each in constants if each.value in STATUSES and each not in of_requests]


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


@pytest.mark.parametrize("module", ["service/coordinator", "service/http_api"])
def test_the_facade_writes_no_file_and_knows_no_rule_of_a_status(module):
    tree = tree_of(module)
    assert status_literals(tree) == []
    assert set(imported(tree)) & WRITERS == set()
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert not {call for call in calls if call == "open" or call.split(".")[-1].startswith("write")}


def test_that_check_would_notice():
    found = ast.parse('import os\nif run.end is None: status = "running"\nOutcome(state="waiting")')
    assert status_literals(found) == ["running"]
    assert set(imported(found)) & WRITERS == {"os"}
    assert status_literals(tree_of("sessions/projector"))


def test_only_the_coordinator_asks_the_projector_and_handlers_do_not_ask_the_store():
    modules = set(imported(tree_of("service/http_api")))
    assert "reference_agent.sessions.projector" not in modules
    assert not {each for each in modules if each.endswith((".sqlite", ".snapshot", ".agent"))}
