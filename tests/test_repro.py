import msgspec
import pytest
from hypothesis import given, strategies as st

from chaoskit import __version__, repro
from chaoskit.faults.kill import Kill
from chaoskit.model import PersistPoint, Repro, Schedule

REPRO = Repro(
    version=__version__,
    scenario="payments",
    mutant="forgets-pending",
    seed=7,
    schedule=Schedule((Kill(PersistPoint("call.finish", 2), "before"),)),
    signature="exactly-once/doubled",
)

kills = st.builds(
    Kill,
    st.builds(PersistPoint, st.text(max_size=30), st.integers(1, 9999)),
    st.sampled_from(["before", "after"]),
)


@pytest.mark.requirement("C3")
@given(
    st.builds(
        Repro,
        version=st.just(__version__),
        scenario=st.text(),
        mutant=st.none() | st.text(),
        seed=st.integers(0, 2**63),
        schedule=st.builds(Schedule, st.lists(kills, max_size=4).map(tuple)),
        signature=st.text(),
        store=st.none() | st.text(),
    )
)
def test_a_token_round_trips(value):
    assert repro.decode(repro.encode(value)) == value


def test_a_token_is_one_word_without_shell_metacharacters():
    token = repro.encode(REPRO)
    assert all(character.isalnum() or character in "-_" for character in token)
    assert len(token) < 300


def test_a_token_without_a_store_means_the_default_store():
    class Before(msgspec.Struct, kw_only=True):
        version: str
        scenario: str
        mutant: str | None
        seed: int
        schedule: Schedule
        signature: str

    old = Before(**{name: getattr(REPRO, name) for name in Before.__struct_fields__})
    assert repro.decode(repro.encode(old)) == REPRO
    assert REPRO.store is None


@pytest.mark.requirement("C3")
@given(st.data())
def test_a_damaged_token_is_refused(data):
    token = repro.encode(REPRO)
    at = data.draw(st.integers(len(repro.PREFIX), len(token) - 2))
    other = data.draw(st.sampled_from("ABCxyz019-_").filter(lambda c: c != token[at]))
    with pytest.raises(repro.BadToken):
        repro.decode(token[:at] + other + token[at + 1 :])


@pytest.mark.parametrize("text", ["", "hello", "ck1-", "ck1-!!!!", "ck1-AAAA", "ck9-AAAA", "ck1-é"])
def test_text_that_is_not_a_token_is_refused(text):
    with pytest.raises(repro.BadToken):
        repro.decode(text)


def test_a_token_of_another_version_says_which_one_to_install():
    token = repro.encode(msgspec.structs.replace(REPRO, version="9.9.9"))
    with pytest.raises(repro.BadToken, match=r"chaoskit 9\.9\.9.*pip install chaoskit==9\.9\.9"):
        repro.decode(token)
