"""O6: the coordinator and the HTTP API have no persistence and no derivation of their own."""

import ast
from pathlib import Path

import pytest

import reference_agent

pytestmark = pytest.mark.requirement("O6")


STATUSES = {"running", "waiting", "idle", "interrupted_startup", "interrupted_waiting"}
WRITERS = {"os", "io", "shutil", "tempfile", "sqlite3", "aiosqlite", "fcntl", "reference_agent.store.durable"}


def tree_of(module):
    path = Path(reference_agent.__file__).parent / f"{module}.py"
    return ast.parse(path.read_text())


def status_literals(tree):
    """Statuses of a session. The state of a request may be set and compared: `state=`, `.state ==`."""
    of_requests = set()
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="state", value=value):
                of_requests.add(value)
            case ast.Compare(left=ast.Attribute(attr="state"), comparators=values):
                of_requests.update(values)
            case ast.AnnAssign(target=ast.Name(id="state"), annotation=annotation):
                of_requests.update(ast.walk(annotation))
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [each.value for each in constants if each.value in STATUSES and each not in of_requests]


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


@pytest.mark.parametrize("module", ["service/coordinator", "service/http_api"])
def test_the_facade_writes_no_file_and_derives_no_status(module):
    tree = tree_of(module)
    assert status_literals(tree) == []
    assert set(imported(tree)) & WRITERS == set()
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert not {call for call in calls if call == "open" or call.split(".")[-1].startswith("write")}


def test_the_facade_check_catches_a_violation():
    found = ast.parse('import os\nif run.end is None: status = "running"\nOutcome(state="waiting")')
    assert status_literals(found) == ["running"]
    assert set(imported(found)) & WRITERS == {"os"}
    assert status_literals(tree_of("sessions/projector"))


def test_only_the_coordinator_uses_the_projector_and_handlers_never_use_the_store():
    modules = set(imported(tree_of("service/http_api")))
    assert "reference_agent.sessions.projector" not in modules
    assert not {each for each in modules if each.endswith((".sqlite", ".snapshot", ".agent"))}
