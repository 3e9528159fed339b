"""Structured logs: silent until asked, one line per event, no secrets, and never an exception."""

import errno
import io
import json
import logging
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given, strategies as st

from reference_agent.logs import structured as logs
from reference_agent.logs.redaction import REDACTED, SECRET_NAMES, Redactor
from reference_agent.logs.structured import get_logger, written_to
from reference_agent.terminal.config import Config

NOON = 1_771_668_085.25  # 2026-02-21T10:01:25.250Z
log = get_logger("reference_agent.tests")


def lines(level="debug", clock=lambda: NOON, **options):
    """A context whose log events can be read as data afterwards."""
    return Reader(level=level, clock=clock, **options)


class Reader:
    def __init__(self, **options):
        self._stream = io.StringIO()
        self._context = written_to(self._stream, **options)

    def __enter__(self):
        self.handler = self._context.__enter__()
        return self

    def __exit__(self, *error):
        self._context.__exit__(*error)

    @property
    def raw(self):
        return self._stream.getvalue()

    def read(self):
        """Parsed strictly: what this accepts, every parser accepts."""
        return [msgspec.json.decode(line) for line in self.raw.splitlines()]

    def one(self):
        [line] = self.read()
        return line


def logged(**fields):
    """The fields of an event as they arrive."""
    with lines() as reader:
        log.info("x", **fields)
    line = reader.one()
    return {name: value for name, value in line.items() if name not in logs.RESERVED}


# ---- lines and levels ----------------------------------------------------------------------------


@pytest.mark.requirement("K9")
def test_an_event_is_one_line_with_time_level_name_and_fields():
    """L2"""
    with lines() as reader:
        log.info("session.open", agent_id="agent", session_id="s1", turn=3)
    assert reader.raw.count("\n") == 1
    assert reader.one() == {
        "time": "2026-02-21T10:01:25.250Z",
        "level": "info",
        "logger": "reference_agent.tests",
        "event": "session.open",
        "agent_id": "agent",
        "session_id": "s1",
        "turn": 3,
    }


@pytest.mark.requirement("K9")
@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_a_level_shows_itself_and_more_severe_ones(level):
    order = ["debug", "info", "warning", "error"]
    with lines(level=level) as reader:
        for each in order:
            getattr(log, each)("x")
    assert [line["level"] for line in reader.read()] == order[order.index(level) :]


def test_a_field_may_have_any_name():
    with lines() as reader:
        log.info("x", event=1, self=2, level=3, time=4, logger=5, name=6, msg=7, args=8)
    line = reader.one()
    assert (line["event"], line["level"], line["logger"]) == ("x", "info", "reference_agent.tests")
    assert [line[f"{name}_"] for name in ("event", "level", "time", "logger")] == [1, 3, 4, 5]
    assert [line[name] for name in ("self", "name", "msg", "args")] == [2, 6, 7, 8]


def test_an_error_is_logged_with_its_traceback_and_a_warning_without():
    with lines() as reader:
        try:
            json.loads("no JSON")
        except ValueError as error:
            log.exception("loop.failed", turn=3)
            log.error("loop.failed", error=error, turn=3)  # noqa: TRY400 - the same, said by hand
            log.warning("tool.failed", error=error)
    failed, by_hand, warned = reader.read()
    assert failed == by_hand
    assert (failed["level"], failed["turn"]) == ("error", 3)
    assert failed["error"] == warned["error"] == "JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    assert failed["traceback"].startswith("Traceback")
    assert "traceback" not in warned


def test_loggers_of_other_modules_are_enabled_with_the_agents():
    with lines() as reader:
        get_logger("mine").info("x")
        get_logger("reference_agent").info("y")
        get_logger("reference_agents").info("z")
    names = [line["logger"] for line in reader.read()]
    assert names == ["reference_agent.mine", "reference_agent", "reference_agent.reference_agents"]


def test_plain_records_of_the_standard_module_become_lines_too():
    with lines() as reader:
        logging.getLogger("reference_agent.old").warning("took %d s, token=%s", 3, "abc")
    assert reader.one()["event"] == f"took 3 s, token={REDACTED}"


# ---- off by default ------------------------------------------------------------------------------


class Counting:
    def __init__(self):
        self.shown = 0

    def __repr__(self):
        self.shown += 1
        return "counting"


def test_nothing_is_rendered_without_a_listener():
    """L1"""
    value = Counting()
    log.debug("x", value=value)
    with lines(level="warning"):
        log.info("x", value=value)
    assert value.shown == 0
    with lines():
        log.info("x", value=value)
    assert value.shown > 0


def test_the_agent_alone_writes_nothing_not_even_warnings():
    """L1: `logging` prints warnings to stderr where it finds no handler at all."""
    code = (
        "from reference_agent.logs.structured import get_logger; get_logger('x').error('y', error=OSError())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_afterwards_logging_is_off_and_the_level_is_restored():
    """L1"""
    logger = logging.getLogger(logs.ROOT)
    before = (logger.level, list(logger.handlers))
    with lines(level="error") as outer:
        with lines(level="debug") as inner:
            log.debug("x")
        log.warning("y")
    log.error("z")
    assert (logger.level, list(logger.handlers)) == before
    assert [line["event"] for line in inner.read()] == ["x"]
    assert "y" not in [line["event"] for line in outer.read()]


def test_an_unknown_level_changes_nothing():
    before = list(logging.getLogger(logs.ROOT).handlers)
    with pytest.raises(ValueError, match="LOUD"), lines(level="loud"):
        pass
    assert logging.getLogger(logs.ROOT).handlers == before


def test_the_programs_own_logging_sees_events_without_secrets(caplog):
    """L3"""
    with caplog.at_level("INFO"):
        log.info("session.open", session_id="s", api_key="k1", url="postgresql://u:k2@h/db")
        log.info("said token=k3")
    assert "k3" not in caplog.text
    record = caplog.records[0]
    assert json.loads(record.getMessage()) == {
        "event": "session.open",
        "session_id": "s",
        "api_key": REDACTED,
        "url": f"postgresql://u:{REDACTED}@h/db",
    }
    assert record.funcName == "test_the_programs_own_logging_sees_events_without_secrets"


# ---- secrets -------------------------------------------------------------------------------------

SECRET = "s3cr3t-Va1ue"  # noqa: S105 - what the tests look for in the log


@pytest.mark.requirement("K9")
@pytest.mark.parametrize(
    "name",
    [
        *SECRET_NAMES,
        "OPENAI_API_KEY",
        "X-Api-Key",
        "apiKey",
        "resume_token",
        "accessToken",
        "client_secret",
        "Authorization",
        "Set-Cookie",
        "db.password",
    ],
)
def test_a_field_named_like_a_secret_is_hidden_at_any_depth(name):
    """L3"""
    for value in (SECRET, 1234, [SECRET], {"a": SECRET}, b"s3cr3t-Va1ue"):
        fields = logged(**{name: value}, deep=[{"headers": ({name: value},)}])
        assert fields == {name: REDACTED, "deep": [{"headers": [{name: REDACTED}]}]}


@pytest.mark.parametrize(
    "name",
    [
        "input_tokens",
        "output_tokens",
        "token_usage",
        "max_tokens",
        "key",
        "idempotency_key",
        "secretary",
        "provider_key_variable",
        "tokenizer",
        "keyboard",
        "session_id",
    ],
)
def test_a_harmless_name_is_not_hidden(name):
    """L3, the other direction: some events are about token counts."""
    assert logged(**{name: 17}) == {name: 17}
    assert logged(text=f"{name}=17, {name}: 17") == {"text": f"{name}=17, {name}: 17"}


def test_an_absent_secret_is_shown_as_absent():
    assert logged(api_key=None) == {"api_key": None}


class Client:
    def __repr__(self):
        return f"Client(url='u', api_key='{SECRET}', retries=3)"


@pytest.mark.parametrize(
    "value",
    [
        f"Authorization: Bearer {SECRET}",
        f"authorization: Basic {SECRET}",
        f"got header 'Authorization': 'Bearer {SECRET}'",
        f"Bearer {SECRET}",
        f"api_key={SECRET}&x=1",
        f"--api-key={SECRET}",
        json.dumps({"api_key": SECRET, "x": 1}),
        json.dumps(json.dumps({"a": {"password": SECRET}})),
        f"sk-proj-{SECRET}",
        f"postgresql://user:{SECRET}@host:5432/db",
        f"https://:{SECRET}@host",
        ValueError(f"bad token={SECRET}"),
        Client(),
        {f"api_key={SECRET}": 1},
        f'token = "{SECRET} with spaces"',
    ],
    ids=str,
)
def test_a_secret_inside_a_text_is_hidden(value):
    """L3"""
    with lines() as reader:
        log.error("x", value=value, more=[value])
        log.info(f"token={SECRET}")
    assert SECRET not in reader.raw
    assert REDACTED in reader.raw


@pytest.mark.parametrize(
    "text",
    ["the token was refused", "https://host:8080/a@b", "a secret: ", "task-12345678", "Bearer of news"],
)
def test_text_without_a_secret_is_unchanged(text):
    """L3, the other direction."""
    assert logged(text=text) == {"text": text}


def test_further_secret_names_can_be_given():
    """L3"""
    with lines(secret_names=["iban", "magic_word"]) as reader:
        log.info("x", customer_iban="DE1", text="magic-word=please", magicWord=1, input_tokens=5)
    line = reader.one()
    assert (line["customer_iban"], line["magicWord"]) == (REDACTED, REDACTED)
    assert line["text"] == f"magic-word={REDACTED}"
    assert line["input_tokens"] == 5
    assert logged(customer_iban="DE1") == {"customer_iban": "DE1"}


def test_secrets_in_structs_are_hidden_and_the_rest_is_shown():
    class Request(msgspec.Struct):
        url: str
        headers: dict[str, str]

    shown = logged(request=Request("u", {"Authorization": SECRET, "Accept": "*"}))
    assert shown == {"request": {"url": "u", "headers": {"Authorization": REDACTED, "Accept": "*"}}}
    assert logged(config=Config())["config"]["max_retries"] == 3


# ---- arbitrary values ------------------------------------------------------------------------------


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no repr")


class BadKeys(dict):
    def items(self):
        raise OSError("gone")


def endless():
    value = {}
    value["self"] = [value]
    return value


@pytest.mark.requirement("K9")
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (object, "<class 'object'>"),
        (b"\xff", "b'\\xff'"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (2**63, str(2**63)),
        (-(2**63) + 1, -(2**63) + 1),
        ("\ud800", "\\ud800"),
        ("two\nlines\u2028\x00", "two\nlines\u2028\x00"),
        ({1: {None: (2,)}}, {"1": {"None": [2]}}),
        ({"b", "a"}, ["a", "b"]),
        (Unprintable(), "<unprintable Unprintable: RuntimeError>"),
        ([Unprintable(), 1], ["<unprintable Unprintable: RuntimeError>", 1]),
        ({Unprintable(): 1}, "<unprintable dict: RuntimeError>"),
        (BadKeys(a=1), "<unprintable BadKeys: OSError>"),
        (10**5000, "<unprintable int: ValueError>"),
        (KeyError("a"), "KeyError: 'a'"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_that_json_lacks_are_written_as_their_repr(value, shown):
    """L2, L4"""
    assert logged(value=value, other=1) == {"value": shown, "other": 1}


def test_a_structure_that_contains_itself_is_rendered():
    """L4"""
    assert '"..."' in json.dumps(logged(value=endless()))


def test_a_secret_near_the_truncation_of_a_long_text_is_hidden():
    """L3"""
    for length in range(3_960, 4_010):
        shown = logged(text=f"{'x' * length} sk-{SECRET} {'x' * 9_000}")["text"]
        assert "s3cr" not in shown


def test_long_text_is_truncated_and_marked():
    shown = logged(text="x" * 1_000_000)["text"]
    assert len(shown) < 5_000
    assert shown.endswith("x... (1000000 characters)")
    assert logged(text="x" * 4_000) == {"text": "x" * 4_000}


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.builds(object)
    | st.builds(Unprintable),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@given(event=st.text(st.characters()), fields=st.dictionaries(st.text(st.characters()), anything))
def test_whatever_is_logged_arrives_as_one_line(event, fields):
    """L2, L4"""
    with lines() as reader:
        log.error(event, **fields)
    assert reader.raw.isascii()
    assert reader.raw.count("\n") == 1
    assert len(reader.one()) >= len(logs.RESERVED)
    assert reader.handler.lost == 0


@given(st.text(), st.sampled_from(SECRET_NAMES), st.sampled_from(["=", ": ", " = "]))
def test_no_surrounding_text_reveals_a_secret(around, name, sign):
    """L3"""
    assert SECRET not in Redactor(SECRET_NAMES).text(f"{around} {name}{sign}{SECRET} {around}")


@pytest.mark.parametrize("now", [1e300, float("nan"), None])
def test_an_invalid_clock_does_not_lose_the_event(now):
    """L4"""
    with lines(clock=lambda: now) as reader:
        log.info("x", a=1)
    line = reader.one()
    assert line["time"].startswith("unknown (")
    assert line["a"] == 1


class FullDisk(io.StringIO):
    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.requirement("K9")
def test_an_unwritable_log_stops_nothing_and_is_counted(capsys):
    """L4"""
    closed = io.StringIO()
    closed.close()
    for stream in (FullDisk(), closed):
        with written_to(stream) as handler:
            log.warning("persist.failed")
            log.warning("persist.failed")
        assert handler.lost == 2
    assert capsys.readouterr().err == ""


def test_a_writable_log_loses_nothing():
    """L4, the other direction."""
    with lines() as reader:
        log.info("x")
    assert reader.handler.lost == 0
