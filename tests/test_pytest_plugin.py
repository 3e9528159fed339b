"""The plugin in a user's project."""

import json

import pytest

from tests.conftest import TARGETS

HOLDING = f"""
import pytest

@pytest.mark.stress
@pytest.mark.parametrize("number", range(4))
def test_holds(chaos, number):
    chaos.run({f"{TARGETS}:COUNTING"!r}, plan="sample", runs=3).assert_holds()
"""

FAILING = f"""
def test_fails(chaos):
    chaos.run({f"{TARGETS}:FAILING"!r}).assert_holds()
"""


CHOOSING = f"""
def test_chooses(chaos):
    chaos.run({f"{TARGETS}:CHOOSING"!r}, store="stone").assert_holds()
    chaos.run({f"{TARGETS}:CHOOSING"!r}, store="paper").assert_violates("recovers")
"""


@pytest.fixture
def project(pytester):
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider -m 'not stress'")
    return pytester


def reports(project, *args):
    result = project.runpytest_subprocess(
        "-m", "stress", "--chaos-seed", "7", "--chaos-report", "r.jsonl", *args
    )
    result.assert_outcomes(passed=4)
    lines = (project.path / "r.jsonl").read_text().splitlines()
    return {data["test"]: data["seed"] for data in map(json.loads, lines)}


@pytest.mark.requirement("C5")
def test_stress_tests_run_only_when_asked_for(project):
    project.makepyfile(HOLDING)
    project.runpytest_subprocess().assert_outcomes(deselected=4)
    project.runpytest_subprocess("-m", "stress").assert_outcomes(passed=4)


@pytest.mark.requirement("C5")
def test_a_case_depends_on_the_seed_and_its_id_only_also_under_xdist(project):
    project.makepyfile(HOLDING)
    alone = reports(project)
    assert len(set(alone.values())) == 4
    assert reports(project, "-n", "2") == alone
    assert reports(project, "-k", "3 or 1 or 2 or 0") == alone


def test_the_seed_is_in_the_header(project):
    project.makepyfile(HOLDING)
    result = project.runpytest_subprocess("--chaos-seed", "42")
    result.stdout.fnmatch_lines(["chaoskit: --chaos-seed=42"])


@pytest.mark.requirement("O1")
def test_a_test_can_choose_the_store(project):
    project.makepyfile(CHOOSING)
    project.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.requirement("C3")
def test_a_failing_test_ends_with_the_line_to_paste(project):
    project.makepyfile(FAILING)
    result = project.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["expected HOLDS, got VIOLATED", "recovers/failed: *", "reproduce: chaoskit replay ck1-*"]
    )


def test_an_expected_violation_that_is_not_found_fails(project):
    project.makepyfile(
        f"def test_it(chaos): chaos.run({f'{TARGETS}:COUNTING'!r}).assert_violates('recovers')"
    )
    result = project.runpytest_subprocess()
    result.stdout.fnmatch_lines(["*expected a violation of recovers, found nothing (HOLDS)*"])


def test_the_plugin_imports_nothing_of_the_engine_until_it_is_used(project):
    project.makepyfile(
        "import sys\n"
        "def test_it(): assert not {'chaoskit.search.campaign', 'msgspec', 'rich'} & set(sys.modules)"
    )
    project.runpytest_subprocess("-p", "no:randomly").assert_outcomes(passed=1)
