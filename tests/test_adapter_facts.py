"""What is read of an adapter's file without running it."""

from pathlib import Path

import pytest

from chaoskit.adapter import BadAdapter, read
from scenarios.targets import TARGETS

ROOT = Path(__file__).parents[1]
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
    assert (
        read("a", f"{tmp_path}/a.py:Store").promises["durable"].where == "https://example.org/docs"
    )


def test_promises_that_cannot_be_read_are_an_error_and_not_none(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(STORE.format(where="made_up()"))
    with pytest.raises(BadAdapter, match="promises"):
        read("a", f"{tmp_path}/a.py:Store")


@pytest.mark.parametrize("name", TARGETS)
def test_what_a_shipped_adapter_promises_says_where(name: str) -> None:
    adapter = read(name, TARGETS[name])
    ours = name.startswith(
        "reference-agent"
    )  # comes with chaoskit: its documentation is its source
    assert ours or adapter.requires
    for promise in adapter.promises.values():
        assert promise.words
        assert (ROOT / promise.where).is_file() if ours else promise.where.startswith("https://")
