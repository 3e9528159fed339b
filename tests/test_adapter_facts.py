"""What is read from an adapter's file without running it."""

from pathlib import Path

import pytest
from chaoskit_scenarios.targets import TARGETS

from chaoskit.adapter import BadAdapter, read
from chaoskit.inside.saved_data import items_of, recognised
from chaoskit.inside.store_driver import at_once

STORE = """
DOCS = "https://example.org/docs"

class Store:
    promises = {{"durable": ("kept", {where})}}
    def open(self, directory): ...
    def close(self): ...
    def save(self, session, state): ...
    def load(self, session): ...
"""


def test_a_promise_may_name_a_constant_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(STORE.format(where="DOCS"))
    assert read("a", f"{tmp_path}/a.py:Store").promises["durable"].where == "https://example.org/docs"


def test_unreadable_promises_are_an_error_rather_than_no_promises(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(STORE.format(where="made_up()"))
    with pytest.raises(BadAdapter, match="promises"):
        read("a", f"{tmp_path}/a.py:Store")


def test_an_unknown_value_of_callers_is_an_error(tmp_path: Path) -> None:
    source = STORE.format(where="DOCS").replace("    promises", '    callers = "robots"\n    promises')
    (tmp_path / "a.py").write_text(source)
    with pytest.raises(BadAdapter, match="callers of Store: expected one, threads, tasks, got 'robots'"):
        read("a", f"{tmp_path}/a.py:Store")


def test_concurrent_changes_belong_to_different_sessions() -> None:
    steps = [{"session": name, "n": n} for n, name in enumerate("abaacb")]
    groups = list(at_once(steps))
    assert ["".join(step["session"] for step in group) for group in groups] == ["ab", "a", "acb"]
    assert [step for group in groups for step in group] == steps


@pytest.mark.parametrize("name", TARGETS)
def test_each_promise_of_a_shipped_adapter_names_its_source(name: str) -> None:
    adapter = read(name, TARGETS[name])
    ours = name.startswith("reference-agent")  # needs nothing, and its documents are here
    assert adapter.requires or ours
    assert all(
        promise.words and (ours or promise.where.startswith("https://"))
        for promise in adapter.promises.values()
    )


@pytest.mark.parametrize("attribute", ["promises: ClassVar[dict] = {", "promises = {"])
def test_promises_are_read_with_and_without_an_annotation(tmp_path: Path, attribute: str) -> None:
    source = STORE.format(where="DOCS").replace("promises = {", attribute)
    (tmp_path / "a.py").write_text(source)
    assert set(read("a", f"{tmp_path}/a.py:Store").promises or ()) == {"durable"}


def test_undeclared_promises_differ_from_an_empty_dictionary_of_promises(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(STORE.format(where="DOCS").replace("promises", "other"))
    assert read("a", f"{tmp_path}/a.py:Store").promises is None
    (tmp_path / "a.py").write_text(STORE.replace('{{"durable": ("kept", {where})}}', "{}"))
    assert read("a", f"{tmp_path}/a.py:Store").promises == {}


@pytest.mark.parametrize("most", ["0", "'one'"])
def test_a_call_takes_at_least_one_item(tmp_path: Path, most: str) -> None:
    source = STORE.format(where="DOCS").replace("    promises", f"    items_per_call = {most}\n    promises")
    (tmp_path / "a.py").write_text(source)
    with pytest.raises(BadAdapter, match="items_per_call of Store: expected an integer of at least 1"):
        read("a", f"{tmp_path}/a.py:Store")


def test_one_call_appends_no_more_items_than_the_adapter_takes() -> None:
    assert [len(items_of("a", n, 10)) for n in (1, 2, 3)] == [2, 3, 1]
    assert [len(items_of("a", n, 10, 1)) for n in (1, 2, 3)] == [1, 1, 1]
    single = items_of("a", 2, 10, 1)[0]
    assert recognised("a", single) == [2, 0, 1]
    assert recognised("a", {**single, "text": "x"}).startswith("damaged")


def test_a_promise_may_cover_power_loss(tmp_path: Path) -> None:
    for where, power in (('DOCS, "power"', True), ("DOCS", False)):
        (tmp_path / "a.py").write_text(STORE.format(where=where))
        assert read("a", f"{tmp_path}/a.py:Store").promises["durable"].power is power
