"""Q2 to Q4: runs that wait, their tokens and deadlines, also across a restart. The tests set the clock."""

import asyncio

import pytest

from reference_agent.service.coordinator import NothingToDo
from tests.agent.service import NOTED, played, refused, thinks, waits

pytestmark = pytest.mark.requirement("O6")


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
def test_of_ten_clients_resuming_with_one_token_one_wins_and_a_retry_says_so_again(service):
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
def test_the_winner_gets_the_same_response_after_a_restart(service):
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
def test_the_secret_is_returned_to_one_client_only(service):
    async def main(coordinator):
        await coordinator.post("s", "ask may I?", "q")
        told = await asyncio.gather(*(coordinator.outcome("s", "q") for _ in range(3)))
        assert len([each for each in told if each.token]) == 1
        assert {each.state for each in told} == {"waiting"}
        assert (await coordinator.post("s", "ask may I?", "q")).token is None

    played(service, main)


@pytest.mark.requirement("O5")
def test_a_rotated_token_replaces_the_old_one_even_if_it_was_never_fetched(service):
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
        assert await service.status() == "interrupted_startup"  # nothing resumes by itself
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
def test_any_message_first_resumes_what_was_accepted_before(service):
    async def main(coordinator):
        await thinks(service)
        await service.boot()
        service.model.go_on.set()
        assert (await service.say("milk", "a")).answer == NOTED.format(2)
        assert (await service.coordinator.outcome("s", "t")).answer == NOTED.format(1)
        assert service.runs() == [["run.interrupted"], ["run.completed"], ["run.completed"]]

    played(service, main)


def test_while_a_message_resumes_an_older_one_cancel_and_deadlines_still_work(service):
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
def test_after_the_deadline_the_token_is_refused_and_continuing_gives_a_new_one(service, again):
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
        assert await coordinator.outcome("s", "q") is None  # it is no longer waiting
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
def test_a_session_may_be_opened_during_a_sweep(service):
    async def main(coordinator):
        session = await coordinator.session("s")
        async with session.turn:
            sweep = asyncio.create_task(coordinator.sweep())
            await asyncio.sleep(0)
            await coordinator.create("new", title="", provider="", model="")
            assert not sweep.done()  # its turn was in progress
        await sweep
        assert coordinator.names() == ["new", "s"]

    played(service, main)


@pytest.mark.requirement("O4")
def test_a_write_error_in_one_session_does_not_stop_the_sweep_of_the_others(service):
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
