"""The HTTP interface, fuzzed with a real server: any body and any session name gets an answer, and no 5xx."""

import json
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.agent.server import Server

pytestmark = pytest.mark.requirement("O7")
fuzzed = settings(
    max_examples=150, derandomize=True, deadline=5000, suppress_health_check=[HealthCheck.too_slow]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=50)
anything = st.recursive(
    scalars, lambda more: st.lists(more) | st.dictionaries(st.text(), more), max_leaves=10
)
fields = st.dictionaries(
    st.sampled_from(["id", "text", "request_id", "token", "result", "reason", "deadline"]), anything
)
bodies = st.one_of(
    st.binary(max_size=200),
    anything.map(lambda value: json.dumps(value).encode()),
    fields.map(lambda value: json.dumps(value).encode()),
    st.integers(1, 3000).map(lambda depth: b"[" * depth),
)
places = st.sampled_from(["messages", "resume", "token", "continue", "cancel", "nothing"])


@pytest.fixture(scope="module")
def http(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("fuzzed") / "state") as server, server.client() as http:
        http.post("/sessions", json={"id": "s"})
        yield http


def is_an_answer(reply):
    assert reply.status_code < 500, reply.text
    assert reply.status_code < 400 or set(reply.json()["error"]) >= {"code", "message"}
    assert "Traceback" not in reply.text


@fuzzed
@given(bodies)
def test_any_body_that_should_create_a_session(http, body):
    is_an_answer(http.post("/sessions", content=body))


@fuzzed
@given(st.just("s") | st.text(max_size=20), places, bodies)
def test_any_body_to_any_place(http, name, place, body):
    is_an_answer(http.post(f"/sessions/{quote(name, safe='')}/{place}", content=body))


def test_it_still_works_afterwards(http):
    assert http.get("/sessions").status_code == 200
