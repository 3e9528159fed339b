"""Clients that disconnect at any time leave nothing behind."""

import asyncio
import threading

import pytest

from tests.agent.http.client import connected, raw, run, until

pytestmark = pytest.mark.requirement("O7")


def others():
    """All tasks except this one and the one that sse-starlette keeps for the whole process."""
    return {
        task
        for task in asyncio.all_tasks() - {asyncio.current_task()}
        if "_shutdown_watcher" not in repr(task.get_coro())
    }


async def several_steps():
    """Several rounds of the loop, after which whatever was started is in progress."""
    for _ in range(50):
        await asyncio.sleep(0)


def waits_for_an_answer():
    """Whether a handler is still running: it ends once it notices that its client has left."""
    return [task for task in others() if "run_asgi" in repr(task.get_coro())]


THINK = b'{"content": "think", "request_id": "t", "wait": true}'
LEAVING = {
    "stream": raw("GET", "/events"),
    "wait": raw("POST", "/messages", THINK),
    "outcome": raw("GET", "/requests/t"),
    "cancel": raw("POST", "/cancel"),
    "body": raw("POST", "/messages", THINK)[:-5],
}


@pytest.mark.parametrize("what", LEAVING)
def test_a_client_that_disconnects_leaves_nothing_behind(service, what):
    async def main(client):
        coordinator = service.coordinator
        session = await coordinator.session("s")
        await coordinator.read("s")
        if what in ("outcome", "cancel"):
            await coordinator.post("s", "think", "t")
        before = others()
        with connected(client) as connection:
            connection.sendall(LEAVING[what])
            await until(lambda: len(others() - before) >= 1)  # somebody sees to it
            if what == "wait":
                await service.model.thinking.wait()
            await several_steps()
        run = {session.going.task} if session.going else set()
        await until(lambda: not others() - before - run)
        assert not session.turn.locked()
        assert not coordinator._opening.locked()
        service.model.go_on.set()
        if run:  # it continues without its client
            outcome = await coordinator.outcome("s", "t")
            assert outcome.state == ("cancelled" if what == "cancel" else "answered")
        assert others() <= before

    run(service, main)


def test_a_client_that_disconnected_before_it_got_its_token_can_fetch_it(service):
    async def main(client):
        service.model.complete = slow = Slow(service.model)
        body = b'{"content": "ask may I?", "request_id": "q", "wait": true}'
        with connected(client) as connection:
            connection.sendall(raw("POST", "/messages", body))
            await slow.asked.wait()
            assert waits_for_an_answer()
        await until(lambda: not waits_for_an_answer())
        slow.go_on.set()
        assert (await client("GET", "/sessions/s/requests/q"))["token"]

    run(service, main)


class Slow:
    def __init__(self, model):
        self._complete = model.complete
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, *args, **how):
        self.asked.set()
        await self.go_on.wait()
        return await self._complete(*args, **how)


def test_no_thread_is_left_behind(service):
    before = threading.active_count()

    async def main(client):
        await client.say("milk", "a")

    run(service, main)
    assert threading.active_count() == before
