"""The HTTP API, over a real socket: every route, every refusal, streams that are cut off."""

import asyncio
import json
import socket
import threading
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx2
import pytest
from chaoskit_scenarios.sessions.http_target import NO_TLS, serving

from reference_agent.logs.structured import written_to
from reference_agent.service.http_api import LARGEST_BODY, application
from reference_agent.sessions.record import SessionRecord
from reference_agent.store.registry import STORES
from tests.agent.helpers import Points
from tests.agent.service import Disk, Service

pytestmark = pytest.mark.requirement("O7")
STRANGE = 'a\u2028b\u2029c \U0001f600 \x85 \\ " </script> é'
LIMIT = 20.0  # seconds: for what would hang if it were broken


class Client:
    """What one does with the API, in a line each."""

    def __init__(self, http):
        self.http = http

    async def __call__(self, method, path, body=None, *, expect=200, **how):
        if body is not None:
            how["json"] = body
        response = await self.http.request(method, path, **how)
        assert response.status_code == expect, response.text
        assert response.headers["content-type"] == "application/json"
        return response.json()

    async def error(self, status, code, method, path, body=None, **how):
        found = await self(method, path, body, expect=status, **how)
        assert set(found) == {"error"}
        assert set(found["error"]) == {"code", "message"}
        assert found["error"]["code"] == code, found
        return found["error"]["message"]

    async def say(self, content, request, session="s"):
        said = {"content": content, "request_id": request, "wait": True}
        return await self("POST", f"/sessions/{session}/messages", said)

    async def events(self, last=None, most=None, session="s", until=None):
        """(id, event, data) of a stream, up to `most` or until an id; then we hang up."""
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        found, event = [], {}
        async with self.http.stream("GET", f"/sessions/{session}/events", headers=headers) as response:
            assert response.status_code == 200
            assert response.headers["content-type"].startswith("text/event-stream")
            async for line in response.aiter_lines():
                name, _, value = line.partition(": ")
                if name:
                    event[name] = value
                elif "id" in event:
                    found.append((int(event["id"]), event["event"], json.loads(event["data"])))
                    event = {}
                    if len(found) == most or found[-1][0] == until:
                        break
        return found


@asynccontextmanager
async def served(service):
    """A server for the coordinator of this boot, and its client."""
    app = application(service.coordinator, service.new_id, provider="local", model="m")
    async with (
        serving(app) as address,
        httpx2.AsyncClient(base_url=address, timeout=LIMIT, verify=NO_TLS) as http,
    ):
        yield Client(http)


def run(service, main):
    async def whole():
        await service.boot()
        try:
            async with asyncio.timeout(3 * LIMIT), served(service) as client:
                await main(client)
        finally:
            await service.coordinator.close()

    asyncio.run(whole())


@pytest.fixture
def service(tmp_path):
    return Service(tmp_path / "state")


@pytest.fixture(autouse=True)
def state(tmp_path):
    path = tmp_path / "state"
    path.mkdir()
    return path


# --- every route


@pytest.mark.parametrize("store", STORES.names())
def test_every_route(service, store):
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


def quoted(text):
    return "".join(f"%{byte:02x}" for byte in text.encode()).encode()


def test_strange_content_comes_back_as_it_was(service):
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


# --- what is wrong


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("messages", b"{", "truncated"),
        ("messages", b"\xff\xfe", ""),
        ("messages", b"", "content"),
        ("messages", b"[]", "object"),
        ("messages", b"{}", "content"),
        ("messages", b'{"content": 1}', "str"),
        ("messages", b'{"content": null}', "str"),
        ("messages", b'{"content": ""}', "length"),
        ("messages", b'{"content": "\\ud800 alone"}', ""),
        ("messages", b'{"content": "a", "wait": "yes"}', "bool"),
        ("messages", b'{"content": "a", "request_id": ""}', "length"),
        ("messages", b'{"content": "a", "request_id": 7}', "str"),
        ("messages", b'{"content": "a", "request_id": "' + b"x" * 201 + b'"}', "length"),
        ("messages", b'{"content": "a", "contents": "b"}', "contents"),
        ("messages", b'{"content": ' + b"[" * 100_000, ""),
        ("resume", b'{"token": "a.b"}', "result"),
        ("resume", b'{"token": "a.b", "result": {}}', "str"),
        ("resume", b'{"result": "x"}', "token"),
    ],
)
def test_a_body_that_is_wrong_is_refused_and_says_what_was_expected(service, path, body, message):
    async def main(client):
        before = service.log()
        told = await client.error(400, "bad_body", "POST", f"/sessions/s/{path}", content=body)
        assert message in told
        assert service.log() == before

    run(service, main)


def test_what_is_not_there(service):
    async def main(client):
        await client.error(404, "not_found", "GET", "/")
        await client.error(404, "not_found", "GET", "/sessions/s/nothing")
        await client.error(405, "method_not_allowed", "PUT", "/sessions/s")
        await client.error(404, "unknown_request", "GET", "/sessions/s/requests/none")
        for method, path, body in (
            ("GET", "", None),
            ("GET", "/status", None),
            ("GET", "/events", None),
            ("POST", "/token", None),
            ("POST", "/messages", {"content": "a"}),
            ("GET", "/requests/a", None),
            ("POST", "/resume", {"token": "a.b", "result": ""}),
            ("POST", "/continue", None),
            ("POST", "/cancel", None),
        ):
            await client.error(404, "unknown_session", method, f"/sessions/none{path}", body)
        for what in ("continue", "cancel", "token"):
            await client.error(409, "nothing_to_do", "POST", f"/sessions/s/{what}")

    run(service, main)


NAMES = [
    "../x",
    "..",
    ".",
    "/etc/x",
    "a/b",
    "a\\b",
    "\0",
    "a\0b",
    "x" * 65,
    "x" * 5000,
    "",
    " ",
    "é",
    "名前",
    "a.json",
    "a.messages",
    "~",
    "a\n",
    "\u2028",
    "\U0001f600",
]


def test_no_name_leads_anywhere_or_makes_a_file(service, tmp_path):
    async def main(client):
        await client("GET", "/sessions/s")
        before = tree(tmp_path)
        base = httpx2.URL(str(client.http.base_url))
        for name in NAMES:
            await client.error(400, "bad_session_id", "POST", "/sessions", {"id": name})
            for method, rest in (
                ("GET", b""),
                ("GET", b"/status"),
                ("GET", b"/events"),
                ("POST", b"/cancel"),
            ):
                url = base.copy_with(raw_path=b"/sessions/" + quoted(name) + rest)
                response = await client.http.request(method, url)
                assert response.status_code in (400, 404, 405), (name, response.text)
                code = response.json()["error"]["code"]
                assert code in ("bad_session_id", "not_found", "method_not_allowed"), name
        for raw in (b"/sessions/../x", b"/sessions/%2e%2e%2fx", b"/sessions/..%2f..%2fx/status", b"//x"):
            response = await client.http.get(base.copy_with(raw_path=raw))
            assert response.status_code in (400, 404)
        assert tree(tmp_path) == before

    run(service, main)


def tree(path):
    return {each: each.stat().st_size for each in sorted(path.rglob("*"))}


def test_tokens_are_refused_with_a_code_each(service):
    async def main(client):
        async def refused(status, code, token, request="r"):
            body = {"token": token, "result": "yes", "request_id": request}
            return await client.error(status, f"token_{code}", "POST", "/sessions/s/resume", body)

        token = (await client.say("ask may I?", "q"))["token"]
        token_id, _, secret = token.partition(".")
        said = [
            await refused(403, "malformed", "nonsense"),
            await refused(403, "malformed", ""),
            await refused(403, "unknown", f"rt_none.{secret}"),
            await refused(403, "wrong_secret", f"{token_id}.{secret[:-1]}_"),
        ]
        await client("POST", "/sessions", {"id": "t"}, expect=201)
        body = {"token": token, "result": "yes"}
        await client.error(403, "token_unknown", "POST", "/sessions/t/resume", body)
        service.now += 600
        said.append(await refused(409, "expired", token))
        await service.coordinator.sweep()
        said.append(await refused(409, "revoked", token))
        await client("POST", "/sessions/s/continue", expect=202)
        token = (await client("GET", "/sessions/s/requests/q"))["token"]
        await client("POST", "/sessions/s/resume", {"token": token, "result": "yes"}, expect=202)
        said.append(await refused(409, "consumed", token))
        assert not any(secret in each or token.partition(".")[2] in each for each in said)

    run(service, main)


def test_a_second_run_and_another_process_are_conflicts(service):
    async def main(client):
        first = {"content": "think", "request_id": "t"}
        await client("POST", "/sessions/s/messages", first, expect=202)
        await client.error(409, "busy", "POST", "/sessions/s/messages", {"content": "more"})
        await client.error(409, "busy", "POST", "/sessions/s/continue")
        service.model.go_on.set()
        with SessionRecord.open(service.path, "other", clock=service.clock, create={}):
            told = await client.error(409, "session_busy", "GET", "/sessions/other")
            assert "another process" in told
            listed = (await client("GET", "/sessions"))["sessions"]
            assert [(each["id"], "error" in each) for each in listed] == [("other", True), ("s", False)]
        assert (await client("GET", "/sessions/other"))["status"] == "idle"

    run(service, main)


def test_a_damaged_session_is_named_and_hides_no_other(service):
    (service.path / "bad.messages.jsonl").write_text('{"seq": 1}\n{"seq": 3}\n')
    (service.path / "empty.messages.jsonl").write_text("")  # of a crash before the first line

    async def main(client):
        told = await client.error(500, "damaged", "GET", "/sessions/bad")
        assert "bad.messages.jsonl, line 2" in told
        listed = (await client("GET", "/sessions"))["sessions"]
        assert [(each["id"], "error" in each) for each in listed] == [("bad", True), ("s", False)]
        await client.error(404, "unknown_session", "GET", "/sessions/empty")

    run(service, main)


def test_a_disk_that_refuses_is_503_and_nothing_was_accepted(service, monkeypatch):
    disk = Disk(Points(monkeypatch))

    async def main(client):
        await client("GET", "/sessions/s")
        disk.refuse()
        said = {"content": "milk", "request_id": "a"}
        await client.error(503, "not_durable", "POST", "/sessions/s/messages", said)
        await client.error(503, "not_durable", "GET", "/sessions/s/requests/a")
        await client.error(503, "not_durable", "POST", "/sessions", {"id": "new"})
        disk.take()
        assert (await client.say("milk", "a"))["state"] == "answered"

    run(service, main)


def test_a_web_page_is_refused(service):
    async def main(client):
        origin = {"Origin": "https://example.com"}
        before = service.log()
        said = {"content": "milk"}
        path = "/sessions/s/messages"
        await client.error(403, "foreign_origin", "POST", path, said, headers=origin)
        await client.error(403, "foreign_origin", "OPTIONS", path, headers=origin)
        assert service.log() == before

    run(service, main)


def test_a_bug_is_500_and_names_nothing_but_its_kind(service):
    async def main(client):
        def broken(_session):
            raise RuntimeError("with a secret in it")

        service.coordinator.look = broken
        assert "secret" not in await client.error(500, "internal", "GET", "/sessions/s/status")
        del service.coordinator.look

        async def complete(*_args, **_how):
            raise RuntimeError("the model is broken")

        await client("POST", "/sessions/s/messages", {"content": "a", "request_id": "a"}, expect=202)
        await client("GET", "/sessions/s/requests/a")
        service.model.complete = complete
        said = {"content": "b", "request_id": "b", "wait": True}
        await client.error(500, "internal", "POST", "/sessions/s/messages", said)
        del service.model.complete
        assert (await client.say("b", "b"))["state"] == "answered"  # and it goes on

    run(service, main)


# --- bodies that are too large, or not what their length says


def large(size):
    return b'{"content": "' + b"x" * (size - 15) + b'"}'


def test_a_body_of_the_largest_size_is_taken_and_one_byte_more_is_not(service):
    async def main(client):
        path = "/sessions/s/messages"
        await client("POST", path, content=large(LARGEST_BODY), expect=202)
        before = service.log()
        await client.error(413, "too_large", "POST", path, content=large(LARGEST_BODY + 1))

        async def chunks():
            yield large(LARGEST_BODY)[:-2]
            yield b'yy"}'

        await client.error(413, "too_large", "POST", path, content=chunks())  # no Content-Length
        assert [e["kind"] for e in service.log()[len(before) :]] in ([], ["status.derived"])

    run(service, main)


def connected(client):
    place = urlsplit(str(client.http.base_url))
    return socket.create_connection((place.hostname, place.port), timeout=LIMIT)


def answer_to(client, request, *, cut):
    """What a server says first to raw bytes; `cut`: and to silence after them."""
    with connected(client) as connection:
        connection.sendall(request)
        if cut:
            connection.shutdown(socket.SHUT_WR)
        return connection.recv(65536)


HEAD = b"POST /sessions/s/messages HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (HEAD + b"Content-Length: 99999999\r\n\r\n{}", 413),  # at once: nobody waits for the rest
        (HEAD + b'Content-Length: 50\r\n\r\n{"content": "cut', None),
        (HEAD + b'Content-Length: 3\r\n\r\n{"content": "a"}', 400),
        (HEAD + b"Content-Length: -1\r\n\r\n{}", 400),
        (HEAD + b"Content-Length: x\r\n\r\n{}", 400),
        (HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{", None),
        (b"\0\0\0\0\r\n\r\n", 400),
    ],
)
def test_a_request_that_lies_about_its_length_does_nothing(service, request_bytes, status):
    async def main(client):
        before = service.log()
        found = await asyncio.to_thread(answer_to, client, request_bytes, cut=status is None)
        wanted = b"HTTP/1.1 %d " % status if status else b""
        assert found[:13] == wanted
        assert service.log() == before
        assert (await client.say("milk", "a"))["state"] == "answered"

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
        assert token_id in everything  # it was looked for in the right place
        assert secret not in everything


# --- the stream of events


def observed(service):
    kinds = {"status.derived": "status", "run.interrupted": "interruption"}
    return [(e["seq"], kinds[e["kind"]], e) for e in service.log() if e["kind"] in kinds]


@pytest.mark.parametrize("store", STORES.names())
def test_whoever_comes_back_misses_nothing_and_sees_nothing_twice_also_across_a_restart(service, store):
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
        assert await client.events(most=len(wanted)) == wanted  # and one that is new sees it all
        following = asyncio.create_task(client.events(seen[-1][0], most=1))
        await client("POST", "/sessions/s/cancel")
        ((_id, _event, data),) = await following  # as it happens
        assert data["status"] == "idle"

    run(service, main)
    run(service, later)


def test_right_after_boot_the_interruption_is_there(service):
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
def test_an_event_id_that_is_none(service, given):
    async def main(client):
        headers = {"Last-Event-ID": given}
        told = await client.error(400, "bad_event_id", "GET", "/sessions/s/events", headers=headers)
        assert "expected a number" in told

    run(service, main)


async def until(holds):
    async with asyncio.timeout(LIMIT):
        while not holds():  # noqa: ASYNC110 - of somebody who has no event for it
            await asyncio.sleep(0.01)


def test_an_event_id_beyond_the_end_waits_for_what_comes(service):
    async def main(client):
        following = asyncio.create_task(client.events(10**6, most=1))
        changed = service.coordinator._sessions["s"].changed
        await until(lambda: changed._waiters)
        await client.say("ask may I?", "q")
        ((number, _event, _data),) = await following
        assert number > 3

    run(service, main)


def test_a_reader_that_is_slow_or_leaves_keeps_nobody_from_anything(service):
    async def main(client):
        stuck = connected(client)
        stuck.sendall(raw("GET", "/events"))
        for n in range(5):
            await client.say(f"{n}", f"r{n}")
        assert len(observed(service)) == len(await client.events(most=len(observed(service))))
        stuck.close()

    run(service, main)


# --- clients that leave


def others():
    """The tasks but ourselves, and but the one that sse-starlette has for the whole process."""
    return {
        task
        for task in asyncio.all_tasks() - {asyncio.current_task()}
        if "_shutdown_watcher" not in repr(task.get_coro())
    }


async def several_steps():
    """Of the loop, in whose own thread everything runs: what was begun is then well under way."""
    for _ in range(50):
        await asyncio.sleep(0)


def waits_for_an_answer():
    """Whether a handler is still there: it leaves when it sees that its client has."""
    return [task for task in others() if "run_asgi" in repr(task.get_coro())]


def raw(method, path, body=b""):
    head = f"{method} /sessions/s{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


THINK = b'{"content": "think", "request_id": "t", "wait": true}'
LEAVING = {
    "stream": raw("GET", "/events"),
    "wait": raw("POST", "/messages", THINK),
    "outcome": raw("GET", "/requests/t"),
    "cancel": raw("POST", "/cancel"),
    "body": raw("POST", "/messages", THINK)[:-5],
}


@pytest.mark.parametrize("what", LEAVING)
def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind(service, what):
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
        if run:  # it goes on without the one who asked
            outcome = await coordinator.outcome("s", "t")
            assert outcome.state == ("cancelled" if what == "cancel" else "answered")
        assert others() <= before

    run(service, main)


def test_a_client_that_left_before_its_token_was_told_can_fetch_it(service):
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


def test_no_thread_is_left(service):
    before = threading.active_count()

    async def main(client):
        await client.say("milk", "a")

    run(service, main)
    assert threading.active_count() == before
