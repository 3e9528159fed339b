"""Workloads from a seed: deterministic, varied, with values that break programs, and cheap to draw."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from chaoskit import registry
from chaoskit.search.campaign import run_campaign
from chaoskit.settings import Settings
from chaoskit.strategies import (
    drawn,
    json_values,
    names,
    operation,
    programs,
    request_ids,
    session_ids,
    texts,
)
from chaoskit.wrong_use import WrongUse
from tests.conftest import TARGETS

OPERATIONS = (operation("save", note=names(), text=texts(), tag="x"), operation("delete", note=names()))
DRAW = """
import sys
from chaoskit.strategies import drawn, json_values, programs, operation, texts
import json
if sys.argv[1:]:
    import chaoskit.cli.main
from hypothesis import strategies as st
wide = st.lists(st.integers() | st.floats() | st.text(), min_size=5)
print(json.dumps([drawn(programs(operation("do", x=json_values(huge=True), y=wide)), n) for n in range(30)]))
"""


def many(strategy, count=300):
    return [drawn(strategy, seed) for seed in range(count)]


@pytest.mark.requirement("C1")
def test_a_draw_depends_on_the_seed_only_whatever_else_the_process_has_loaded(tmp_path):
    def printed(hash_seed, *args):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", DRAW, *args]
        return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, check=True).stdout

    first = printed("0")
    assert len(set(map(json.dumps, json.loads(first)))) == 30
    assert printed("1", "more") == first


def test_a_draw_leaves_nothing_in_the_current_directory(tmp_path):
    code = "from chaoskit.strategies import *; drawn(programs(operation('x', text=texts())), 1)"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert list(tmp_path.iterdir()) == []


def test_importing_the_module_does_not_import_hypothesis():
    code = "import sys, chaoskit.strategies; sys.exit('hypothesis' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_different_seeds_give_different_programs_of_different_sizes():
    found = many(programs(*OPERATIONS, min_size=2, max_size=12))
    assert len(set(map(json.dumps, found))) > 290
    assert {len(program) for program in found} == set(range(2, 13))


def test_a_step_is_one_operation_or_several_with_delays():
    steps = [step for program in many(programs(*OPERATIONS, max_size=12), 100) for step in program]
    sizes = Counter(map(len, steps))
    assert set(sizes) == {1, 2, 3, 4}
    assert sizes[1] > sum(sizes.values()) / 2
    assert all(step[0]["after"] == 0 for step in steps if len(step) == 1)
    assert {each["after"] for step in steps for each in step} >= {0.001, 0.01, 0.05}


def test_an_operation_has_its_name_and_its_fields():
    assert {tuple(each) for each in many(OPERATIONS[0], 20)} == {("do", "note", "text", "tag")}
    assert {each["tag"] for each in many(OPERATIONS[0], 20)} == {"x"}


def test_most_texts_are_words_and_some_break_programs():
    found = many(texts(), 1500)
    assert {"", "\x00", "\u2028", "x" * 100_000} <= set(found)
    assert sum(text.replace(" ", "").isalpha() for text in found) > 1200
    assert all(text.encode() is not None for text in found)
    assert "\ud800" in many(texts(surrogates=True), 1500)


def test_json_values_are_nested_and_the_odd_numbers_are_there_on_request():
    found = json.dumps(many(json_values(), 800))
    assert "NaN" not in found.replace('"NaN"', "")
    assert {type(value) for value in many(json_values())} >= {list, dict, str, bool, type(None)}
    assert "Infinity" in json.dumps(many(json_values(non_finite=True), 800))
    assert str(2**64) in json.dumps(many(json_values(huge=True), 800))


def test_ids_repeat_and_some_look_generated():
    ids = Counter(many(request_ids(), 500))
    assert ids["r1"] > 5
    assert ids["m1.reply"] > 2
    assert Counter(many(session_ids(), 500)).most_common(1)[0][1] > 100
    assert ".." in many(session_ids(), 500)


def test_a_strategy_without_a_value_is_an_error():
    with pytest.raises(WrongUse, match="found no value for seed 3"):
        drawn(st.integers().filter(lambda _: False), 3)


def test_what_is_rejected_is_drawn_again():
    assert all(n % 7 == 0 for n in many(st.integers(0, 10_000).filter(lambda n: n % 7 == 0), 30))


@given(texts(surrogates=True), programs(*OPERATIONS))
def test_they_are_ordinary_strategies(text, program):
    assert isinstance(text, str)
    assert program


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_workload_reaches_the_target_whatever_it_contains(jobs):
    settings = Settings(scenario=f"{TARGETS}:EXACTING", plan="sample", runs=4, jobs=jobs)
    result = run_campaign(registry.resolve(settings))
    assert result.verdict.value == "HOLDS", result.doubts
