"""A crash before and after every persist point of each operation with several writes; then a repeat.

However often and wherever it crashes, the log ends with the same kinds of events as without a crash.
"""

from contextlib import suppress
from itertools import count

import pytest

from reference_agent.sessions.snapshot import SessionSnapshot, fold_all
from reference_agent.sessions.token_index import fold_all_tokens
from reference_agent.sessions.tokens import TokenRefused
from tests.agent.sessions.helpers import TORN, Death, Home, dying_at, id_of, kinds

TEARS = [False, True]


def waiting(home, deadline=600.0):
    """A session whose run is waiting; the text of its token."""
    with home.open() as record:
        home.start(record)
        text = home.wait(record, deadline=deadline)
        record.save()
    return text


def crashes(tmp_path, act, *, torn, deadline=600.0):
    """For each point that `act` passes: a home in which it crashed there."""
    for deadly in count(1):
        home = Home(tmp_path / f"{deadly}")
        text = waiting(home, deadline)
        with dying_at(deadly) as points:
            try:
                act(home, text)
            except Death:
                pass
            else:
                assert deadly > 4, "hardly anything was crashed"
                assert len(points.passed) == deadly - 1  # each earlier point was reached and crashed
                return
        if torn:
            with home.log().open("ab") as file:
                file.write(TORN)
        yield home, text, points.passed[-1]


def whole(tmp_path, act, deadline=600.0):
    """The kinds of events after a life without a crash."""
    home = Home(tmp_path / "whole")
    act(home, waiting(home, deadline))
    return final(home)


def final(home):
    """The kinds of events in the log; also checks that the caches agree with it."""
    with home.open(create=None) as record:
        assert record.snapshot == fold_all(SessionSnapshot("s"), record.events)
        assert record.tokens == fold_all_tokens({}, record.events)
        audit = [(event["kind"], event["token_id"]) for event in record.events if "token_id" in event]
        assert len(audit) == len(set(audit)), "a transition twice"
        return kinds(record)


def sweep_after_restart(home, _text):
    home.manager("boot_2").boot(home.path)


def sweep_after_deadline(home, _text):
    home.now += 1000
    with home.open(create=None) as record:
        home.manager("boot_1").periodic(record)
    home.now -= 1000


def consume(home, text):
    with home.open(create=None) as record:
        answer = home.service(record).consume(text, "q2", {"n": 1})
        record.save()
    assert answer.result == {"n": 1}


@pytest.mark.requirement("O3", "O4", "O5")
@pytest.mark.parametrize("torn", TEARS)
@pytest.mark.parametrize("act", [sweep_after_restart, sweep_after_deadline, consume])
def test_after_a_crash_at_any_point_a_repeat_writes_only_what_is_missing(tmp_path, act, torn):
    wanted = whole(tmp_path, act)
    for home, text, point in crashes(tmp_path, act, torn=torn):
        for _ in range(2):
            act(home, text)
            assert final(home) == wanted, point


@pytest.mark.requirement("O3", "O4")
@pytest.mark.parametrize("act", [sweep_after_restart, sweep_after_deadline])
def test_a_recovery_that_crashes_repeatedly_reaches_the_same_end(tmp_path, act):
    wanted = whole(tmp_path, act)
    for first in range(1, 4):
        home = Home(tmp_path / f"again-{first}")
        text = waiting(home)
        for deadly in [first, *[2] * 20]:  # 2: each life writes once and dies
            with dying_at(deadly):
                try:
                    act(home, text)
                except Death:
                    continue
                break
        assert final(home) == wanted


@pytest.mark.requirement("O4", "O5")
@pytest.mark.parametrize("torn", TEARS)
@pytest.mark.parametrize("sweep", [sweep_after_restart, sweep_after_deadline])
def test_an_interrupted_consume_is_completed_by_a_sweep_or_a_retry(tmp_path, torn, sweep):
    for home, text, point in crashes(tmp_path, consume, torn=torn):
        sweep(home, text)
        with home.open(create=None) as record:
            consumed = record.tokens[id_of(text)].state == "consumed"
            found = kinds(record)
            assert found.count("run.resumed") == consumed, point
            assert found.count("run.interrupted") == (not consumed or sweep is sweep_after_restart)
            service = home.service(record)
            if consumed:  # the request is answered whatever happened to the run
                answer = service.consume(text, "q2", {"n": 2})
                assert (answer.result, answer.first) == ({"n": 1}, False)
                assert record.snapshot.run.wait is None
            else:
                with pytest.raises(TokenRefused) as caught:
                    service.consume(text, "q2", {"n": 1})
                assert caught.value.code == "revoked"
            assert kinds(record) == found, point
        final(home)


@pytest.mark.requirement("O5")
@pytest.mark.parametrize("torn", TEARS)
def test_an_interrupted_rotation_is_completed_by_a_retry(tmp_path, torn):
    answers = []

    def rotate(home, text):
        with home.open(create=None) as record:
            answers.append(home.service(record).rotate(id_of(text)))
            record.save()

    wanted = whole(tmp_path, rotate)
    again = wanted + wanted[-3:]
    for home, text, point in crashes(tmp_path, rotate, torn=torn):
        with home.open(create=None) as record:
            # All was durable, but the response, with the only copy of the secret, may have been lost.
            complete = kinds(record) == wanted
            assert len(record.tokens) == 1 + complete
        rotate(home, text)
        assert final(home) == (again if complete else wanted), point
        with home.open(create=None) as record:
            active = [token for token in record.tokens.values() if token.state == "active"]
            assert [token.token_id for token in active] == [id_of(answers[-1])]
            assert record.snapshot.run.wait.resume_token_id == id_of(answers[-1])
            assert home.service(record).consume(answers[-1], "q2", 1).first


@pytest.mark.requirement("O4", "O5")
def test_an_interrupted_rotation_leaves_nothing_that_a_sweep_cannot_settle(tmp_path):
    def rotate(home, text):
        with home.open(create=None) as record:
            home.service(record).rotate(id_of(text))
            record.save()

    for home, text, point in crashes(tmp_path, rotate, torn=False):
        sweep_after_restart(home, text)
        found = final(home)
        assert found.count("run.interrupted") == 1, point
        with home.open(create=None) as record:
            assert {token.state for token in record.tokens.values()} == {"revoked"}
        sweep_after_restart(home, text)
        assert final(home) == found


@pytest.mark.requirement("O1")
@pytest.mark.parametrize("torn", TEARS)
def test_a_session_is_created_once_even_if_creation_crashes(tmp_path, torn):
    for deadly in count(1):
        home = Home(tmp_path / f"new-{torn}-{deadly}")
        with dying_at(deadly) as points, suppress(Death), home.open() as record:
            record.save()
        if torn and home.log().exists():
            with home.log().open("ab") as file:
                file.write(TORN)
        home.manager().boot(home.path)  # may find a session that was never created
        with home.open() as record:
            assert [kind for kind in kinds(record) if kind == "session.created"] == ["session.created"]
            assert record.snapshot.title == "Fix"
        if len(points.passed) < deadly:
            break
    assert deadly == 1 + 2 * 2


@pytest.mark.requirement("O1")
def test_setting_an_untrusted_snapshot_aside_may_crash_at_any_point(tmp_path):
    for deadly in count(1):
        home = Home(tmp_path / f"aside-{deadly}")
        waiting(home)
        with home.open() as record:
            wanted = record.snapshot, record.tokens
        home.snapshot().write_bytes(b"damaged")
        with dying_at(deadly) as points, suppress(Death):
            home.open().close()
        with home.open() as record:
            assert (record.snapshot, record.tokens) == wanted
        assert (home.path / "s.json.set-aside").read_bytes() == b"damaged"
        if len(points.passed) < deadly:
            break
    assert deadly == 1 + 2 * 2
