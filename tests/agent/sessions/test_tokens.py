"""Resume tokens: who may resume, only once, and what is stored."""

import hmac
import logging

import pytest
from hypothesis import given, settings, strategies as st

from reference_agent.logs.structured import written_to
from reference_agent.sessions.refusals import find, hashed
from reference_agent.sessions.tokens import TokenRefused, TokenService
from tests.agent.sessions.helpers import Home, id_of, kinds


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "sessions")


@pytest.fixture
def record(home):
    with home.open() as record:
        home.start(record)
        yield record


@pytest.fixture
def service(home, record):
    return home.service(record)


def refused(code, call, *args, **options):
    with pytest.raises(TokenRefused) as caught:
        call(*args, **options)
    assert caught.value.code == code
    return str(caught.value)


def other_secret(text):
    return text[:-1] + ("a" if text[-1] != "a" else "b")


@pytest.mark.requirement("O5")
def test_a_token_is_minted_persisted_validated_and_consumed(home, record, service):
    text = home.wait(record)
    token = service.validate(text, "run_1", "approval")
    assert (token.session_id, token.run_id, token.wait_kind, token.call_id) == (
        "s",
        "run_1",
        "approval",
        "call_1",
    )
    assert token.hash == hashed(text.partition(".")[2])
    consumed = service.consume(text, "q2", {"approved": True})
    assert (consumed.result, consumed.first, consumed.token.state) == ({"approved": True}, True, "consumed")
    assert record.snapshot.run.wait is None
    assert kinds(record)[2:] == ["token.minted", "run.waiting", "token.consumed", "run.resumed"]


@pytest.mark.requirement("O5")
def test_the_same_request_always_gets_the_same_answer(home, record, service):
    text = home.wait(record, ttl=60)
    first = service.consume(text, "q2", ("a", 1))
    assert first.result == ["a", 1]  # as read from the log
    length = len(record.events)
    home.now += 1000  # it would have expired
    again = service.consume(text, "q2", "something else")
    assert (again.result, again.first, again.token) == (first.result, False, first.token)
    record.append("run.completed", run_id="run_1")
    home.start(record, "run_2")
    assert service.consume(text, "q2", None).result == ["a", 1]
    assert len(record.events) == length + 2
    record.save()
    record.close()
    with home.open() as later:
        assert home.service(later).consume(text, "q2", None).result == ["a", 1]
        refused("consumed", home.service(later).consume, text, "q3", None)


@pytest.mark.requirement("O5")
def test_each_refusal_has_its_code_and_reveals_no_secret(home, record, service):
    text = home.wait(record, ttl=60, deadline=120)
    said = [
        refused("unknown", service.validate, "rt_none." + text.partition(".")[2]),
        refused("wrong_secret", service.validate, other_secret(text)),
        refused("wrong_run", service.validate, text, "run_2"),
        refused("wrong_wait", service.validate, text, "run_1", "tool_result"),
        refused("wrong_run", service.consume, text, "q2", None, run_id="run_2"),
    ]
    home.now += 60
    said.append(refused("expired", service.validate, text))
    home.now -= 60
    service.revoke(id_of(text), "x")
    said.append(refused("revoked", service.consume, text, "q2", None))
    text = home.wait(record)
    service.consume(text, "q2", None)
    said.append(refused("consumed", service.validate, text))
    said.append(refused("consumed", service.consume, text, "q3", None))
    assert not any("secret-" in each for each in said)
    assert kinds(record).count("run.resumed") == 1


@pytest.mark.requirement("O5")
@pytest.mark.parametrize(
    "text",
    ["", ".", "a", "a.", ".b", "a.b.c", "a b.c", "a.b\n", "é.x", "a" * 101 + ".b", "a." + "b" * 201, "\0.b"],
)
def test_text_that_is_not_a_token_is_malformed(service, text):
    refused("malformed", service.validate, text)


@pytest.mark.requirement("O5")
@given(st.text(max_size=40))
@settings(max_examples=200)
def test_random_text_is_never_accepted(text):
    with pytest.raises(TokenRefused):
        find({}, "s", text)


@pytest.mark.requirement("O5")
def test_secrets_are_compared_in_constant_time_also_for_ids_that_do_not_exist(
    home, record, service, monkeypatch
):
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(
        hmac, "compare_digest", lambda a, b: (compared.append((len(a), len(b))), real(a, b))[1]
    )
    text = home.wait(record)
    service.validate(text)
    refused("wrong_secret", service.validate, other_secret(text))
    refused("unknown", service.validate, "rt_none.x")
    assert compared == [(64, 64)] * 3


@pytest.mark.requirement("O5")
def test_a_token_of_another_session_is_unknown_even_if_its_log_was_copied(home, record, service):
    text = home.wait(record)
    with home.open("t") as other:
        home.start(other)
        refused("unknown", home.service(other).validate, text)
    home.log("u").write_bytes(home.log().read_bytes())
    with home.open("u") as copied:
        refused("unknown", home.service(copied).validate, text)
    assert service.validate(text)


@pytest.mark.requirement("O5")
def test_a_token_whose_run_does_not_wait_for_it_cannot_resume_anything(home, record, service):
    early = service.mint("run_1", "approval", None, 60)  # the wait has not begun
    refused("wrong_wait", service.consume, early, "q", None)
    text = home.wait(record, deadline=10)
    refused("wrong_wait", service.consume, early, "q", None)
    home.now += 10
    refused("expired", service.consume, text, "q", None)  # the token is still valid, but the wait has expired
    home.now -= 10
    record.append("run.interrupted", run_id="run_1", reason="process_restart")
    refused("wrong_run", service.consume, text, "q", None)
    home.start(record, "run_2")
    refused("wrong_run", service.consume, text, "q", None)
    assert "token.consumed" not in kinds(record)


@pytest.mark.requirement("O5")
def test_rotating_replaces_the_token_of_the_same_wait(home, record, service):
    old = home.wait(record, ttl=60, deadline=50)
    wait = record.snapshot.run.wait
    new = service.rotate(id_of(old))
    assert new != old
    refused("revoked", service.validate, old)
    token = service.validate(new)
    before = record.tokens[id_of(old)]
    assert (token.expires_at, token.call_id, token.wait_kind) == (
        before.expires_at,
        before.call_id,
        before.wait_kind,
    )
    now = record.snapshot.run.wait
    assert now.resume_token_id == id_of(new)
    assert (now.since_seq, now.deadline_at, now.kind) == (wait.since_seq, wait.deadline_at, wait.kind)
    assert kinds(record)[4:] == ["token.revoked", "run.waiting", "token.minted"]
    # A retry for the old token, by a client that never got the response: that token is no longer valid.
    newest = service.rotate(id_of(old))
    refused("revoked", service.validate, new)
    assert service.consume(newest, "q2", 1).first
    for each in (old, new):
        refused("wrong_wait", service.rotate, id_of(each))
    refused("consumed", service.rotate, id_of(newest))
    refused("unknown", service.rotate, "rt_none")


@pytest.mark.requirement("O5")
def test_revoking_and_expiring_are_one_line_each(home, record, service):
    texts = [home.wait(record, ttl=60) for _ in range(3)]
    service.revoke(id_of(texts[0]), "x")
    service.revoke(id_of(texts[0]), "y")
    refused("unknown", service.revoke, "rt_none", "x")
    assert service.expire_due() == []
    home.now += 60
    assert service.expire_due() == [id_of(texts[1]), id_of(texts[2])]
    assert service.expire_due() == []
    service.revoke(id_of(texts[1]), "too late")
    audit = [(event["kind"], event["token_id"]) for event in record.events if "token." in event["kind"]]
    assert len(audit) == len(set(audit)) == 3 + 1 + 2
    assert record.tokens[id_of(texts[0])].reason == "x"


@pytest.mark.requirement("O5")
def test_the_secret_is_stored_nowhere(home, record, capfd, caplog, tmp_path):
    caplog.set_level(logging.DEBUG)
    lines = tmp_path / "lines"
    with lines.open("w") as stream, written_to(stream, level="debug"):
        service = TokenService(record, home.clock)
        first = service.mint("run_1", "approval", None, 60)
        record.append("run.waiting", run_id="run_1", wait_kind="approval", resume_token_id=id_of(first))
        texts = [first, service.rotate(id_of(first))]
        consumed = service.consume(texts[1], "q", {"ok": True})
        reprs = [repr(consumed), repr(record.tokens), repr(record.snapshot), repr(service), repr(record)]
        reprs += [refused("revoked", service.validate, texts[0])]
        reprs += [refused("wrong_secret", service.validate, texts[1] + "x")]
        record.save()
        home.manager("boot_2").sweep(record)
    written = [path.read_bytes() for path in (*home.path.iterdir(), lines) if path.is_file()]
    assert len(written) >= 4
    everything = b"\n".join(written).decode() + "\n".join(reprs) + caplog.text + "".join(capfd.readouterr())
    for text in texts:
        secret = text.partition(".")[2]
        assert len(secret) == 43  # 256 bits
        assert secret not in everything
        assert hashed(secret) in everything  # and the search covers the right files
