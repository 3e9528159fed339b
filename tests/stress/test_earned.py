"""HOLDS is earned, and nobody sound is accused: one small store for each rule, broken or sound."""

from pathlib import Path

import pytest

from chaoskit.certify.certification import certify, settings_for
from chaoskit.search.rig import CannotTest, NotSeen

pytestmark = [pytest.mark.stress, pytest.mark.requirement("C4")]
STORES = Path(__file__).parent.parent / "targets" / "earned.py"


def examined(name, *tiers, **options):
    return certify(
        settings_for(f"{STORES}:{name}", **{"runs": 200, "pass_env": ("ELSEWHERE",), **options}), tiers
    )


def signatures(certificate):
    return {f"{f.claim}/{f.kind}" for f in certificate.broken}


@pytest.mark.parametrize(
    ("name", "tiers", "found"),
    [
        ("OutOfMemory", ["process"], "durable/lost"),  # acknowledged after a crash, read by a new process
        ("Glued", ["torn"], "durable/lost"),
        ("Exits", ["process"], "continues/refused"),
        ("ClosesBadly", ["process"], "continues/refused"),
        ("Aborts", ["process"], "loadable/closed"),
        ("Repeats", ["process"], "idempotent/doubled"),  # the acknowledgement may be lost, too
        ("HalfDeleted", ["process"], "atomic/half-deleted"),
        ("Spoils", ["zombie"], "fenced/unreadable"),
        ("MovesUnsynced", ["power-ext4"], "durable/unreadable"),  # power loss in a recovery
        ("Compacts", ["process"], "durable/lost"),  # in the 64th save
        ("ForgetsUnlessRead", ["process"], "durable/lost"),  # a save before the first load
        ("LosesItems", ["process", "torn"], "durable/unreadable"),  # an adapter with all four methods
    ],
)
def test_a_broken_store_breaks_its_promise(name, tiers, found):
    certificate = examined(name, *tiers)
    assert (certificate.verdict.value, found in signatures(certificate)) == ("VIOLATED", True), (
        certificate.headline(),
        signatures(certificate),
    )


def test_what_a_hung_life_had_reported_is_not_lost_with_it():
    assert signatures(examined("Hangs", "process")) == {"continues/refused"}


@pytest.mark.parametrize(
    "name",
    [
        "Sound",
        "PathCache",
        "NewestTime",
        "MovesSynced",
        "SetsAside",
        "RenameLast",
        "AllFour",
        "Locks",
        "TimeNamedSeeded",
    ],
)
def test_a_sound_store_is_cleared(name):
    certificate = examined(name, "process", "torn", "power-ext4", "first-start", "zombie")
    assert certificate.verdict.value == "HOLDS", (certificate.headline(), certificate.reasons())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ForgetsOnRestart", "durable/lost without any crash, after a clean restart"),
        ("CannotLoad", "without any crash.*KeyError"),
        ("CannotOpen", "open failed without any fault: OSError: no such service"),
        ("CleansOnce", "durable/lost without any crash, after a clean restart"),
        ("DeletesNothing", "durable/returned without any crash, after a clean restart"),
        ("HashNamed", "durable/lost without any crash, after a clean restart"),
        ("AbsolutePaths", "durable/lost without any crash, after a clean restart.*with its directory moved"),
        ("SameName", "durable/lost without any crash, after a clean restart.*: session a_b"),
        ("PrefixScan", "isolated/foreign without any crash|durable/lost without any crash"),
    ],
)
def test_a_store_that_fails_without_a_crash_cannot_be_tested(name, reason):
    with pytest.raises(CannotTest, match=reason):
        examined(name, "process")


def test_a_store_that_writes_elsewhere_is_not_certified(tmp_path, monkeypatch):
    monkeypatch.setenv("ELSEWHERE", str(tmp_path))
    with pytest.raises(NotSeen, match=f"no operation on the directory was seen: it opened {tmp_path}"):
        examined("Elsewhere", "process")


def test_what_cannot_be_rebuilt_makes_the_verdict_unknown():
    with pytest.raises(NotSeen, match="an extended attribute was changed; it cannot be rebuilt"):
        examined("Attributes", "process")


def test_a_first_start_ends_with_the_first_acknowledgement():
    certificate = examined("Sound", "first-start", "process")
    assert certificate.coverage["first-start"].states >= 5


def test_a_certificate_that_runs_out_of_time_is_unknown_unless_that_is_accepted():
    short = examined("Sound", "process", seconds=0.01)
    assert short.verdict.value == "UNKNOWN"
    assert any("time ran out" in reason for reason in short.reasons())
    part = short.coverage["process"]
    assert part.states < part.possible


def test_a_time_limit_is_kept_although_every_life_hangs():
    certificate = examined("HangsForLong", "process", seconds=4)  # a life may take 60 s
    assert certificate.seconds < 30
    assert certificate.verdict.value == "UNKNOWN"


def test_an_adapter_with_all_four_methods_is_changed_and_read_in_both_ways():
    certificate = examined("AllFour", "process")
    assert certificate.claims["prefix"]["process"].value == "HOLDS"
    assert certificate.settings == {"where": "./x", "kind": "files"}


def test_a_sweep_that_runs_out_of_time_is_unknown(chaos):
    cut = chaos.run("payments", seconds=0.5)
    assert cut.verdict == "UNKNOWN"
    assert any("the sweep is incomplete" in str(doubt) for doubt in cut.result.doubts)
    accepted = chaos.run("payments", seconds=4, accept_incomplete=True)  # enough to reach every invariant
    assert not any("the sweep is incomplete" in str(doubt) for doubt in accepted.result.doubts)


def test_two_runs_that_differ_by_the_clock_are_told_so_and_how_to_seed_it():
    with pytest.raises(CannotTest, match=r'create ab~\d{10}\..*a wall clock.*`clock = "seeded"`'):
        examined("TimeNamed", "process")


def test_a_life_that_is_too_slow_names_the_deadline():
    with pytest.raises(CannotTest, match=r"did not finish in 0.5 s, its deadline.*`deadline = 120`"):
        examined("Sleeps", "process")
