import pytest

from chaoskit.model import Doubt, History, Invariant, NothingToJudge, Run, Schedule, Verdict, Violation
from chaoskit.search.oracle import judge


def invariant(name, check):
    return Invariant(name=name, summary="", check=check)


def nothing_to_judge(_):
    raise NothingToJudge


MISSED = Doubt("missed-fault", "kill before write#1")
HOLDS = invariant("holds", lambda _: [])
BROKEN = invariant("broken", lambda _: [Violation("kind", "what happened")])
SILENT = invariant("silent", nothing_to_judge)
CRASHING = invariant("crashing", lambda _: 1 / 0)


def run(*doubts):
    return Run(schedule=Schedule(), history=History(()), traces=(), fired=0, doubts=doubts)


@pytest.mark.requirement("C2")
@pytest.mark.parametrize(
    ("invariants", "doubts", "verdict"),
    [
        ([HOLDS], [], Verdict.HOLDS),
        ([HOLDS, SILENT], [], Verdict.HOLDS),
        ([HOLDS, BROKEN], [], Verdict.VIOLATED),
        ([HOLDS], [MISSED], Verdict.UNKNOWN),
        ([BROKEN], [MISSED], Verdict.VIOLATED),
        ([HOLDS, CRASHING], [], Verdict.UNKNOWN),
        ([SILENT], [], Verdict.UNKNOWN),
        ([], [], Verdict.UNKNOWN),
    ],
)
def test_the_verdict_of_a_run(invariants, doubts, verdict):
    judgement = judge(run(*doubts), invariants)
    assert judgement.verdict is verdict
    if verdict is Verdict.UNKNOWN:
        assert judgement.doubts, "an UNKNOWN always has its reason"


def test_a_generator_that_has_nothing_to_judge_is_not_measured():
    def check(_):
        raise NothingToJudge
        yield

    assert judge(run(), [invariant("lazy", check)]).claims == {"lazy": Verdict.NOT_MEASURED}


def test_a_crashing_invariant_is_named_with_its_error():
    (doubt,) = judge(run(), [HOLDS, CRASHING]).doubts
    assert str(doubt) == "invariant crashing crashed: ZeroDivisionError: division by zero"
