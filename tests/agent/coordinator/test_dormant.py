"""A server that keeps one session open: the others sleep, and nothing about them is lost."""

import pytest

from reference_agent.store.registry import STORES
from tests.agent.service import Service, played

pytestmark = pytest.mark.requirement("O4", "O6")


@pytest.fixture(params=STORES.names())
def service(tmp_path, request):
    return Service(tmp_path, request.param, most_open=1)


async def waiting(service, session):
    """A session whose run waits; returns its token."""
    await service.coordinator.create(session, title="", provider="local", model="m")
    await service.coordinator.post(session, f"ask {session}?", "q")
    return (await service.coordinator.outcome(session, "q")).token


def asleep(service):
    return {name for name, session in service.coordinator._sessions.items() if session.dormant}


def test_a_session_that_sleeps_is_resumed_by_its_token(service):
    async def main(coordinator):
        token = await waiting(service, "a")
        await waiting(service, "b")
        assert "a" in asleep(service)
        await coordinator.resume("a", token, "r", "yes")
        assert (await coordinator.outcome("a", "q")).answer == "They say: yes"
        await waiting(service, "a2")
        assert (await coordinator.resume("a", token, "r", "yes")).state == "running"
        assert (await coordinator.outcome("a", "q")).answer == "They say: yes"

    played(service, main)


def test_a_sweep_opens_only_sessions_of_which_a_deadline_has_passed(service):
    async def main(coordinator):
        for session in ("a", "b", "c"):
            await waiting(service, session)
        sessions = coordinator._sessions
        last_used = {name: sessions[name].last_used for name in asleep(service)}
        assert {"a", "b"} <= set(last_used)
        await coordinator.sweep()
        assert {name: sessions[name].last_used for name in last_used} == last_used
        service.now += 10**9
        await coordinator.sweep()
        assert {(await coordinator.read(name)).status for name in "abc"} == {"interrupted_waiting"}

    played(service, main)
