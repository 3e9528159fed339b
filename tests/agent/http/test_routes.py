"""The HTTP API, over a real socket: every route, unusual content, and no secret in any output."""

import json

import httpx2
import pytest

from reference_agent.logs.structured import written_to
from reference_agent.store.registry import STORES
from tests.agent.http.client import quoted, run

pytestmark = pytest.mark.requirement("O7")
STRANGE = 'a\u2028b\u2029c \U0001f600 \x85 \\ " </script> é'


# --- every route


@pytest.mark.parametrize("store", STORES.names())
def test_every_route_works(service, store):
    service.store = store

    async def main(client):
        created = await client("POST", "/sessions", {"id": "new", "title": "A title"}, expect=201)
        assert (created["id"], created["title"], created["status"]) == ("new", "A title", "idle")
        again = await client("POST", "/sessions", {"id": "new"}, expect=201)
        assert again["title"] == "A title"
        nameless = await client("POST", "/sessions", expect=201)
        listed = await client("GET", "/sessions")
        assert [each["id"] for each in listed["sessions"]] == sorted([nameless["id"], "new", "s"])

        accepted = await client(
            "POST", "/sessions/s/messages", {"content": "milk", "request_id": "a"}, expect=202
        )
        assert (accepted["request_id"], accepted["state"]) == ("a", "running")
        outcome = await client("GET", "/sessions/s/requests/a")
        assert outcome["answer"] == "I have written that down (note 1)."
        assert outcome["run_id"] == accepted["run_id"]
        assert await client("POST", "/sessions/s/messages", {"content": "milk", "request_id": "a"}) == outcome

        read = await client("GET", "/sessions/s")
        assert [each["role"] for each in read["messages"]] == ["user", "assistant", "tool", "assistant"]
        assert read["status"] == "idle"

        waiting = await client.say("ask may I?", "q")
        assert await client("GET", "/sessions/s/status") == {"id": "s", "status": "waiting"}
        assert waiting["wait"]["kind"] == "answer"
        rotated = await client("POST", "/sessions/s/token")
        brought = {"token": rotated["token"], "result": "yes", "request_id": "r"}
        resumed = await client("POST", "/sessions/s/resume", brought, expect=202)
        assert (await client("GET", "/sessions/s/requests/q"))["answer"] == "They say: yes"
        assert await client("POST", "/sessions/s/resume", brought, expect=202) == resumed

        await client.say("ask again?", "q2")
        assert (await client("POST", "/sessions/s/cancel"))["state"] == "cancelled"
        await client.say("ask too late?", "q3")
        service.now += 1000
        await service.coordinator.sweep()
        assert (await client("GET", "/sessions/s/status"))["status"] == "interrupted_waiting"
        going = await client("POST", "/sessions/s/continue", expect=202)
        assert going["request_id"] == "q3"
        assert (await client("GET", "/sessions/s/requests/q3"))["state"] == "waiting"
        events = await client.events(most=5)
        assert {event for _id, event, _data in events} == {"status"}

    run(service, main)


def test_a_request_id_may_have_any_characters(service):
    async def main(client):
        for n, name in enumerate(("a/b", "../x", "a b?c#d%e", STRANGE, "x" * 200)):
            await client.say(f"note {n}", name)
            response = httpx2.URL(str(client.http.base_url)).copy_with(
                raw_path=b"/sessions/s/requests/" + quoted(name)
            )
            assert (await client("GET", response))["request_id"] == name

    run(service, main)


def test_unusual_content_is_returned_unchanged(service):
    async def main(client):
        await client.say(STRANGE, "a")
        waiting = await client.say("ask me", "q")
        brought = {"token": waiting["token"], "result": STRANGE}
        await client("POST", "/sessions/s/resume", brought, expect=202)
        outcome = await client("GET", "/sessions/s/requests/q")
        assert outcome["answer"] == f"They say: {STRANGE}"
        read = await client("GET", "/sessions/s")
        assert read["messages"][0]["content"] == STRANGE
        assert outcome["answer"] == read["messages"][-1]["content"]
        assert (await client.say("notes", "l"))["answer"].endswith(f"1. {STRANGE}")

    run(service, main)


# --- secrets


def test_no_secret_is_in_a_log_a_file_or_an_error(service, tmp_path, capfd, caplog):
    caplog.set_level("DEBUG")
    secrets, said = [], []

    async def main(client):
        for n in range(2):
            token = (await client.say(f"ask {n}?", f"q{n}"))["token"]
            rotated = (await client("POST", "/sessions/s/token"))["token"]
            secrets.extend([token, rotated])
            for text in (token, rotated + "x", rotated):
                body = {"token": text, "result": "yes", "request_id": f"r{n}"}
                response = await client.http.post("/sessions/s/resume", json=body)
                said.append(response.text)
            body = {"token": rotated, "result": 1}
            said.append(await client.error(400, "bad_body", "POST", "/sessions/s/resume", body))
            said.append((await client("GET", f"/sessions/s/requests/q{n}"))["answer"])
        said.append(json.dumps(await client("GET", "/sessions")))
        said.append(json.dumps(await client.events(most=4)))

    with (tmp_path / "lines").open("w") as stream, written_to(stream, level="debug"):
        run(service, main)
    files = [each.read_bytes().decode(errors="replace") for each in tmp_path.rglob("*") if each.is_file()]
    everything = "\n".join([*files, *said, *capfd.readouterr(), caplog.text])
    assert len(secrets) == 4
    for token in secrets:
        token_id, _, secret = token.partition(".")
        assert token_id in everything  # the search covers the right files
        assert secret not in everything
