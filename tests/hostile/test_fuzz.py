"""Our own input, fuzzed: command lines, tokens, adapters and result files that nobody thought of.

Whatever comes in, the exit code is a documented one, there is one line and no traceback, and it is quick.
What is found here is kept as an example.
"""

import contextlib
import io
import signal
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from chaoskit import repro
from chaoskit.adapter import BadAdapter, read
from chaoskit.certify.certificate import load
from chaoskit.cli.main import main
from chaoskit.model import Repro
from chaoskit.show.wrapping import harmless
from chaoskit.wrong_use import WrongUse
from tests.hostile.attacks import NAMES, naming, token_of
from tests.hostile.conftest import CODES

fuzzed = settings(
    max_examples=300, derandomize=True, deadline=5000, suppress_health_check=[HealthCheck.too_slow]
)
words = st.one_of(st.sampled_from(NAMES), st.text(max_size=30), st.integers().map(str), st.floats().map(str))
COMMANDS = ["run", "certify", "replay", "list", "explain", "compare", "report", "frob", "--frob"]
OPTIONS = [
    *("--seed", "--runs", "--for", "--deadline", "--jobs", "--fault", "--tiers", "--store", "--mutant"),
    *("--dir", "--json", "--plan", "--points", "--profile", "--agents", "--depth", "--bias", "--with"),
    *("--pass-env", "--render", "--trust"),
]
anything = st.recursive(st.none() | st.integers(-(2**63), 2**64 - 1) | st.text(), st.lists, max_leaves=20)


@fuzzed
@given(st.sampled_from(COMMANDS), st.lists(words | st.sampled_from(OPTIONS), max_size=6))
def test_any_command_line(command, arguments):
    code, err = answer([command, *arguments])
    assert code in CODES - {4}, err
    assert "Traceback" not in err
    assert "\x1b" not in err
    assert err.count("\n") <= 1


def answer(arguments):
    err = io.StringIO()
    handler, path = signal.getsignal(signal.SIGTERM), list(sys.path)
    with (
        tempfile.TemporaryDirectory() as place,
        contextlib.chdir(place),
        patch.object(sys, "argv", ["chaoskit", *arguments]),
        patch("chaoskit.cli.main.protect_output"),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as done:
            return done.code or 0, err.getvalue()
        finally:
            signal.signal(signal.SIGTERM, handler)
            sys.path[:] = path
    return 0, err.getvalue()


@fuzzed
@given(st.one_of(st.text(), st.binary().map(token_of), st.text(alphabet="ck1-_AZaz09=", max_size=50)))
@example("ck1-" + "\x00")
def test_any_text_as_a_token(text):
    with contextlib.suppress(repro.BadToken):
        repro.decode(text)


@fuzzed
@given(
    st.recursive(st.none() | st.integers(-(2**63), 2**64 - 1) | st.text(), st.lists, max_leaves=20), st.data()
)
def test_any_content_of_a_token(value, data):
    known = repro.decode(naming("payments"))
    fields = msgspec.to_builtins(known)
    fields[data.draw(st.sampled_from(sorted(Repro.__struct_fields__)))] = value
    with contextlib.suppress(repro.BadToken):
        repro.decode(token_of(msgspec.msgpack.encode(fields)))


@fuzzed
@given(st.one_of(st.binary(), st.text().map(lambda text: text.encode("utf-8", "replace"))))
@example(b"class X:\n    def open(self, d): pass\n" + b"(" * 3000)
@example(b"class X:\0 pass")
def test_any_file_as_an_adapter(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("adapter") / "x.py"
    path.write_bytes(content)
    with pytest.raises(BadAdapter) as refused:
        read("x", f"{path}:X")
    assert str(refused.value)


@fuzzed
@given(
    st.one_of(
        st.binary(), st.recursive(st.none() | st.text(), st.lists, max_leaves=9).map(msgspec.json.encode)
    )
)
def test_any_file_as_a_certificate(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("certificate") / "x.json"
    path.write_bytes(content)
    with pytest.raises(WrongUse):
        load(path)


@fuzzed
@given(st.text())
@example("\x1b]0;owned\x07\r\x9b2J\u202e")
def test_no_text_steers_a_terminal(text):
    assert all(c.isprintable() or c in "\n\t" for c in harmless(text))


def test_files_of_a_real_run_are_accepted():
    """The fuzzers above would also pass if nothing were ever accepted."""
    scoreboard = Path(__file__).parent.parent.parent / "docs" / "scoreboard"
    assert load(next(scoreboard.glob("*.json"))).findings is not None
    assert repro.decode(naming("payments")).scenario == "payments"
