"""Twenty clients at once against a real server that is killed every second: nothing acknowledged is lost.

Method: half of the clients have a session each, half share two. Each posts requests that are noted or that
ask and wait; a client that gets a token resumes with it twice, under two names, with two different answers.
Until a request is acknowledged, its client retries it under the same id. After that, a client with its own
session only polls and continues the request, so that a loss stays visible; clients that share a session also
retry, because another client may have ended the request. The server is killed with SIGKILL one second after
it listens, and restarted; the last one runs until every request has ended. Then the files are checked: the
number of requests depends on the machine, what must hold for each does not.
"""

import json
import os
import threading
import time
from collections import Counter

import httpx2
import pytest

from reference_agent.store.event_log import read_log
from tests.agent.server import Server
from tests.agent.test_serve import free_port

pytestmark = pytest.mark.stress
SECONDS = float(os.environ.get("STORM_SECONDS", "10"))
CLIENTS = 20
OWN = 10  # of them have a session of their own
PATIENCE = 120.0  # seconds, for the last server to answer what is left
PAUSE = 0.02


class Client(threading.Thread):
    def __init__(self, number, url, over):
        super().__init__(name=f"client-{number}", daemon=True)
        self.session = f"own-{number}" if number < OWN else f"shared-{number % 2}"
        self._number = number
        self._over = over
        self._http = httpx2.Client(base_url=url, timeout=30, trust_env=False)
        self.accepted: set[str] = set()  # requests that got status 200 or 202
        self.told: dict[str, list[dict]] = {}  # by request: every final response
        self.resumed: dict[str, set[str]] = {}  # by token id: whose answer was accepted
        self.count: Counter[str] = Counter()
        self.trouble: BaseException | None = None

    def run(self):
        try:
            self._until_it_works("POST", "/sessions", {"id": self.session})
            while not self._over.is_set():
                self._see_to(f"c{self._number}-{sum(self.count[k] for k in ('note', 'ask'))}")
        except BaseException as error:  # noqa: BLE001 - for the test to raise
            self.trouble = error
        finally:
            self._http.close()

    def _see_to(self, request):
        kind = "ask" if self.count["note"] > self.count["ask"] else "note"
        self.count[kind] += 1
        said = {"content": f"{kind} {request}" if kind == "ask" else request, "request_id": request}
        self.told[request] = []
        self._accept(request, self._until_it_works("POST", self._place("messages"), said))
        while True:
            found = self._become(request, {**said, "wait": True})
            if found["state"] == "waiting":
                self._bring(request, found.get("token") or self._another_token(request))
            elif found["state"] != "running":
                break
        self._accept(request, found)
        self.told[request].append(found)

    def _become(self, request, said):
        if self.session.startswith("shared"):
            return self._until_it_works("POST", self._place("messages"), said)
        place, nothing_left = self._place(f"requests/{request}"), False
        while (found := self._again("GET", place, None)).status_code == 404:
            assert not nothing_left, f"{request} was acknowledged, and is lost"
            going = self._again("POST", self._place("continue"), None)
            nothing_left = going.status_code == 409 and "nothing_to_do" in going.text
        assert found.status_code == 200, found.text
        return found.json()

    def _accept(self, request, outcome):
        assert outcome["request_id"] == request
        self.accepted.add(request)

    def _another_token(self, request):
        """The response that contained it was lost with its server."""
        found = self._call("POST", self._place("token"), None)
        mine = found and found.status_code == 200 and found.json()["request_id"] == request
        return found.json()["token"] if mine else None

    def _bring(self, request, token):
        for name in ("first", "second") if token else ():
            body = {"token": token, "result": f"{request} {name}", "request_id": f"{request}/{name}"}
            found = self._again("POST", self._place("resume"), body)
            if found.status_code == 202:
                self.resumed.setdefault(token.partition(".")[0], set()).add(f"{request} {name}")
            else:
                code = found.json()["error"]["code"]
                assert code.startswith("token_"), code
                self.count[code] += 1

    def _place(self, what):
        return f"/sessions/{self.session}/{what}"

    def _until_it_works(self, method, path, body):
        while (found := self._again(method, path, body)).status_code == 409:
            assert found.json()["error"]["code"] == "busy", found.text
            self.count["busy"] += 1
            time.sleep(PAUSE)
        assert found.status_code < 300, found.text
        return found.json()

    def _again(self, method, path, body):
        """Repeat the request until a server responds."""
        while (found := self._call(method, path, body)) is None:
            time.sleep(PAUSE)
        return found

    def _call(self, method, path, body):
        self.count["calls"] += 1
        try:
            return self._http.request(method, path, json=body)
        except httpx2.TransportError:
            self.count["cut off"] += 1
            return None


class Judge:
    """What is on disk agrees with what the clients received."""

    def __init__(self, state, clients, http):
        self.state = state
        self.clients = clients
        self._http = http

    def sessions(self):
        return sorted({client.session for client in self.clients})

    def nothing_is_lost_and_nothing_told_changes(self):
        for client in self.clients:
            assert client.accepted == set(client.told)
            for request, told in client.told.items():
                now = self._http.get(f"/sessions/{client.session}/requests/{request}").json()
                assert len(told) == 1
                end = {key: told[0].get(key) for key in ("state", "answer", "reason")}
                assert {key: now.get(key) for key in end} == end
                if (
                    end["state"] != "answered"
                ):  # the only other end: superseded by a question of another client
                    assert (end["state"], end["reason"]) == ("cancelled", "superseded by a new message")
                    assert client.session.startswith("shared")

    def each_effect_is_there_once(self):
        wanted: dict[str, list[str]] = {session: [] for session in self.sessions()}
        for client in self.clients:
            for request, (told,) in client.told.items():
                if told["state"] == "answered" and not told["answer"].startswith("They say"):
                    wanted[client.session].append(request)
        for session, requests in wanted.items():
            lines = (self.state / f"{session}.scratch" / "notes.txt").read_text().splitlines()
            noted = [json.loads(line.partition("\t")[2]) for line in lines]
            assert Counter(noted) == Counter(requests)

    def tokens_are_used_once(self):
        """The log and the clients agree on who resumed, and the answer is the accepted one."""
        taken = {}
        for session in self.sessions():
            for event in read_log(self.state / f"{session}.messages.jsonl"):
                if event["kind"] == "token.consumed":
                    assert event["token_id"] not in taken
                    taken[event["token_id"]] = event["result"]
        assert len(set(taken.values())) == len(taken)  # each question, too
        answers = [
            t["answer"]
            for client in self.clients
            for (t,) in client.told.values()
            if t["state"] == "answered"
        ]
        said = [each.removeprefix("They say: ") for each in answers if each.startswith("They say")]
        assert set(said) <= set(taken.values())
        for client in self.clients:
            for token_id, whose in client.resumed.items():
                assert whose == {taken[token_id]}
        return len(taken)

    def logs_are_clean(self):
        """Each run has one end, which may follow one interruption; reading the logs finds any damage."""
        ends = ("run.completed", "run.failed", "run.cancelled")
        interrupted = 0
        for session in self.sessions():
            log = read_log(self.state / f"{session}.messages.jsonl")
            runs = [event["run_id"] for event in log if event["kind"] == "run.started"]
            assert len(runs) == len(set(runs))
            ended = Counter(event["run_id"] for event in log if event["kind"] in ends)
            cut = Counter(event["run_id"] for event in log if event["kind"] == "run.interrupted")
            assert (ended | cut) == Counter(runs)
            interrupted += cut.total()
        return interrupted


def enough(clients):
    """Whether every client had an answer, and some tokens were used and refused."""
    count = sum((client.count for client in clients), Counter())
    return all(client.told for client in clients) and count["token_consumed"] >= 5


@pytest.mark.requirement("O3", "O5", "O7")
@pytest.mark.parametrize("store", ["sqlite", "files"])
def test_nothing_acknowledged_is_lost_in_a_storm(tmp_path, store):
    state, lines, port, over = (tmp_path / "state", tmp_path / "lines", free_port(), threading.Event())
    clients = [Client(n, f"http://127.0.0.1:{port}", over) for n in range(CLIENTS)]

    def start():
        return Server(state, "--store", store, "--log", str(lines), port=port)

    end, kills = time.monotonic() + SECONDS, 0
    server = start()
    try:
        for client in clients:
            client.start()
        # A busy machine takes longer: the storm ends when enough has happened.
        while time.monotonic() < end or (not enough(clients) and time.monotonic() < end + PATIENCE):
            time.sleep(1)
            server.kill()
            kills += 1
            server = start()
        over.set()
        patience = time.monotonic() + PATIENCE
        for client in clients:
            client.join(max(0.0, patience - time.monotonic()))
            assert not client.is_alive(), f"{client.name} has no answer after {PATIENCE} s"
            if client.trouble:
                raise client.trouble
        with server.client() as http:
            judge = Judge(state, clients, http)
            judge.nothing_is_lost_and_nothing_told_changes()
        assert server.end() == 143
    finally:
        over.set()
        if server.process.returncode is None:
            server.kill()
    judge.each_effect_is_there_once()
    tokens = judge.tokens_are_used_once()
    interrupted = judge.logs_are_clean()
    assert server.errors.read_text() == ""
    events = Counter(
        json.loads(line)["event"] for line in lines.read_text().splitlines() if line.endswith("}")
    )  # a kill may cut its last line
    assert not {"run.broken", "http.failed", "sweep.failed", "persist.failed"} & set(events)
    count = sum((client.count for client in clients), Counter())
    ends = Counter(t["state"] for client in clients for (t,) in client.told.values())
    numbers = {"seconds": SECONDS, "kills": kills, "interrupted": interrupted, "tokens": tokens}
    print(f"\n{store}: {numbers | dict(ends) | dict(count)}")
    # No vacuous pass: enough was done, cut off, interrupted and refused.
    assert kills >= 2
    assert ends["answered"] >= CLIENTS
    assert tokens >= 5
    assert interrupted >= 1
    assert count["cut off"] >= CLIENTS
    assert count["token_consumed"] >= 5
