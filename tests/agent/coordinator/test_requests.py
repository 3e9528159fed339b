"""Q1: a request is accepted once it is durable; the same id is the same request; writes may fail."""

import asyncio

import pytest

from reference_agent.service.coordinator import Busy
from reference_agent.sessions.record import UnknownSession
from reference_agent.store.backlog import NotDurable
from reference_agent.store.records import OtherContent
from tests.agent.service import NOTED, played, thinks

pytestmark = pytest.mark.requirement("O6")


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


def test_posting_a_finished_request_again_returns_its_outcome_and_does_nothing(service):
    async def main(coordinator):
        first = await service.say("milk", "a")
        length = len(service.log())
        assert await coordinator.post("s", "milk", "a") == first
        with pytest.raises(OtherContent):
            await coordinator.post("s", "other words", "a")
        assert await coordinator.outcome("s", "a") == first
        await service.boot()
        with pytest.raises(OtherContent):
            await service.coordinator.post("s", "other words", "a")
        again = await service.coordinator.post("s", "milk", "a")
        assert (again.state, again.answer) == (first.state, first.answer)
        assert await service.coordinator.outcome("s", "a") == again
        assert service.notes() == 1
        assert service.kinds()[length:] == ["boot.seen"]

    played(service, main)


def test_posting_a_running_request_again_reports_it_running_and_any_other_is_refused(service):
    async def main(coordinator):
        accepted = await thinks(service)
        assert await coordinator.post("s", "think", "t") == accepted
        with pytest.raises(OtherContent):
            await coordinator.post("s", "think again", "t")
        with pytest.raises(Busy):
            await coordinator.post("s", "something else", "u")
        with pytest.raises(Busy):
            await coordinator.go_on("s")
        assert (
            await coordinator.outcome("s", "u") is None
        )  # without waiting: the run belongs to another request
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


def test_a_request_that_a_restart_interrupted_resumes_when_posted_again(service):
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


def test_an_unknown_session_or_request_is_not_found(service):
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


# --- Q1 and G8: writes that fail


@pytest.mark.parametrize("points", [(), ("log.append", "run.start")])
def test_a_request_that_cannot_be_written_is_not_accepted(service, disk, points):
    async def main(coordinator):
        await coordinator.read("s")
        before = service.log()
        disk.refuse(*points)
        with pytest.raises(NotDurable, match="No space left"):
            await coordinator.post("s", "milk", "a")
        for told in (coordinator.outcome("s", "a"), coordinator.post("s", "milk", "a")):
            with pytest.raises(NotDurable):  # nor is the answer in memory reported
                await told
        assert service.log() == before
        disk.take()
        outcome = await service.say("milk", "a")
        assert outcome.state == "answered"
        assert service.runs() == [["run.completed"]]

    played(service, main)


def test_an_answer_is_reported_only_once_it_is_durable(service, disk):
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


def test_a_wait_whose_token_cannot_be_written_is_not_reported_and_can_be_continued(service, disk):
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
