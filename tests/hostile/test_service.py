"""Attacks on `reference-agent serve` from the same machine: other people's web pages, clients that are slow
or many, and other users who read files. Real sockets, real processes; each row of a table is one attack."""

import contextlib
import json
import resource
import signal
import socket
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from reference_agent.store.registry import STORES
from tests.agent.server import Server

pytestmark = pytest.mark.requirement("O7")
LIMIT = 20.0  # seconds, for what would otherwise hang
PATIENCE = 4.0  # seconds within which a limit of 0.3 seconds takes effect on a busy machine
# The same server with limits that a test can wait for.
HASTY = """
import sys
from reference_agent.service import connections, server
connections.REQUEST = connections.STALLED = server.IDLE = 0.3
from reference_agent.terminal import cli
sys.exit(cli.main())
"""

# Keeps every session open, so that descriptors run out, and connections without end.
GREEDY = """
import sys
from reference_agent.service import connections, coordinator
connections.REQUEST = connections.STALLED = 0.3
coordinator.FEWEST_OPEN = 10**6
from reference_agent.terminal import cli
sys.exit(cli.main())
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    names = ("--allow-host", "Agent.example", "--allow-host", "2001:db8::1")
    with Server(tmp_path_factory.mktemp("usual") / "state", *names) as server:
        yield server


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("hasty") / "state", code=HASTY) as server:
        with server.client() as http:
            http.post("/sessions", json={"id": "s"})
        yield server


def connected(server):
    place = urlsplit(server.url)
    return socket.create_connection((place.hostname, place.port), timeout=LIMIT)


def answer_to(server, request):
    """Everything that the server sends before it closes the connection."""
    with connected(server) as connection:
        connection.sendall(request)
        return received(connection)


def received(connection):
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            found += part
    return found


def creating(name, *headers):
    """A request that creates a session, unless it is refused."""
    body = json.dumps({"id": name}).encode()
    lines = [b"POST /sessions HTTP/1.1", b"Connection: close", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def status_and_code(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body).get("error", {}).get("code")


def sessions(server):
    with server.client() as http:
        return {each["id"] for each in http.get("/sessions").json()["sessions"]}


# --- names of web pages: DNS rebinding

FOREIGN = [
    b"evil.example",
    b"evil.example:8420",
    b"localhost.evil.example",
    b"127.0.0.1.evil.example",
    b"evil.example.localhost",
    b"agent.example.evil",
    b"evil@127.0.0.1",
    b"127.0.0.1@evil.example",
    b"0.0.0.0",
    b"127.0.0.2",
    b"2130706433",
    b"[::]",
    b"[::ffff:127.0.0.1]",
    b"[2001:db8::2]",
    b"::1",
    b"localhost:",
    b"localhost:x",
    b"localhost:8420:8420",
    b"localhost, evil.example",
    b"localhost evil.example",
    b"localhost.",
    b"l\xc3\xb6calhost",
    b"",
]


@pytest.mark.parametrize("host", FOREIGN)
def test_a_request_under_a_foreign_name_does_nothing(server, host):
    answer = answer_to(server, creating("stolen", b"Host: " + host))
    assert status_and_code(answer) == (403, "foreign_host")
    assert "stolen" not in sessions(server)


OWN = [
    b"localhost",
    b"LOCALHOST:1",
    b"127.0.0.1:8420",
    b"[::1]:8420",
    b"agent.example",
    b"AGENT.EXAMPLE:80",
    b"[2001:db8::1]",
]


@pytest.mark.parametrize("host", OWN)
def test_a_request_under_one_of_its_names_is_answered(server, host):
    assert status_and_code(answer_to(server, creating("mine", b"Host: " + host))) == (201, None)


def test_a_wildcard_address_is_not_a_name(tmp_path):
    with Server(tmp_path / "state", "--host", "0.0.0.0", "--allow-host", "agent.example") as server:  # noqa: S104
        for host, status in ((b"0.0.0.0", 403), (b"evil.example", 403), (b"agent.example", 201)):
            answer = answer_to(server, creating("s", b"Host: " + host))
            assert status_and_code(answer)[0] == status, host


@pytest.mark.parametrize(
    "headers", [(), (b"Host: localhost", b"Host: evil.example"), (b"Host: localhost", b"Host: localhost")]
)
def test_a_request_needs_exactly_one_host(server, headers):
    assert answer_to(server, creating("stolen", *headers)).startswith(b"HTTP/1.1 400 ")
    old = creating("stolen", *headers).replace(b"HTTP/1.1", b"HTTP/1.0")
    assert answer_to(server, old)[9:12] in (b"400", b"403")
    assert "stolen" not in sessions(server)


PAGES = [
    b"Origin: https://evil.example",
    b"Origin: null",
    b"Origin: http://localhost:3000",
    b"Sec-Fetch-Site: cross-site",
    b"Sec-Fetch-Site: same-site",
]


@pytest.mark.parametrize("header", PAGES)
def test_a_request_of_a_web_page_does_nothing(server, header):
    answer = answer_to(server, creating("stolen", b"Host: localhost", header))
    assert status_and_code(answer) == (403, "foreign_origin")
    assert "stolen" not in sessions(server)


# --- files

EVERYTHING = {"s.lock", "s.messages.jsonl", "s.json", "s.scratch", "s.scratch/notes.txt", "lines"}
DATABASE = {"sessions.db", "sessions.db-wal", "sessions.db-shm"}


@pytest.mark.parametrize("umask", [0, 0o777])
@pytest.mark.parametrize("store", STORES.names())
def test_only_the_owner_has_access_to_what_it_creates(tmp_path, store, umask):
    home = tmp_path / "new" / "state"
    tmp_path.joinpath("new").mkdir()
    args = ("--store", store, "--log", str(tmp_path / "new" / "lines"))
    with Server(home / "deeper", *args, umask=umask) as server, server.client() as http:
        http.post("/sessions", json={"id": "s"})
        http.post("/sessions/s/messages", json={"content": "milk", "request_id": "a", "wait": True})
        http.post("/sessions/s/messages", json={"content": "ask me", "request_id": "b", "wait": True})
        found = [path for path in tmp_path.joinpath("new").rglob("*") if path.name != "deeper.stderr"]
        modes = {path.name: stat.filemode(path.stat().st_mode) for path in found}
    del modes["state"]  # the test created it, for stderr
    wanted = {name.rpartition("/")[2] for name in EVERYTHING | (DATABASE if store == "sqlite" else set())}
    assert wanted <= modes.keys()
    assert set(modes.values()) == {"drwx------", "-rw-------"}, modes


# --- slow clients

POST = b"POST /sessions HTTP/1.1\r\nHost: localhost\r\n"
GET = b"GET /sessions HTTP/1.1\r\nHost: localhost\r\n"
SLOW = {
    "says nothing": [],
    "half a request line": [b"GET /ses"],
    "headers without an end": [GET + b"X-A: 1\r\n"],
    "one byte at a time": [GET, *[b"x"] * 40],
    "one header at a time": [GET, *[b"X-A: 1\r\n"] * 40],
    "half a body": [POST + b'Content-Length: 50\r\n\r\n{"id": '],
    "a body that grows slowly": [POST + b"Content-Length: 50\r\n\r\n", *[b" "] * 40],
    "a chunked body without an end": [POST + b"Transfer-Encoding: chunked\r\n\r\n", *[b"1\r\n \r\n"] * 40],
    "a body that nobody reads": [GET + b"Content-Length: 9999\r\n\r\n", *[b" "] * 40],
    "nothing after an answer": [GET + b"\r\n"],
    "a slow second request": [GET + b"\r\n", *[b"G", b"E", b"T"] * 13],
    "a stream with half a body": [
        GET.replace(b"sessions", b"sessions/s/events") + b"Content-Length: 9\r\n\r\n"
    ],
}


@pytest.fixture(scope="module")
def durations(hasty):
    """How long each slow client stayed connected. They attack at the same time."""
    with ThreadPoolExecutor(len(SLOW)) as pool:
        return dict(zip(SLOW, pool.map(lambda how: stayed(hasty, how), SLOW), strict=True))


def stayed(server, how):
    with connected(server) as connection:
        connection.settimeout(0.02)
        began, parts = time.monotonic(), list(SLOW[how])
        while time.monotonic() - began < PATIENCE and not is_closed(connection):
            with contextlib.suppress(OSError):
                connection.send(parts.pop(0) if parts else b"")
        return time.monotonic() - began


@pytest.mark.parametrize("how", SLOW)
def test_a_slow_client_is_disconnected(durations, how):
    assert durations[how] < PATIENCE


def is_closed(connection):
    try:
        return not connection.recv(65536)
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_a_client_that_does_not_read_its_answer_is_disconnected(hasty):
    with hasty.client() as http:
        for number in range(12):
            http.post("/sessions", json={"id": f"t{number}", "title": "x" * 900_000})
    with connected(hasty) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(GET + b"\r\n")
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                try:
                    connection.send(b"\r\n", socket.MSG_DONTWAIT)
                except ConnectionError:
                    break
            time.sleep(0.05)
        else:
            pytest.fail("still connected")


def test_a_client_that_waits_for_an_event_is_not_disconnected(hasty):
    """The other direction: only the request has to arrive in time."""
    with hasty.client() as http, hasty.client() as other:
        seen = http.get("/sessions/s").json()["last_seq"]
        with http.stream("GET", "/sessions/s/events", headers={"Last-Event-ID": str(seen)}) as stream:
            time.sleep(0.7)  # more than twice the limit
            other.post("/sessions/s/messages", json={"content": "milk", "wait": True})
            assert any('"running"' in line for line in stream.iter_lines() if line.startswith("data"))


# --- many clients

DESCRIPTORS = 64


def few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


def complaints(server):
    return server.errors.read_text()


def opened(stack, server, number):
    """Connections, without waiting for the server to accept them."""
    place = urlsplit(server.url)
    for _ in range(number):
        connection = stack.enter_context(socket.socket())
        connection.setblocking(False)
        connection.connect_ex((place.hostname, place.port))
        yield connection


def until(status, ask):
    """Poll until the answer has the status: the server handles other connections in the meantime."""
    deadline = time.monotonic() + LIMIT
    while (found := ask()).status_code != status:
        assert time.monotonic() < deadline, found.text
        time.sleep(0.02)
    return found


def test_silent_connections_take_no_descriptors_from_runs(tmp_path):
    with Server(tmp_path / "state", preexec_fn=few_descriptors) as server, server.client() as http:
        http.post("/sessions", json={"id": "s"})
        said = {"content": "milk", "request_id": "a", "wait": True}
        with contextlib.ExitStack() as stack:
            list(opened(stack, server, 2 * DESCRIPTORS))
            until(503, lambda: http.get("/sessions/s/status"))
        done = until(200, lambda: http.post("/sessions/s/messages", json=said))
        assert done.json()["answer"] == "I have written that down (note 1)."
        assert server.end() == 143
    assert complaints(server) == ""


def test_more_sessions_than_descriptors_can_be_used_again_and_again(tmp_path):
    with Server(tmp_path / "state", preexec_fn=few_descriptors) as server, server.client() as http:
        names = [f"s{number}" for number in range(DESCRIPTORS)]
        for name in names:
            assert http.post("/sessions", json={"id": name}).status_code == 201
        for name in names[::9]:
            said = {"content": "milk", "request_id": "a", "wait": True}
            assert http.post(f"/sessions/{name}/messages", json=said).json()["state"] == "answered"
        assert server.end() == 143
    assert complaints(server) == ""


def test_without_descriptors_clients_are_refused_in_one_line_and_open_sessions_go_on(tmp_path):
    how = {"code": GREEDY, "preexec_fn": few_descriptors}
    with Server(tmp_path / "state", **how) as server, server.client() as http:
        for number in range(DESCRIPTORS):
            status = http.post("/sessions", json={"id": f"s{number}"}).status_code
            if status != 201:
                break
        assert status == 503
        with contextlib.ExitStack() as stack:
            connections = list(opened(stack, server, 6))
            answers = [closed_with(connection) for connection in connections]
        assert {b"HTTP/1.1 503"} <= set(answers) <= {b"HTTP/1.1 503", b""}
        assert http.get("/sessions/s0/status").json()["status"] == "idle"
        assert server.end() == 143
    assert len(complaints(server).splitlines()) == 1
    assert "out of file descriptors" in complaints(server)


def closed_with(connection):
    connection.settimeout(LIMIT)
    return received(connection)[:12]


def test_malformed_requests_fill_no_log(hasty):
    for request in (b"\0\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"X" * 70_000):
        for _ in range(5):
            with contextlib.suppress(ConnectionError):
                answer_to(hasty, request)
    upgrade = creating("u", b"Host: localhost", b"Upgrade: websocket").replace(b"n: close", b"n: upgrade")
    with connected(hasty) as connection:
        connection.sendall(upgrade)
        assert connection.recv(65536).startswith(b"HTTP/1.1 201")
    assert complaints(hasty) == ""


# --- request ids


@pytest.mark.parametrize("store", STORES.names())
def test_a_request_id_with_other_content_is_a_conflict_even_after_a_kill(tmp_path, store):
    path, said = "/sessions/s/messages", {"content": "milk", "request_id": "a", "wait": True}
    with Server(tmp_path / "state", "--store", store) as server, server.client() as http:
        http.post("/sessions", json={"id": "s"})
        first = http.post(path, json=said).json()
        conflict(http.post(path, json={**said, "content": "bread"}))
        http.post(path, json={"content": "ask me", "request_id": "b", "wait": True})
        conflict(http.post(path, json={"content": "ask you", "request_id": "b"}))
        server.end(signal.SIGKILL)
    with Server(tmp_path / "state", "--store", store) as server, server.client() as http:
        conflict(http.post(path, json={**said, "content": "milk "}))
        conflict(http.post(path, json={"content": "ask you", "request_id": "b"}))
        assert http.post(path, json=said).json()["answer"] == first["answer"]
        assert http.get("/sessions/s/status").json()["status"] == "interrupted_startup"  # untouched


def conflict(response):
    assert (response.status_code, response.json()["error"]["code"]) == (409, "request_id_reused")
