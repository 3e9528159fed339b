"""The seed decides the order in which things happen."""

import asyncio
import random

import pytest
from chaoskit_scenarios import inloop

from reference_agent.store.registry import STORES
from tests.agent.daemon.helpers import SCRIPTED, Home, watched

pytestmark = pytest.mark.requirement("S7")


def order_of_steps(seed):
    """The order in which five tasks take three steps each, with all five ready every time."""
    taken = []

    async def walk(name):
        for _ in range(3):
            taken.append(name)
            await asyncio.sleep(0)

    async def main():
        await asyncio.gather(*map(walk, range(5)))

    inloop.run(main(), None if seed is None else random.Random(seed))
    return taken


def test_without_a_seed_ready_tasks_run_in_fifo_order():
    assert order_of_steps(None) == [0, 1, 2, 3, 4] * 3


def test_with_a_seed_the_seed_decides_the_order_of_ready_tasks():
    orders = [tuple(order_of_steps(seed)) for seed in range(20)]
    assert orders == [tuple(order_of_steps(seed)) for seed in range(20)]
    assert len(set(orders)) == 20
    for order in orders:  # still one step each before the next round
        assert [sorted(order[n : n + 5]) for n in (0, 5, 10)] == [[0, 1, 2, 3, 4]] * 3


def test_callbacks_that_are_not_task_steps_keep_their_order():
    called = []

    async def main():
        loop = asyncio.get_running_loop()
        tasks = []
        for number in range(50):
            loop.call_soon(called.append, number)
            tasks.append(asyncio.ensure_future(asyncio.sleep(0)))
        await asyncio.gather(*tasks)

    inloop.run(main(), random.Random(1))
    assert called == list(range(50))


@pytest.mark.parametrize("store", STORES.names())
def test_the_seed_decides_the_order_in_which_the_daemon_persists(tmp_path, store):
    """The same operations at the same times; the seed decides only the order of ready tasks."""

    def passed(seed, number):
        home = Home(tmp_path / f"{store}-{seed}-{number}", store)

        async def act(daemon):
            await asyncio.gather(*(daemon.spawn(f"a{n}", **SCRIPTED) for n in range(4)))
            await asyncio.gather(*(daemon.ask("a0", "hello", message_id=f"m{n}") for n in range(4)))
            return [str(message) for message, _ in daemon.state.settled.values()]

        with watched() as points:
            return home.run(act, order=random.Random(seed)), points.passed

    first = [passed(seed, 1) for seed in range(6)]
    assert first == [passed(seed, 2) for seed in range(6)]
    assert len(set(map(str, first))) > 1
