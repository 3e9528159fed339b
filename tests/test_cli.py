"""The command line as users call it: output, exit codes, JSON, and one clear line per error."""

import json
import re

import pytest

from chaoskit import __version__, repro
from chaoskit.model import Repro, Schedule
from tests.conftest import TARGETS


def one_line(result, code):
    """The error message of a usage error."""
    assert result.returncode == code, result.stderr + result.stdout
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("chaoskit: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def counting(chaoskit, *options):
    return chaoskit("run", f"{TARGETS}:COUNTING", "--jobs", "1", *options)


def header(result):
    """The command as one line; it is broken with backslashes, as a shell reads it."""
    return re.sub(r" \\\n  ", " ", result.stdout).splitlines()[0]


@pytest.mark.requirement("C1")
def test_a_run_that_holds_exits_with_0_and_prints_seed_and_options_first(chaoskit):
    result = counting(chaoskit, "--seed", "5")
    assert result.returncode == 0
    first = header(result)
    assert first.endswith("COUNTING --fault kill --points named --plan sweep --seed 5 --jobs 1")
    assert "verdict: HOLDS" in result.stdout
    assert "reproduce" not in result.stdout


@pytest.mark.requirement("C3")
def test_a_run_that_does_not_hold_ends_with_the_line_to_paste(chaoskit):
    result = chaoskit("run", f"{TARGETS}:FAILING", "--jobs", "1")
    assert result.returncode == 1
    last = result.stdout.splitlines()[-1]
    assert last.startswith("reproduce: chaoskit replay ck1-")
    again = chaoskit(*last.split()[2:])
    assert again.returncode == 1
    assert again.stdout.splitlines()[-1] == "recovers/failed: reproduced"


def test_json_has_the_fields_of_the_contract(chaoskit):
    result = counting(chaoskit, "--json", "-")
    data = json.loads(result.stdout)
    assert {
        "schema",
        "verdict",
        "seed",
        "scenario",
        "runs",
        "points",
        "states",
        "unique_states",
        "fired",
        "missed",
        "confirmed",
        "seconds",
        "claims",
        "findings",
    } <= set(data)
    assert (data["schema"], data["verdict"], data["runs"], data["fired"]) == (1, "HOLDS", 6, 6)
    assert data["claims"] == {"recovers": {"process": "HOLDS"}}


def test_json_of_a_finding_has_the_fields_of_the_contract(chaoskit, tmp_path):
    chaoskit("run", f"{TARGETS}:FAILING", "--jobs", "1", "--json", "out.json")
    data = json.loads((tmp_path / "out.json").read_text())
    (finding,) = data["findings"]
    assert {"invariant", "tier", "fault", "point", "message", "repro"} <= set(finding)
    assert (finding["invariant"], finding["point"]) == ("recovers", "append#1")


def test_several_scenarios_give_one_object_with_parts(chaoskit):
    result = chaoskit("run", f"{TARGETS}:COUNTING", f"{TARGETS}:FAILING", "--json", "-")
    data = json.loads(result.stdout)
    assert result.returncode == 1
    assert (data["verdict"], data["runs"], len(data["scenarios"])) == ("VIOLATED", 8, 2)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["run", "paymens"], "no scenario 'paymens': did you mean 'payments'?"),
        (["run", "payments", "--mutant", "forget"], "no mutant of payments 'forget'"),
        (["run", "payments", "--fault", "meteor"], "no fault 'meteor' (there are: disk, kill, power, world)"),
        (["run", "payments", "--plan", "guess"], "'guess' is not one of 'sweep', 'sample'"),
        (["run", "payments", "--seed", "x"], "or 'random', got 'x'"),
        (["run", "payments", "--for", "1 day"], "expected a duration such as 60s, 10m or 2h"),
        (["run", "payments", "--jobs", "0"], "0 is not in the range"),
        (["run", "payments", "--nonsense"], "No such option"),
        (["run", "nowhere.py:SCENARIO"], "no file 'nowhere.py'"),
        (["run", f"{TARGETS}:NOT_A_SCENARIO"], "is a int, not a Scenario"),
        (["run", "payments", "--dir", "/dev/null/x"], "cannot write to the state directory"),
        (["run", "payments", "--store", "file"], "no store of payments 'file': did you mean 'files'?"),
        (["run", "migration", "--store", "files"], "no store of migration 'files' (there are: sqlite)"),
        (["run", f"{TARGETS}:COUNTING", "--store", "x"], "no store of counting 'x' (there are: none)"),
        (
            ["run", "payments", "--store", "files", "--mutant", "half-migration"],
            "mutant 'half-migration' needs --store sqlite, got files",
        ),
        (
            ["run", "payments", "--mutant", "cuts-the-log"],
            "mutant 'cuts-the-log' needs --store files, got sqlite",
        ),
        (
            ["run", "payments", "--agents", "3"],
            "payments does not support --agents; these scenarios do: tree",
        ),
        (["run", "tree", "--agents", "201"], "tree: expected 1 to 200 agents, got 201"),
        (["run", "tree", "--agents", "0"], "'--agents'"),
        (["run", "tree", "--bias", "rare"], "--bias needs fuzzing: --plan sample"),
        (["replay", "hello"], "expected a token (ck1-...), got 'hello'"),
        (["replay", "ck1-AAAA"], "the token is damaged"),
        (["list", "points"], "list points needs a scenario"),
        (["list", "everything"], "is not one of"),
        (["report", "nowhere"], "expected a saved result in nowhere"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_2(chaoskit, args, said):
    assert said in one_line(chaoskit(*args), 2)


def test_a_token_of_another_version_is_refused(chaoskit):
    token = repro.encode(
        Repro(version="0.0.1", scenario="payments", mutant=None, seed=1, schedule=Schedule(), signature="")
    )
    said = one_line(chaoskit("replay", token), 2)
    assert f"made by chaoskit 0.0.1, but this is chaoskit {__version__}" in said


@pytest.mark.parametrize("name", ["BROKEN", "MISSING", "SILENT", "UNREPEATABLE"])
def test_a_target_that_cannot_be_tested_has_an_exit_code_of_its_own(chaoskit, name):
    result = chaoskit("run", f"{TARGETS}:{name}")
    assert result.returncode == 2
    assert result.stderr.startswith("chaoskit: cannot be tested: ")


def test_a_scenario_that_cannot_be_imported_is_a_usage_error(chaoskit, tmp_path):
    (tmp_path / "mine.py").write_text("import not_installed_anywhere")
    said = one_line(chaoskit("run", "mine.py:SCENARIO"), 2)
    assert "No module named 'not_installed_anywhere'" in said


def test_a_usage_error_deletes_no_earlier_results(chaoskit, tmp_path):
    counting(chaoskit)
    before = sorted(tmp_path.rglob("*"))
    chaoskit("run", "paymens")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.requirement("O1")
def test_the_chosen_store_is_printed_and_used_by_the_replay(chaoskit, tmp_path):
    choosing = ["run", f"{TARGETS}:CHOOSING", "--jobs", "1", "--json", "out.json"]
    default = chaoskit(*choosing)
    assert default.returncode == 0
    assert header(default).endswith("--jobs 1 --store stone")
    assert json.loads((tmp_path / "out.json").read_text())["store"] == "stone"
    other = chaoskit(*choosing, "--store", "paper")
    assert other.returncode == 1
    assert json.loads((tmp_path / "out.json").read_text())["store"] == "paper"
    again = chaoskit("replay", other.stdout.split()[-1])
    assert "CHOOSING --store paper --seed 0" in " ".join(again.stdout.split())
    assert again.stdout.splitlines()[-1] == "recovers/failed: reproduced"


def test_the_stores_of_a_scenario_are_listed(chaoskit):
    lines = chaoskit("list", "scenarios").stdout.splitlines()
    stores = {line.split()[0]: line.partition("(store: ")[2] for line in lines}
    assert stores["payments"] == "sqlite, files)"
    assert stores["migration"] == "sqlite)"
    assert stores["store-jsonl"] == ""
    mutants = chaoskit("list", "mutants", "payments").stdout
    assert "(caught by prefix-log; store: files)" in mutants


@pytest.mark.parametrize("what", ["scenarios", "invariants", "faults", "mutants"])
def test_lists_are_printed_as_lines_or_as_json(chaoskit, what):
    lines = chaoskit("list", what).stdout.splitlines()
    rows = json.loads(chaoskit("list", what, "--json", "-").stdout)
    assert [line.split("  ")[0].strip() for line in lines] == [row["name"] for row in rows]
    assert all(row["summary"] for row in rows)


def test_the_points_of_a_scenario_are_listed(chaoskit):
    result = chaoskit("list", "points", f"{TARGETS}:COUNTING")
    assert result.stdout == "append  3 times\n"


@pytest.mark.requirement("S5")
@pytest.mark.parametrize("store", ["sqlite", "files"])
def test_the_six_crash_points_of_the_daemon_are_listed_under_their_names(chaoskit, store):
    listed = chaoskit("list", "points", "tree", "--store", store).stdout
    names = {line.split()[0] for line in listed.splitlines()}
    assert names >= {
        "session.created",
        "session.recorded",
        "tree.linked",
        "inference",
        "send.completed",
        "message.enqueued",
    }


def test_report_shows_a_saved_result_again(chaoskit, tmp_path):
    first = chaoskit("run", f"{TARGETS}:FAILING", "--jobs", "1")
    (saved,) = (path for path in (tmp_path / ".chaoskit").iterdir() if path.is_dir())
    again = chaoskit("report", str(saved))
    assert again.returncode == 1
    assert again.stdout == first.stdout


def test_doctor_reports_that_this_machine_works(chaoskit):
    result = chaoskit("doctor")
    assert result.returncode == 0, result.stdout
    assert "crash test" in result.stdout


@pytest.mark.parametrize("args", [[], ["run"], ["replay"], ["list"], ["report"], ["doctor"]])
def test_every_command_has_help(chaoskit, args):
    result = chaoskit(*args, "--help")
    assert result.returncode == 0
    assert "Usage" in result.stdout


def test_a_failure_is_replayed_by_its_short_id_and_as_the_last_one(chaoskit):
    result = chaoskit("run", f"{TARGETS}:FAILING", "--jobs", "1")
    (short,) = re.findall(r"^  chaoskit replay (\w+)$", result.stdout, re.MULTILINE)
    for name in ("last", short, short[:4]):
        again = chaoskit("replay", name)
        assert (again.returncode, again.stdout.splitlines()[-1]) == (1, "recovers/failed: reproduced")


def test_a_token_that_names_an_invariant_by_its_former_name_replays(chaoskit):
    old = Repro(
        version=__version__,
        scenario="http",
        mutant="ignores-last-event-id",
        seed=1,
        schedule=Schedule(()),
        signature="told/repeated",
    )
    result = chaoskit("replay", repro.encode(old))
    expected = (1, "client-consistency/repeated: reproduced")
    assert (result.returncode, result.stdout.splitlines()[-1]) == expected, result.stderr


def test_replaying_an_unknown_id_is_a_usage_error(chaoskit):
    assert "no findings are recorded here" in chaoskit("replay", "last").stderr
    chaoskit("run", f"{TARGETS}:FAILING", "--jobs", "1")
    result = chaoskit("replay", "zzzz")
    assert result.returncode == 2
    assert "'zzzz' matches no finding recorded here" in result.stderr


def test_what_holds_is_one_line_unless_verbose(chaoskit):
    short, long = counting(chaoskit), counting(chaoskit, "-v")
    assert "1 kind of points x kill before, kill after: all hold" in short.stdout
    assert "persist point" not in short.stdout
    assert "persist point" in long.stdout


def test_only_the_token_is_wider_than_80_columns(chaoskit):
    result = chaoskit("run", "payments", "--seed", "1", "--mutant", "forgets-pending", "--depth", "1")
    (wide,) = [line for line in result.stdout.splitlines() if len(line) > 80]
    assert wide.startswith("reproduce: chaoskit replay ck1-")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("durable", "Broken by: "),
        ("exactly-once", "Smallest history that breaks it"),
        ("power-posix", "a tier"),
        ("disk", "Method."),
        ("holds", "Exit code 0"),
        ("payments", "Judged by: recovers"),
        ("told", "client-consistency, an invariant"),
    ],
)
def test_explain_knows_each_kind_of_word(chaoskit, word, said):
    result = chaoskit("explain", word)
    assert (result.returncode, result.stderr) == (0, "")
    assert said in result.stdout


def test_explain_suggests_the_nearest_word(chaoskit):
    result = chaoskit("explain", "duable")
    assert (result.returncode, result.stderr) == (2, "chaoskit: no word 'duable': did you mean 'durable'?\n")


def test_without_arguments_it_shows_what_to_try_first(chaoskit):
    result = chaoskit()
    assert "chaoskit run payments" in result.stdout + result.stderr


def test_a_hang_under_a_shorter_deadline_is_reproduced_by_its_token(chaoskit):
    result = chaoskit("run", f"{TARGETS}:SLOW", "--jobs", "1", "--deadline", "0.7", "--until-violation")
    assert result.returncode == 1, result.stdout
    again = chaoskit("replay", result.stdout.split()[-1])
    assert "--deadline 0.7" in again.stdout.replace("\n", "")
    assert (again.returncode, again.stdout.splitlines()[-1]) == (1, "recovers/hung: reproduced")


def test_runs_that_ask_different_questions_keep_their_results_apart(chaoskit, tmp_path):
    options = ("--jobs", "1", "--runs", "2")
    for more in ([], ["--points", "syscalls"], ["--fault", "power"], ["--plan", "sample"]):
        chaoskit("run", f"{TARGETS}:COUNTING", *options, *more)
    kept = sorted((tmp_path / ".chaoskit").rglob("result.json"))
    asked = [json.loads(path.read_text())["settings"] for path in kept]
    assert len({(tuple(s["faults"]), s["points"], s["plan"]) for s in asked}) == len(kept) == 4


STORE = """
from pathlib import Path


class Store:
    saves = 2
    largest = 40

    def open(self, directory):
        self.directory = Path(directory)

    def save(self, session, state):
        (self.directory / session).write_text(repr(state))

    def load(self, session):
        path = self.directory / session
        return eval(path.read_text()) if path.exists() else None

    def close(self):
        pass
"""


def test_a_replay_warns_when_the_adapter_has_changed(chaoskit, tmp_path):
    adapter = tmp_path / "store.py"
    adapter.write_text(STORE)
    found = chaoskit("certify", "store.py:Store", "--tiers", "torn", "--jobs", "1")
    assert found.returncode == 1, found.stderr
    token = found.stdout.split()[-1]
    assert "warning" not in chaoskit("replay", token).stdout
    adapter.write_text(STORE + "# changed\n")
    assert "warning: the adapter's file has changed" in chaoskit("replay", token).stdout


@pytest.mark.parametrize("name", ["a#b", "a@b==1", "zombie#zombie", "a:b"])
def test_a_directory_may_have_any_name(chaoskit, tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "store.py").write_text(STORE)
    found = chaoskit("certify", f"{name}/store.py:Store", "--tiers", "torn,zombie", "--jobs", "1")
    assert found.returncode == 1, found.stderr
    assert chaoskit("replay", found.stdout.split()[-1]).stdout.splitlines()[-1].endswith(": reproduced")
