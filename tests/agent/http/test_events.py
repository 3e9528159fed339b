"""The stream of events: none is missed, none is repeated, and slow readers block nobody."""

import asyncio

import pytest

from reference_agent.store.registry import STORES
from tests.agent.http.client import connected, raw, run, until

pytestmark = pytest.mark.requirement("O7")


def observed(service):
    kinds = {"status.derived": "status", "run.interrupted": "interruption"}
    return [(e["seq"], kinds[e["kind"]], e) for e in service.log() if e["kind"] in kinds]


@pytest.mark.parametrize("store", STORES.names())
def test_a_client_that_reconnects_misses_and_repeats_no_event_even_across_a_restart(service, store):
    service.store = store
    seen = []

    async def main(client):
        await client.say("ask may I?", "q")
        seen.extend(await client.events(most=2))
        service.now += 1000
        await service.coordinator.sweep()
        seen.extend(await client.events(seen[-1][0], most=1))
        await client("POST", "/sessions/s/continue", expect=202)
        await client("GET", "/sessions/s/requests/q")

    async def later(client):
        wanted = observed(service)
        assert wanted[-2][1:] == ("interruption", wanted[-2][2])
        assert wanted[-1][2]["status"] == "interrupted_startup"
        assert wanted[-2][0] > seen[-1][0]
        seen.extend(await client.events(seen[-1][0], until=wanted[-1][0]))
        assert seen == wanted
        assert await client.events(most=len(wanted)) == wanted  # and a new client sees all of it
        following = asyncio.create_task(client.events(seen[-1][0], most=1))
        await client("POST", "/sessions/s/cancel")
        ((_id, _event, data),) = await following  # live
        assert data["status"] == "idle"

    run(service, main)
    run(service, later)


def test_the_interruption_is_in_the_stream_right_after_boot(service):
    async def main(client):
        await client.say("ask may I?", "q")

    async def later(client):
        last = await client.events(until=observed(service)[-1][0])
        assert [event for _id, event, _data in last][-2:] == ["interruption", "status"]
        assert last[-2][2]["reason"] == "process_restart"
        assert last[-1][2]["status"] == "interrupted_startup"

    run(service, main)
    run(service, later)


@pytest.mark.parametrize("given", ["x", "-1", "1.5", "1e3", "9" * 19, "0x1", "1 2"])
def test_an_invalid_event_id_is_refused(service, given):
    async def main(client):
        headers = {"Last-Event-ID": given}
        told = await client.error(400, "bad_event_id", "GET", "/sessions/s/events", headers=headers)
        assert "expected a number" in told

    run(service, main)


def test_an_event_id_beyond_the_end_waits_for_new_events(service):
    async def main(client):
        following = asyncio.create_task(client.events(10**6, most=1))
        changed = service.coordinator._sessions["s"].changed
        await until(lambda: changed._waiters)
        await client.say("ask may I?", "q")
        ((number, _event, _data),) = await following
        assert number > 3

    run(service, main)


def test_a_slow_or_disconnected_reader_blocks_nobody(service):
    async def main(client):
        stuck = connected(client)
        stuck.sendall(raw("GET", "/events"))
        for n in range(5):
            await client.say(f"{n}", f"r{n}")
        assert len(observed(service)) == len(await client.events(most=len(observed(service))))
        stuck.close()

    run(service, main)
