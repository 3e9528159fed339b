import itertools

import pytest

from chaoskit.faults.kill import Kill
from chaoskit.model import PersistPoint, Schedule, Verdict

V = Verdict


@pytest.mark.requirement("C2")
@pytest.mark.parametrize(
    ("verdicts", "merged"),
    [
        ([], V.NOT_MEASURED),
        ([V.HOLDS], V.HOLDS),
        ([V.NOT_MEASURED, V.HOLDS], V.HOLDS),
        ([V.HOLDS, V.UNKNOWN], V.UNKNOWN),
        ([V.HOLDS, V.UNKNOWN, V.VIOLATED], V.VIOLATED),
    ],
)
def test_verdicts_merge_to_the_worst_and_no_verdict_is_not_a_pass(verdicts, merged):
    for order in itertools.permutations(verdicts):
        assert V.merge(order) is merged


def test_a_schedule_reads_as_a_sentence():
    kill = Kill(PersistPoint("log.append", 3), "before")
    assert str(Schedule((kill, kill))) == ("kill before log.append#3, then kill before log.append#3")
    assert str(Schedule()) == "no fault"
