"""Attacks on the command line of `reference-agent`: wrong options, wrong paths, a machine that fails,
signals. Real processes. Each row of a table is one attack; it may cost one line on stderr, and never a
traceback."""

import ctypes
import json
import os
import pty
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

TIMEOUT = 60
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name != "PYTHONUNBUFFERED" and not name.lower().endswith("_proxy")
}
COMMAND = [sys.executable, "-m", "reference_agent.terminal.cli"]


def run(*args, cwd, code=None, **how):
    command = [sys.executable, "-c", code] if code else COMMAND
    wanted = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **how}
    return subprocess.run([*command, *args], cwd=cwd, env=ENVIRONMENT, timeout=TIMEOUT, check=False, **wanted)


def line_of(done, code):
    """The only line on stderr."""
    error = done.stderr.decode()
    assert (done.returncode, error.count("\n")) == (code, 1), error
    assert error.startswith("reference-agent")
    return error


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A directory with a session `s1` and with things that are no state directory."""
    home = tmp_path_factory.mktemp("home")
    assert run("say", "s1", "milk", "--new", "--request", "r1", cwd=home).returncode == 0
    (home / "file").write_text("a file")
    (home / "dangling").symlink_to(home / "nowhere")
    (home / "loop").symlink_to(home / "loop")
    os.mkfifo(home / "pipe")
    return home


def tree(home):
    return {path: path.lstat().st_mtime_ns for path in home.rglob("*") if path.suffix not in (".db-shm",)}


# --- usage errors

LONG = "x" * 300
NOT_TEXT = b"\xff".decode(errors="surrogateescape")
USAGE = {
    "no such command": ["dance"],
    "an empty command": [""],
    "an option that does not exist": ["sessions", "--nonsense"],
    "an argument too many, on two lines": ["sessions", "more\nand more"],
    "no text": ["say", "s1"],
    "an empty text": ["say", "s1", ""],
    "an empty state directory": ["sessions", "--state", ""],
    "an empty settings file": ["sessions", "--config", ""],
    "a settings file that is a directory": ["sessions", "--config", "."],
    "an empty log file": ["sessions", "--log", ""],
    "a log file that is a directory": ["sessions", "--log", "."],
    "a log file in a file": ["sessions", "--log", "file/log"],
    "an empty store": ["sessions", "--store", ""],
    "a store with two lines": ["sessions", "--store", "sql\nite"],
    "a store that is close": ["sessions", "--store", "sqlit"],
    "an empty session": ["show", ""],
    "a session that is a path": ["show", "../s1"],
    "a session that is not text": ["show", NOT_TEXT],
    "a long session": ["show", LONG],
    "an unknown session to show": ["show", "nobody"],
    "an unknown session to resume": ["chat", "--resume", "nobody"],
    "an unknown session to say something": ["say", "nobody", "hello"],
    "a session in another store": ["show", "s1", "--store", "files"],
    "an empty request": ["say", "s1", "milk", "--request", ""],
    "a request that is not text": ["say", "s1", "milk", "--request", NOT_TEXT],
    "a long request": ["say", "s1", "milk", "--request", LONG],
    "a request with other content": ["say", "s1", "bread", "--request", "r1"],
    "an empty model": ["say", "s1", "milk", "--model", "", "--url", "http://127.0.0.1:1"],
    "an empty address of a model": ["say", "s1", "milk", "--model", "m", "--url", ""],
    "no address of a model": ["say", "s1", "milk", "--model", "m", "--url", "http://"],
    "half an address of a model": ["say", "s1", "milk", "--model", "m", "--url", "http://[::1"],
    "an empty cadence": ["say", "s1", "milk", "--cadence", ""],
    "an empty host": ["serve", "--host", ""],
    "a host of spaces": ["serve", "--host", " "],
    "a host that is a URL": ["serve", "--host", "http://localhost"],
    "an empty allowed host": ["serve", "--allow-host", ""],
    "any allowed host": ["serve", "--allow-host", "*"],
    "an allowed host with a port": ["serve", "--allow-host", "localhost:80"],
    "a negative port": ["serve", "--port", "-1"],
    "a port beyond 64 bits": ["serve", "--port", "18446744073709551616"],
    "a port of many digits": ["serve", "--port", "9" * 5000],
    "an empty port": ["serve", "--port", ""],
    "a port in other digits": ["serve", "--port", "\u0661"],
    "no seconds": ["serve", "--sweep", "0"],
    "no seconds, with a unit": ["serve", "--sweep", "0s"],
    "too few seconds for a number": ["serve", "--sweep", "1e-400"],
    "infinite seconds": ["serve", "--sweep", "inf"],
    "no number of seconds": ["serve", "--sweep", "nan"],
    "too many seconds": ["serve", "--sweep", "1e300"],
}


# One process per attack, forked from one that has imported everything: importing takes longer than refusing.
FORKING = """
import json, os, signal, sys, tempfile
from reference_agent.terminal import chat, cli, serve

def attacked(args):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if not pid:
            signal.alarm(20)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            os._exit(cli.main(args))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return [code, *(os.pread(file.fileno(), 10**6, 0).decode() for file in (out, err))]

print(json.dumps([attacked(args) for args in json.load(sys.stdin)]))
"""


@pytest.fixture(scope="module")
def refusals(home):
    before = tree(home)
    rows = json.dumps(list(USAGE.values())).encode()
    done = run(cwd=home, code=FORKING, input=rows, stdin=None)
    found = dict(zip(USAGE, json.loads(done.stdout), strict=True))
    return found, tree(home).keys() - before.keys()


@pytest.mark.parametrize("what", USAGE)
def test_a_usage_error_is_one_line_and_creates_nothing(refusals, what):
    found, created = refusals
    code, out, err = found[what]
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith("reference-agent")
    assert not created


COMMANDS = {
    "sessions": ["sessions"],
    "show": ["show", "s1"],
    "say": ["say", "s1", "milk"],
    "say --new": ["say", "s1", "milk", "--new"],
    "chat": ["chat"],
    "chat --resume": ["chat", "--resume", "s1"],
    "serve": ["serve", "--port", "0"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_state_directory_that_is_a_file_is_refused(home, command):
    assert "expected a directory" in line_of(run(*COMMANDS[command], "--state", "file", cwd=home), 2)


@pytest.mark.parametrize("state", ["file/below", "loop", "dangling", "pipe", LONG, "/proc/nowhere"])
def test_no_state_directory_can_be_there(home, state):
    line_of(run("say", "s1", "milk", "--new", "--state", state, cwd=home), 2)
    assert (home / "file").read_text() == "a file"


# --- a machine that fails


def no_space():
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def not_almighty():
    """Without CAP_DAC_OVERRIDE, which root has, permissions apply to root too."""
    ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP


@pytest.mark.parametrize("store", ["sqlite", "files"])
@pytest.mark.parametrize("command", ["say", "chat"])
def test_a_full_disk_is_one_line_with_a_remedy(tmp_path, command, store):
    args = ["say", "s1", "milk", "--new"] if command == "say" else ["chat"]
    done = run(*args, "--store", store, cwd=tmp_path, preexec_fn=no_space)
    assert "then run the command again" in line_of(done, 4)


@pytest.mark.parametrize("what", ["directory", "--state", "--log"])
def test_a_place_that_cannot_be_written_to_is_one_line_with_a_remedy(tmp_path, what):
    place = tmp_path / "place"
    place.mkdir(mode=0o500)
    args = {"directory": (), "--state": ("--state", "place/state"), "--log": ("--log", "place/log")}[what]
    cwd = place if what == "directory" else tmp_path
    done = run("say", "s1", "milk", "--new", *args, cwd=cwd, preexec_fn=not_almighty)
    assert "change its permissions" in line_of(done, 4)


TALKING = {
    "--help": (["--help"], b""),
    "sessions": (["sessions"], b""),
    "show": (["show", "s1"], b""),
    "say": (["say", "s1", "milk", "--request", "r1"], b""),
    "chat": (["chat", "--resume", "s1"], b"/status\n/help\n"),
    "serve": (["serve", "--port", "0"], b""),
}


@pytest.mark.parametrize("command", TALKING)
def test_a_full_output_is_one_line_with_a_remedy(home, command):
    args, typed = TALKING[command]
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = run(*args, cwd=home, stdout=full, input=typed, stdin=None)
    assert "standard output: No space left on device: free some space" in line_of(done, 4)


@pytest.mark.parametrize("command", TALKING)
def test_an_output_that_nobody_reads_is_no_error(home, command):
    args, typed = TALKING[command]
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = run(*args, cwd=home, stdout=writes, input=typed, stdin=None)
    finally:
        os.close(writes)
    assert (done.returncode, done.stderr) == (0, b"")


def shell(script, cwd):
    command = ["/bin/sh", "-c", script, "sh", *COMMAND]
    how = {"capture_output": True, "timeout": TIMEOUT}
    return subprocess.run(command, cwd=cwd, env=ENVIRONMENT, check=False, **how)


def test_closed_streams_are_not_replaced_by_files(home):
    assert "standard output is closed" in line_of(shell('"$@" sessions >&-', home), 4)
    silent = shell('"$@" show nobody 2>&-', home)
    assert (silent.returncode, silent.stdout, silent.stderr) == (2, b"", b"")
    full = shell('"$@" show nobody 2>/dev/full', home)
    assert (full.returncode, full.stdout) == (2, b"")
    no_input = shell('"$@" chat --resume s1 <&-', home)
    assert (no_input.returncode, no_input.stderr) == (0, b"")


def test_a_log_that_cannot_be_written_fails_nothing(home):
    done = run("say", "s1", "milk", "--request", "r1", "--log", "/dev/full", cwd=home)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"I have written that down (note 1).\n", b"")


BROKEN = """
import sys
from reference_agent.terminal import cli
from reference_agent.turn.agent import Agent
async def broken(self, *_, **__):
    raise RuntimeError("on two\\nlines")
Agent._take_turns = broken
sys.exit(cli.main())
"""


def test_a_bug_is_one_line_and_its_traceback_only_with_debug(tmp_path):
    args = ("say", "s1", "milk", "--new", "--log", "log")
    line = line_of(run(*args, cwd=tmp_path, code=BROKEN), 4)
    assert "RuntimeError: on two lines: this is a bug; --debug" in line
    assert "Traceback" in (tmp_path / "log").read_text()
    done = run(*args, "--debug", cwd=tmp_path, code=BROKEN)
    assert done.returncode == 4
    assert b"Traceback" in done.stderr
    assert b"in broken" in done.stderr


def test_what_commands_create_is_accessible_to_its_owner_only(tmp_path):
    assert run("say", "s1", "milk", "--new", "--log", "log", cwd=tmp_path, umask=0).returncode == 0
    assert [path for path in tmp_path.rglob("*") if path.stat().st_mode & 0o077] == []


# --- signals

STUCK = """
import asyncio, sys
from reference_agent.terminal import cli, notes
async def note(self, args, key):
    print("working", flush=True)
    await asyncio.Event().wait()
notes.Notes.note = note
sys.exit(cli.main())
"""


@contextmanager
def started(*args, cwd, code=None):
    command = [sys.executable, "-c", code] if code else COMMAND
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([*command, *args], cwd=cwd, env=ENVIRONMENT, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process, text):
    while text not in (line := process.stdout.readline()):
        assert line, process.stderr.read()


def test_sigterm_at_the_prompt_closes_the_session(tmp_path):
    keyboard, terminal = pty.openpty()
    how = {"stdin": terminal, "stdout": terminal, "stderr": subprocess.PIPE, "env": ENVIRONMENT}
    with subprocess.Popen([*COMMAND, "chat"], cwd=tmp_path, **how) as process:
        shown = b""
        while not shown.endswith(b"you> "):
            shown += os.read(keyboard, 4096)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 143
        assert process.stderr.read() == b""
    for descriptor in (keyboard, terminal):
        os.close(descriptor)
    state = tmp_path / ".reference-agent"
    assert not list(state.glob("*-wal")), "the database was not closed"


def test_sigterm_in_a_chat_that_works_says_how_to_continue(tmp_path):
    with started("chat", cwd=tmp_path, code=STUCK) as process:
        process.stdin.write("milk\n")
        process.stdin.flush()
        read_until(process, "working")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 143
    assert err.startswith("reference-agent: terminated; to continue: reference-agent chat --resume")
    assert err.count("\n") == 1
    session = err.split()[-1]
    resumed = run("chat", "--resume", session, cwd=tmp_path)
    assert b"I have written that down (note 1)" in resumed.stdout


def test_sigterm_ends_a_request_that_a_repeat_completes(tmp_path):
    args = ("say", "s1", "milk", "--new", "--request", "r1")
    with started(*args, cwd=tmp_path, code=STUCK) as process:
        read_until(process, "working")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, err) == (143, "")
    assert run(*args, cwd=tmp_path).stdout == b"I have written that down (note 1).\n"
