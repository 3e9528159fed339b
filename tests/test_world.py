import pytest

from chaoskit.model import Service
from chaoskit.run.world import Call, Refused, World


def call(life, service, action="pay", key="k", at=0, **args):
    return Call(life, at, service, action, args, key)


@pytest.fixture
def world():
    return World(
        [
            Service(name="plain"),
            Service(name="keyed", honours_keys=True),
            Service(name="open", verifiable=True),
        ]
    )


def test_every_act_is_a_line_of_the_ledger(world):
    world.act(call(0, "plain", euro=5))
    world.act(call(1, "plain", euro=5))
    assert [(e.life, e.args, e.applied) for e in world.ledger] == [
        (0, {"euro": 5}, True),
        (1, {"euro": 5}, True),
    ]


def test_a_service_that_honours_keys_does_the_same_act_once_and_answers_the_same(world):
    first = world.act(call(0, "keyed", euro=5))
    assert world.act(call(1, "keyed", euro=5)) == first
    assert [e.applied for e in world.ledger] == [True, False]


def test_another_key_or_no_key_is_another_act(world):
    for key in ("a", "b", None, None):
        world.act(call(0, "keyed", key=key))
    assert [e.applied for e in world.ledger] == [True] * 4


def test_a_verifiable_service_says_whether_it_happened(world):
    assert world.act(call(0, "open", "happened")) is None
    answer = world.act(call(0, "open", euro=5))
    assert world.act(call(0, "open", "happened")) == answer
    assert len(world.ledger) == 1, "asking is no effect"


def test_other_services_cannot_be_asked_whether_it_happened(world):
    with pytest.raises(Refused, match="cannot report"):
        world.act(call(0, "plain", "happened"))


def test_an_unknown_service_is_refused_by_name(world):
    with pytest.raises(Refused, match=r"no service 'bank'.*keyed, open, plain"):
        world.act(call(0, "bank"))
    assert world.ledger == []


def test_a_query_is_counted_and_is_not_an_effect(world):
    asked = [world.act(call(life, "plain", "ask", turn=1))["times"] for life in (0, 1)]
    assert asked == [1, 2]
    assert world.act(call(1, "plain", "ask", turn=2)) == {"times": 1}
    assert not any(effect.applied for effect in world.ledger)


def test_what_a_client_remembers_survives_the_target_and_is_not_an_effect(world):
    assert world.act(call(0, "plain", "recall", key="last")) is None
    for life, number in ((0, 1), (1, 2)):
        world.act(call(life, "plain", "remember", key="last", id=number))
    assert world.act(call(2, "plain", "recall", key="last")) == {"id": 2}
    assert world.act(call(2, "plain", "recall", key="other")) is None
    assert world.act(call(2, "open", "recall", key="last")) is None
    assert not any(effect.applied for effect in world.ledger)
