"""The settings: older and newer files, invalid values, and atomic saves."""

import errno
import io
import json
import os
import re
import stat
import textwrap
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st

from reference_agent.logs import structured as logs
from reference_agent.terminal import config
from reference_agent.terminal.config import KEYS, BadConfig, Config, load, save
from reference_agent.terminal.setup import agent_options
from reference_agent.turn.options import Options
from tests.disk.stores import record, verdicts

NAME = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1).filter(
    str.strip
)
SECONDS = st.none() | st.floats(min_value=0.001, max_value=1e6)
MAYBE_COUNT = st.none() | st.integers(1, 10**9)
PRICE = st.floats(min_value=0.01, max_value=1e3)
configs = st.builds(
    Config,
    agent_id=NAME,
    state_directory=NAME,
    model=NAME,
    provider_url=st.none() | NAME,
    stream=st.booleans(),
    max_retries=st.integers(0, 100),
    retry_base_delay_ms=st.integers(0, 10**6),
    retry_after_limit_seconds=SECONDS,
    max_turns=st.integers(1, 10**6),
    budget_tokens=MAYBE_COUNT,
    budget_usd=st.none() | PRICE,
    usd_per_million_input_tokens=PRICE,
    cadence=st.sampled_from(["turn", "call", "periodic"]),
    checkpoint_every_turns=st.integers(1, 99),
    checkpoint_every_seconds=SECONDS,
    tool_timeout_seconds=SECONDS,
    hook_timeout_seconds=SECONDS,
    model_timeout_seconds=SECONDS,
    log_level=st.sampled_from(["debug", "info", "warning", "error"]),
    log_secret_names=st.lists(st.text()).map(tuple),
    others=st.dictionaries(st.text().filter(lambda key: key not in KEYS), st.none() | st.integers(-9, 9)),
)


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "config.json"


def loaded(file, content):
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return load(file)


def refusal(file, content):
    with pytest.raises(BadConfig) as caught:
        loaded(file, content)
    return str(caught.value)


@pytest.mark.requirement("K6")
def test_by_default_there_are_three_retries_starting_at_half_a_second(file):
    assert (Config().max_retries, Config().retry_base_delay_ms) == (3, 500)
    told = loaded(file, {"max_retries": 0, "retry_base_delay_ms": 20})
    assert (told.max_retries, told.retry_base_delay_ms) == (0, 20)


@pytest.mark.requirement("K6")
def test_an_older_file_loads_with_defaults_for_missing_keys(file):
    """F1"""
    assert loaded(file, {"model": "m", "max_turns": 7}) == Config(model="m", max_turns=7)
    assert loaded(file, {}) == Config()


@pytest.mark.requirement("K6")
@given(full=configs, missing=st.sets(st.sampled_from(sorted(KEYS))))
def test_a_file_may_lack_any_of_the_keys(full, missing, tmp_path_factory):
    """F1. Except the two settings that depend on others: those must be present."""
    missing -= {"usd_per_million_input_tokens", "checkpoint_every_turns"}
    file = tmp_path_factory.mktemp("config") / "config.json"
    save(full, file)
    content = json.loads(file.read_text())
    for key in missing:
        del content[key]
    again = loaded(file, content)
    for key in KEYS:
        assert getattr(again, key) == getattr(Config() if key in missing else full, key)


@given(configs)
def test_saved_settings_are_loaded_unchanged(tmp_path_factory, settings):
    file = tmp_path_factory.mktemp("config") / "config.json"
    save(settings, file)
    assert load(file) == settings


def test_an_unknown_key_is_reported_and_survives_the_next_save(file):
    """F2"""
    said = io.StringIO()
    with logs.written_to(said):
        settings = loaded(file, {"max_retry": 5, "from_the_future": [1, {"a": None}], "others": 1})
    assert settings.max_retries == 3
    events = [json.loads(line) for line in said.getvalue().splitlines()]
    assert [(e["level"], e["event"], e["key"], e["did_you_mean"]) for e in events] == [
        ("warning", "config.unknown_key", "max_retry", "max_retries"),
        ("warning", "config.unknown_key", "from_the_future", None),
        ("warning", "config.unknown_key", "others", None),
    ]
    assert {event["file"] for event in events} == {str(file)}
    save(settings, file)
    content = json.loads(file.read_text())
    assert (content["max_retry"], content["from_the_future"]) == (5, [1, {"a": None}])
    assert load(file) == settings


def test_known_keys_are_not_reported(file):
    """F2, the other direction: a file with every key causes no warning."""
    said = io.StringIO()
    save(Config(), file)
    with logs.written_to(said, level="debug"):
        load(file)
    assert said.getvalue() == ""
    assert json.loads(file.read_text()).keys() == KEYS


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"max_retries": "3"}, 'max_retries: expected a whole number, 0 or more and below 2**63, found "3"'),
        ({"max_retries": -1}, "max_retries: expected a whole number, 0 or more and below 2**63, found -1"),
        ({"max_retries": 1.5}, "max_retries: expected a whole number, 0 or more and below 2**63, found 1.5"),
        (
            {"max_retries": True},
            "max_retries: expected a whole number, 0 or more and below 2**63, found true",
        ),
        (
            {"max_retries": None},
            "max_retries: expected a whole number, 0 or more and below 2**63, found null",
        ),
        (
            {"max_turns": 2**63},
            f"max_turns: expected a whole number, 1 or more and below 2**63, found {2**63}",
        ),
        ({"model": " "}, 'model: expected a string, not empty and without NUL, found " "'),
        (
            {"state_directory": "a\0b"},
            'state_directory: expected a string, not empty and without NUL, found "a\\u0000b"',
        ),
        ("[" * 100_000, "not valid JSON (maximum recursion depth exceeded while deserializing an object)"),
        ({"max_turns": 0}, "max_turns: expected a whole number, 1 or more and below 2**63, found 0"),
        (
            {"budget_tokens": 0},
            "budget_tokens: expected a whole number, 1 or more and below 2**63, or null, found 0",
        ),
        ({"budget_usd": -0.5}, "budget_usd: expected a number, 0 or more, or null, found -0.5"),
        (
            {"tool_timeout_seconds": 0},
            "tool_timeout_seconds: expected a number of seconds greater than 0, or null, found 0",
        ),
        ({"cadence": "daily"}, 'cadence: expected "turn", "call" or "periodic", found "daily"'),
        ({"log_level": "loud"}, 'log_level: expected "debug", "info", "warning" or "error", found "loud"'),
        ({"stream": 1}, "stream: expected true or false, found 1"),
        ({"model": None}, "model: expected a string, not empty and without NUL, found null"),
        ({"provider_url": 5}, "provider_url: expected a string, not empty and without NUL, or null, found 5"),
        ({"log_secret_names": ["a", 1]}, 'log_secret_names: expected a list of strings, found ["a", 1]'),
        (
            {"model": ["x" * 90]},
            f'model: expected a string, not empty and without NUL, found ["{"x" * 58}...',
        ),
        ({"model": {"a\nb": 1}}, 'model: expected a string, not empty and without NUL, found {"a\\nb": 1}'),
        (
            {"cadence": "periodic", "checkpoint_every_turns": None},
            (
                'cadence: "periodic" expects checkpoint_every_turns or checkpoint_every_seconds, '
                "found null for both"
            ),
        ),
        (
            {"budget_usd": 1},
            (
                "budget_usd: expects usd_per_million_input_tokens or usd_per_million_output_tokens, "
                "found 0 for both: nothing would ever be spent"
            ),
        ),
        ([1], "expected a JSON object, found [1]"),
        ("", "not valid JSON (Input data was truncated)"),
        ('{"max_retries": NaN}', "not valid JSON (JSON is malformed: invalid character (byte 16))"),
    ],
)
def test_an_invalid_value_is_refused_in_one_line(file, content, complaint):
    """F3"""
    assert refusal(file, content) == f"{file}: {complaint}"
    assert "\n" not in complaint


def test_invalid_utf8_and_a_missing_file_are_refused(file):
    """F3"""
    with pytest.raises(BadConfig, match=r"config.json: cannot be read \(No such file"):
        load(file)
    file.write_bytes(b'{"model": "\xff"}')
    with pytest.raises(BadConfig, match=r"config.json: not valid JSON"):
        load(file)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), "1"])
def test_settings_made_in_code_are_checked_too(value):
    """F3"""
    with pytest.raises(BadConfig, match="tool_timeout_seconds: expected a number of seconds"):
        Config(tool_timeout_seconds=value)


def test_seconds_may_be_written_as_integers(file):
    assert repr(loaded(file, '{"tool_timeout_seconds": 9}').tool_timeout_seconds) == "9.0"


def test_settings_cannot_be_changed_in_place():
    with pytest.raises(AttributeError):
        Config().max_retries = 4


def test_every_setting_is_used():
    """A setting without effect would mislead its users."""
    package = Path(config.__file__).parent
    code = "".join(path.read_text() for path in package.rglob("*.py") if path.name != "config.py")
    assert {key for key in KEYS if not re.search(rf"config\.{key}\b", code)} == set()


def test_no_setting_holds_a_secret():
    """F5: nothing that the log would hide is a key of the file."""
    line = logs.Event("x", dict.fromkeys(KEYS, "value"), with_traceback=False)
    assert "[redacted]" not in str(line)


def spy_on_calls(monkeypatch, calls):
    """Record the system calls that decide durability, with the files they affect."""
    sync, replace = os.fsync, Path.replace

    def fsync(fd):
        kind = "directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file"
        calls.append(("fsync", kind, os.fstat(fd).st_size if kind == "file" else None))
        sync(fd)

    def rename(source, target):
        calls.append(("rename", target.name, source.stat().st_size))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", rename)


def test_a_save_is_synced_before_and_after_its_rename(file, monkeypatch):
    """F4: the whole content is synced under the temporary name first."""
    calls = []
    spy_on_calls(monkeypatch, calls)
    save(Config(), file)
    size = file.stat().st_size
    assert calls == [("fsync", "file", size), ("rename", "config.json", size), ("fsync", "directory", None)]


SETUP = """
    from pathlib import Path
    from reference_agent.terminal.config import Config, save
    save(Config(max_turns=1), Path("config.json"))
"""
SAVES = """
    from pathlib import Path
    from reference_agent.terminal.config import Config, save
    for n in range(2, 5):
        save(Config(max_turns=n), Path("config.json"))
        acknowledge()
"""


def judge(directory, acknowledged):
    try:
        found = load(directory / "config.json").max_turns
    except BadConfig:
        return "corrupt"
    return "holds" if found >= 1 + acknowledged else "lost"


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (SAVES, {"holds"}),
        ("import os\nos.fsync = lambda fd: None\n" + textwrap.dedent(SAVES), {"holds", "lost", "corrupt"}),
    ],
    ids=["as it is", "without its syncs"],
)
def test_power_loss_neither_reverts_nor_tears_a_save(tmp_path, program, found):
    """F4: in every state that a crash could leave. Also checks that the judge itself finds losses."""
    home, stage = tmp_path / "home", tmp_path / "stage"
    home.mkdir()
    stage.mkdir()
    recorded = record(home, SETUP, program)
    assert len(recorded[1]) == 3
    assert set(verdicts(recorded, "posix", judge, stage, 2_000)) == found


@pytest.mark.parametrize("step", ["_write_synced", "fsync", "replace"])
@pytest.mark.parametrize("existed", [True, False])
def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(file, monkeypatch, step, existed):
    """F4"""
    if existed:
        save(Config(model="old"), file)

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    owner = {"_write_synced": config, "fsync": os, "replace": Path}[step]
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, full)
        with pytest.raises(OSError, match="No space left"):
            save(Config(model="new"), file)
    assert [path.name for path in file.parent.iterdir()] == (["config.json"] if existed else [])
    if existed:
        assert load(file).model == "old"


def test_a_save_keeps_permissions_and_links(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    save(Config(), real)
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    real.chmod(0o640)
    link.symlink_to(real)
    save(Config(model="new"), link)
    assert link.is_symlink()
    assert load(real).model == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_settings_are_plain_data():
    assert msgspec.json.decode(msgspec.json.encode(Config()), type=Config) == Config()


@pytest.mark.requirement("K6")
def test_the_temporary_file_is_named_by_the_process_or_the_caller(tmp_path, monkeypatch):
    names = []
    real = Path.replace
    monkeypatch.setattr(Path, "replace", lambda temp, path: (names.append(temp.name), real(temp, path)))
    save(Config(), tmp_path / "config.json")
    save(Config(), tmp_path / "config.json", mark="life-1")
    assert names == [f".config.json.{os.getpid()}.tmp", ".config.json.life-1.tmp"]


@pytest.mark.requirement("K6")
def test_the_agent_uses_the_configured_retries():
    options = agent_options(Config(max_retries=1, retry_base_delay_ms=2, retry_after_limit_seconds=3))
    chosen = (options.max_retries, options.retry_base_delay_ms, options.retry_after_limit)
    assert chosen == (1, 2, 3)
    assert agent_options(Config()) == Options(tool_deadline=120.0)
