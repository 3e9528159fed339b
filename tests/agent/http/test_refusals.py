"""What the HTTP API refuses: wrong bodies, names, tokens and lengths; conflicts, damage and bugs."""

import asyncio
import socket

import httpx2
import pytest

from reference_agent.service.http_api import LARGEST_BODY
from reference_agent.sessions.record import SessionRecord
from tests.agent.helpers import Points
from tests.agent.http.client import connected, quoted, run
from tests.agent.service import Disk

pytestmark = pytest.mark.requirement("O7")


# --- invalid input


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
def test_an_invalid_body_is_refused_with_what_was_expected(service, path, body, message):
    async def main(client):
        before = service.log()
        told = await client.error(400, "bad_body", "POST", f"/sessions/s/{path}", content=body)
        assert message in told
        assert service.log() == before

    run(service, main)


def test_unknown_paths_sessions_and_requests_are_not_found(service):
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


def test_no_session_name_escapes_the_directory_or_creates_a_file(service, tmp_path):
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


def test_each_refusal_of_a_token_has_its_own_code(service):
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
    (service.path / "empty.messages.jsonl").write_text("")  # left by a crash before the first line

    async def main(client):
        told = await client.error(500, "damaged", "GET", "/sessions/bad")
        assert "bad.messages.jsonl, line 2" in told
        listed = (await client("GET", "/sessions"))["sessions"]
        assert [(each["id"], "error" in each) for each in listed] == [("bad", True), ("s", False)]
        await client.error(404, "unknown_session", "GET", "/sessions/empty")

    run(service, main)


def test_a_write_error_is_503_and_nothing_was_accepted(service, monkeypatch):
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


def test_a_bug_is_500_and_reveals_only_its_exception_type(service):
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
        failed = await client("POST", "/sessions/s/messages", said)
        assert failed["state"] == "failed"
        assert "RuntimeError" in failed["reason"]
        assert "broken" not in failed["reason"]
        del service.model.complete
        assert (await client.say("c", "c"))["state"] == "answered"  # and it continues

    run(service, main)


# --- bodies that are too large or do not match their Content-Length


def large(size):
    return b'{"content": "' + b"x" * (size - 15) + b'"}'


def test_a_body_of_the_maximum_size_is_accepted_and_one_byte_more_is_not(service):
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


def answer_to(client, request, *, cut):
    """The first response of a server to raw bytes; `cut`: to raw bytes followed by silence."""
    with connected(client) as connection:
        connection.sendall(request)
        if cut:
            connection.shutdown(socket.SHUT_WR)
        return connection.recv(65536)


HEAD = b"POST /sessions/s/messages HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (HEAD + b"Content-Length: 99999999\r\n\r\n{}", 413),  # at once, without waiting for the rest
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
def test_a_request_with_a_wrong_content_length_does_nothing(service, request_bytes, status):
    async def main(client):
        before = service.log()
        found = await asyncio.to_thread(answer_to, client, request_bytes, cut=status is None)
        wanted = b"HTTP/1.1 %d " % status if status else b""
        assert found[:13] == wanted
        assert service.log() == before
        assert (await client.say("milk", "a"))["state"] == "answered"

    run(service, main)
