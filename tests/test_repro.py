import msgspec
import pytest
from hypothesis import given, strategies as st

from chaoskit import __version__, registry, repro
from chaoskit.faults.kill import Kill
from chaoskit.model import Finding, PersistPoint, Repro, Schedule
from chaoskit.search.origin import changes, origin_of
from chaoskit.search.result import Partial, Witness, with_tokens
from chaoskit.settings import Settings, settings_of

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


# Whether a field decides the verdict of one run. A new one has to be put into one of the three.
DECIDES = {"scenario", "seed", "agents", "store", "mutant", "cold", "deadline", "points"}
HOW_MUCH_IS_TRIED = {
    "faults",
    "profile",  # each fault has its own
    "plan",
    "bias",
    "runs",
    "until_violation",
    "depth",
    "accept_incomplete",
    "seconds",
    "jobs",
    "shard",
    "keep",
}


OF_THE_SCENARIO = {"generated"}  # filled in by resolve
SECRET = {"pass_env"}  # a token must not choose what a target may see: replay has the option, too


def test_everything_that_decides_a_verdict_is_in_the_token():
    assert set(Settings.__struct_fields__) == DECIDES | HOW_MUCH_IS_TRIED | OF_THE_SCENARIO | SECRET
    settings = Settings(
        scenario="tree",
        seed=5,
        agents=9,
        store="files",
        mutant="m",
        cold=True,
        deadline=2.5,
        points="syscalls",
    )
    for schedule in (Schedule(()), Schedule((Kill(PersistPoint("write f", 1, op=3), "before"),))):
        again = settings_of(repro.decode(token_for(settings, schedule)))
        assert {name: getattr(again, name) for name in DECIDES} == {
            name: getattr(settings, name) for name in DECIDES
        }
    named = msgspec.structs.replace(settings, points="named")
    assert settings_of(repro.decode(token_for(named, REPRO.schedule))).points == "named"


def token_for(settings, schedule):
    finding = Finding(invariant="i", kind="k", message="m")
    witness = Witness(
        finding=finding, tier="process", schedule=schedule, kept=None, order=(1,), seed=settings.seed
    )
    (made,) = with_tokens(Partial(witnesses={"w": witness}), settings).witnesses.values()
    return made.token


def test_a_target_s_token_says_which_adapter_and_which_versions_it_was_made_with(tmp_path):
    adapter = tmp_path / "store.py"
    adapter.write_text(
        '# /// script\n# dependencies = ["msgspec"]\n# ///\n'
        "class Store:\n"
        + "".join(f"    def {m}(self, *args): ...\n" for m in ("open", "close", "save", "load"))
    )
    settings = Settings(scenario=f"target:{adapter}:Store#zombie")
    made = repro.decode(token_for(settings, REPRO.schedule))
    assert made.versions == {"msgspec": msgspec.__version__}
    assert list(changes(made, origin_of(settings.scenario))) == []
    other = msgspec.structs.replace(made, adapter="0", versions={"msgspec": "0.1", "gone": "2"})
    file, version, gone = changes(other, origin_of(settings.scenario))
    assert "the adapter's file has changed" in file
    assert version == f"msgspec was 0.1 when this token was made, and is {msgspec.__version__} now"
    assert gone == "gone was 2 when this token was made, and is not required now"
    assert list(changes(REPRO, origin_of("payments"))) == []  # made before tokens said it


@pytest.mark.parametrize(
    ("name", "reference", "instead", "variant"),
    [
        ("langgraph-sqlite", "langgraph-sqlite", (), ""),
        ("langgraph-sqlite#zombie", "langgraph-sqlite", (), "zombie"),
        ("langgraph-sqlite@a==1,b>2#race", "langgraph-sqlite", ("a==1", "b>2"), "race"),
        ("my.module:Store@a==1", "my.module:Store", ("a==1",), ""),
        ("/x#1/y@2/store.py:Store", "/x#1/y@2/store.py:Store", (), ""),
        (
            "/x#1/y@2/store.py:Store@a @ https://h/a.zip#egg=a#fork",
            "/x#1/y@2/store.py:Store",
            ("a @ https://h/a.zip#egg=a",),
            "fork",
        ),
    ],
)
def test_the_parts_of_a_target(name, reference, instead, variant):
    asked = registry.parse_target(name)
    assert (asked.reference, asked.instead, asked.variant) == (reference, instead, variant)
