"""`reference-agent serve`: a real process, a real kill -9, and what the next process reports."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from reference_agent.store.event_log import read_log
from reference_agent.store.registry import STORES
from tests.agent.server import TIMEOUT, Server, without_proxies

pytestmark = pytest.mark.requirement("O7")
# A model that blocks until it is killed.
SLOW = """
import asyncio, sys
from reference_agent.terminal import cli, notes
complete = notes.NoteTaker.complete
async def slow(self, conversation, **how):
    if conversation[-1].content.startswith("think"):
        await asyncio.Event().wait()
    return await complete(self, conversation, **how)
notes.NoteTaker.complete = slow
sys.exit(cli.main())
"""
# A boot sweep that blocks until its input is closed.
SLOW_BOOT = """
import sys
from reference_agent.terminal import cli
from reference_agent.recovery.manager import RecoveryManager
sweep = RecoveryManager.sweep
def slow(self, record):
    print("sweeping", flush=True)
    sys.stdin.read()
    return sweep(self, record)
RecoveryManager.sweep = slow
sys.exit(cli.main())
"""


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


def ask(http, content, request, session="s"):
    body = {"content": content, "request_id": request, "wait": True}
    return http.post(f"/sessions/{session}/messages", json=body).json()


def log_of(state, session="s"):
    return read_log(state / f"{session}.messages.jsonl")


def kinds(state, *wanted):
    return [event["kind"] for event in log_of(state) if event["kind"] in wanted]


def complaints(state):
    return state.with_name(f"{state.name}.stderr").read_text()


@pytest.mark.requirement("O3", "O4", "O5")
@pytest.mark.parametrize("store", STORES.names())
def test_a_wait_survives_kill_9(state, store):
    with Server(state, "--store", store) as server, server.client() as http:
        http.post("/sessions", json={"id": "s"})
        token = ask(http, "ask may I?", "q")["token"]
        server.kill()
    for number in range(3):  # also killed again right after boot
        with Server(state, "--store", store) as server:
            assert "1 session, 1 interrupted_startup" in server.first
            if number < 2:
                server.kill()
                continue
            with server.client() as http:
                assert http.get("/sessions/s/status").json()["status"] == "interrupted_startup"
                assert kinds(state, "run.interrupted") == ["run.interrupted"]
                old = http.post("/sessions/s/resume", json={"token": token, "result": "yes"})
                assert (old.status_code, old.json()["error"]["code"]) == (409, "token_revoked")
                assert http.post("/sessions/s/continue").status_code == 202
                new = http.get("/sessions/s/requests/q").json()["token"]
                body = {"token": new, "result": "yes"}
                assert http.post("/sessions/s/resume", json=body).status_code == 202
                assert http.get("/sessions/s/requests/q").json()["answer"] == "They say: yes"
            assert server.end() == 143
    ends = kinds(state, "run.interrupted", "run.completed")
    assert ends == ["run.interrupted", "run.completed"]
    assert complaints(state) == ""


@pytest.mark.requirement("O3")
@pytest.mark.parametrize("store", STORES.names())
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_run_in_progress_resumes_however_the_server_ended(state, store, how):
    with Server(state, "--store", store, code=SLOW) as server, server.client() as http:
        http.post("/sessions", json={"id": "s"})
        body = {"content": "think about it", "request_id": "t"}
        assert http.post("/sessions/s/messages", json=body).status_code == 202
        began = time.monotonic()
        assert server.end(how) == (-9 if how == signal.SIGKILL else 128 + how)
        assert time.monotonic() - began < 5
    with Server(state, "--store", store) as server, server.client() as http:
        assert http.get("/sessions/s/status").json()["status"] == "interrupted_startup"
        assert http.post("/sessions/s/continue").json()["request_id"] == "t"
        assert http.get("/sessions/s/requests/t").json()["state"] == "answered"
        said = [each["role"] for each in http.get("/sessions/s").json()["messages"]]
        assert said == ["user", "assistant", "tool", "assistant"]
    assert kinds(state, "run.interrupted", "run.completed") == ["run.interrupted", "run.completed"]
    assert complaints(state) == ""


def test_it_listens_only_after_the_boot_sweep(state):
    with Server(state) as server, server.client() as http:
        http.post("/sessions", json={"id": "s"})
        ask(http, "ask may I?", "q")
        server.kill()
    port = free_port()
    command = [sys.executable, "-c", SLOW_BOOT, "serve", "--port", str(port), "--state", str(state)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, **pipes, text=True, env=without_proxies())
    with process:
        try:
            assert process.stdout.readline() == "sweeping\n"
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
            process.stdin.close()
            assert f"127.0.0.1:{port}" in process.stdout.readline()
            socket.create_connection(("127.0.0.1", port)).close()  # at once
        finally:
            process.kill()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_cleanly_with_a_watching_and_a_waiting_client(state, how):
    with (
        Server(state, code=SLOW) as server,
        server.client() as http,
        server.client() as other,
        ThreadPoolExecutor(1) as pool,
    ):
        http.post("/sessions", json={"id": "s"})
        with http.stream("GET", "/sessions/s/events") as stream:
            lines = stream.iter_lines()
            waiting = pool.submit(ask, other, "think", "t")
            while '"running"' not in next(lines):
                pass
            began = time.monotonic()
            assert server.end(how) == 128 + how
            assert time.monotonic() - began < 5
            assert not [line for line in lines if line.startswith("data")]  # end of stream, not an error
        assert waiting.result()["error"]["code"] == "stopping"
    assert complaints(state) == ""


@pytest.mark.parametrize("moment", range(5))
def test_it_stops_cleanly_at_any_moment(state, moment):
    with Server(state) as server, server.client() as http:
        for number in range(moment):  # a little further into its work each time
            http.post("/sessions", json={"id": f"s{number}"})
        assert server.end() == 143
    assert complaints(state) == ""


@pytest.mark.parametrize("store", STORES.names())
def test_a_second_server_cannot_open_the_sessions_of_the_first(state, store):
    with Server(state, "--store", store) as first, first.client() as http:
        http.post("/sessions", json={"id": "s"})
        token = ask(http, "ask may I?", "q")["token"]
        with Server(state, "--store", store) as second, second.client() as other:
            assert "s: session s is open in another process" in second.first
            for method, path in (("GET", ""), ("GET", "/status"), ("POST", "/continue")):
                refused = other.request(method, f"/sessions/s{path}")
                assert refused.status_code == 409
                assert refused.json()["error"]["code"] == "session_busy"
                assert f"pid {first.process.pid}" in refused.json()["error"]["message"]
            other.post("/sessions", json={"id": "mine"})
            assert ask(other, "milk", "a", "mine")["state"] == "answered"
        body = {"token": token, "result": "yes"}
        assert http.post("/sessions/s/resume", json=body).status_code == 202
        assert http.get("/sessions/s/requests/q").json()["state"] == "answered"
    assert kinds(state, "run.interrupted") == []


def serve(state, *args):
    """A server that is expected to exit by itself."""
    command = [sys.executable, "-m", "reference_agent.terminal.cli", "serve", "--state", str(state), *args]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT, check=False, env=without_proxies()
    )


def test_a_port_that_is_taken_is_one_line_and_no_session_is_touched(state):
    with Server(state) as first:
        port = first.url.rpartition(":")[2]
        other = state.with_name("other")
        done = serve(other, "--port", port)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            f"reference-agent: cannot listen on 127.0.0.1 port {port}: Address already in use\n"
        )
        assert not other.exists()


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("--port", "70000"), 2, "expected 0 to 65535"),
        (("--port", "-1"), 2, "expected 0 to 65535"),
        (("--port", "http"), 2, "expected 0 to 65535"),
        (("--sweep", "0"), 2, "greater than 0"),
        (("--sweep", "nan"), 2, "greater than 0"),
        (("--port", "0", "--host", "nowhere.invalid"), 1, "cannot listen on nowhere.invalid port 0"),
        (("--port", "0", "--host", "192.0.2.1"), 1, "cannot listen on 192.0.2.1 port 0"),
        (("--port", "0", "--url", "http://127.0.0.1:1/v1"), 2, "--url needs --model"),
    ],
)
def test_a_wrong_option_is_one_line(state, args, code, message):
    done = serve(state, *args)
    assert done.returncode == code
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_an_unusable_state_directory_is_one_line(state):
    state.write_text("a file")
    done = serve(state, "--port", "0")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert str(state) in done.stderr


def test_listening_beyond_this_machine_warns_about_missing_authentication(state):
    with Server(state, "--host", "0.0.0.0") as server:  # noqa: S104 - that is what is tried
        port = server.url.rpartition(":")[2]
        socket.create_connection(("127.0.0.1", int(port))).close()
        assert server.end() == 143
    (warning,) = complaints(state).splitlines()
    assert "there is no authentication" in warning


def test_by_default_it_listens_on_this_machine_only_without_a_warning(state):
    with Server(state) as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert server.end() == 143
    assert complaints(state) == ""


def test_the_sweep_runs_periodically_and_logs_what_it_did(state, tmp_path):
    lines = tmp_path / "lines"
    with Server(state, "--sweep", "0.05", "--log", str(lines), code=SHORT) as server:
        with server.client() as http:
            http.post("/sessions", json={"id": "s"})
            ask(http, "ask may I?", "q")
            with http.stream("GET", "/sessions/s/events") as stream:
                for line in stream.iter_lines():
                    if "interrupted_waiting" in line:
                        break
        assert server.end() == 143
    assert kinds(state, "run.interrupted") == ["run.interrupted"]
    assert "session.open" in [json.loads(line)["event"] for line in lines.read_text().splitlines()]


# The client asks with a short timeout.
SHORT = """
import sys
import msgspec
from reference_agent.terminal import cli, notes
notes.ASK = msgspec.structs.replace(notes.ASK, deadline=0.2)
sys.exit(cli.main())
"""


def test_only_the_owner_can_read_the_state_directory(state):
    with Server(state) as server, server.client() as http:
        http.post("/sessions", json={"id": "s"})
        ask(http, "milk", "a")
        assert os.stat(state).st_mode & 0o077 == 0  # noqa: PTH116
