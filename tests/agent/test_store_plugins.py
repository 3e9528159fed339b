"""A store is one declaration: an installed package can add one, and every command accepts it."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from chaoskit_scenarios.readers import READERS

from reference_agent.store import kinds, registry
from reference_agent.store.registry import STORES, UnknownName

TIMEOUT = 120
ENTRY_POINTS = """\
[reference_agent.stores]
toy = toy_store:KIND
broken = toy_store:NOTHING

[chaoskit_scenarios.store_readers]
toy = toy_store:READER
"""
# SQLite again, under other file names.
MODULE = """\
import aiosqlite

from chaoskit_scenarios.readers.sqlite import reader_of
from reference_agent.daemon.sqlite import SqliteDaemonStore
from reference_agent.store.sqlite_kind import kind_on


async def open_daemon(opening):
    connect = opening.location.connect or aiosqlite.connect
    return await SqliteDaemonStore.open(opening.location.directory / "toy-daemon.db", connect)


KIND = kind_on("toy.db", "toy_store:open_daemon", name="toy", summary="a toy")
READER = reader_of("toy.db", "toy-daemon.db")
NOTHING = None
"""
DAEMON = """\
import asyncio, sys
from pathlib import Path
from reference_agent.daemon.daemon import Daemon
from reference_agent.daemon.provider import ScriptedProvider
from reference_agent.daemon.stores import opened_store
from reference_agent.ids import ids_from
from reference_agent.store.kinds import Location

async def main():
    async with opened_store(Location(Path(sys.argv[1]), "toy"), clock=lambda: 0.0) as store:
        daemon = Daemon(store, {"scripted": ScriptedProvider(slowest=0.0)}, new_id=ids_from("1"))
        await daemon.recover()
        await daemon.spawn("a", provider="scripted", model="m")
        print(await daemon.ask("a", "hello", message_id="m1"))
        await daemon.close()

asyncio.run(main())
"""


@pytest.fixture
def run(tmp_path):
    """A command, in an environment where the package `toy` is installed."""
    site = tmp_path / "site"
    (site / "toy-1.0.dist-info").mkdir(parents=True)
    (site / "toy-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (site / "toy-1.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    (site / "toy_store.py").write_text(MODULE)

    def run(*command, stdin=""):
        return subprocess.run(
            [sys.executable, *command],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(site)},
        )

    return run


def agent(run, *args, stdin=""):
    return run("-m", "reference_agent.terminal.cli", *args, "--state", "state", stdin=stdin)


def test_chat_and_sessions_accept_a_store_of_another_package(run, tmp_path):
    said = agent(run, "chat", "--store", "toy", stdin="hello\n")
    assert said.returncode == 0, said.stderr
    session = said.stdout.split()[1]
    assert f"--store toy --resume {session}" in said.stdout
    assert agent(run, "sessions", "--store", "toy").stdout == f"{session}  4 messages\n"
    assert agent(run, "sessions").stdout == "no sessions yet\n"
    assert "hello" in agent(run, "show", session, "--store", "toy").stdout
    assert (tmp_path / "state" / "toy.db").exists()
    assert not (tmp_path / "state" / "sessions.db").exists()


def test_a_url_names_its_store_before_the_colon(run):
    assert agent(run, "sessions", "--store", "toy://somewhere/else").stdout == "no sessions yet\n"


def test_a_daemon_accepts_a_store_of_another_package(run, tmp_path):
    done = run("-c", DAEMON, str(tmp_path))
    assert done.stdout.startswith("a read m1"), done.stderr
    assert (tmp_path / "toy-daemon.db").exists()


@pytest.mark.parametrize("plan", [("payments", "--depth", "1"), ("tree", "--plan", "sample", "--runs", "20")])
def test_a_scenario_is_run_on_a_store_of_another_package(run, plan):
    asked = (*plan, "--store", "toy", "--points", "named", "--fault", "kill", "--json", "-")
    done = run("-m", "chaoskit.cli.main", "run", *asked)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["verdict"] == "HOLDS"


def test_help_and_errors_list_the_stores_that_are_installed(run):
    assert "sqlite, files, broken, toy" in agent(run, "chat", "--help").stdout
    wrong = agent(run, "sessions", "--store", "toi")
    assert wrong.returncode == 2
    expected = "no store 'toi': did you mean 'toy'? (there are: sqlite, files, broken, toy)"
    assert expected in wrong.stderr.splitlines()[-1]


def test_an_entry_point_that_is_not_a_store_is_reported_by_its_reference(run):
    wrong = agent(run, "sessions", "--store", "broken")
    assert wrong.returncode == 4
    assert "toy_store:NOTHING is a NoneType, not a StoreKind" in wrong.stderr


# --- without another package


def test_an_unknown_store_is_refused_with_the_known_names():
    with pytest.raises(UnknownName, match=r"no store 'file': did you mean 'files'\? \(there are: .*sqlite"):
        kinds.find("file")


@pytest.mark.parametrize("name", STORES.names())
def test_a_kind_has_the_name_of_its_entry_point(name):
    assert kinds.find(name).name == name
    assert kinds.find(f"{name}://host/database") is kinds.find(name)


@pytest.mark.parametrize("found", [STORES, READERS])
def test_the_built_in_names_are_those_that_the_package_declares(found):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert dict(found.built_in) == project["entry-points"][found.group]


def test_a_built_in_store_is_opened_without_looking_for_others(tmp_path):
    script = (
        "import sys; from reference_agent.store.kinds import find; find('sqlite');"
        " print([m for m in ('importlib.metadata', 'difflib', 'reference_agent.store.files',"
        " 'reference_agent.daemon') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert STORES.names()[0] == registry.DEFAULT
