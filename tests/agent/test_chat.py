"""The chat as a user sees it: real processes, pipes as keyboard, and kill -9 in between."""

import asyncio
import http.server
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from reference_agent.messages import Message, ToolCall
from reference_agent.providers.base import TextDelta
from reference_agent.terminal import notes as note_taking
from reference_agent.terminal.screen import Screen, rendered
from reference_agent.turn.retry import Restarted

# Kills itself with SIGKILL the first time it passes the persist point given as POINT:PHASE.
KILLED = """
import os, signal, sys
at = tuple(sys.argv.pop(1).split(":"))
def listen(event, args):
    if event == "persist.point" and args == at:
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(listen)
from reference_agent.terminal.cli import main
sys.exit(main())
"""
# A disk on which no checkpoint can be written.
FULL = """
import errno, sys
def listen(event, args):
    if event == "persist.point" and args == ("checkpoint.write", "before"):
        raise OSError(errno.ENOSPC, "No space left on device")
sys.addaudithook(listen)
from reference_agent.terminal.cli import main
sys.exit(main())
"""
# A tool that never returns.
STUCK = """
import asyncio, sys
from reference_agent.terminal import cli, notes
async def note(self, args, key):
    print("working", flush=True)
    await asyncio.Event().wait()
notes.Notes.note = note
sys.exit(cli.main())
"""
POINTS = (
    "run.start",
    "log.append",
    "message.user",
    "decision.record",
    "message.assistant",
    "call.issue",
    "note.append",
    "call.finish",
    "message.tool",
    "checkpoint.write",
    "run.complete",
)
MOMENTS = [f"{point}:{phase}" for point in POINTS for phase in ("before", "after")]
TIMEOUT = 60


class Terminal:
    """Runs the command in one state directory."""

    def __init__(self, state):
        self.state = state
        proxies = ("http_proxy", "https_proxy", "all_proxy")
        self.env = {k: v for k, v in os.environ.items() if k.lower() not in proxies}

    def command(self, *args, killed_at=None, code=None):
        start = ["-c", code] if code else ["-m", "reference_agent.terminal.cli"]
        if killed_at:
            start = ["-c", KILLED, killed_at]
        return [sys.executable, *start, args[0], "--state", str(self.state), *args[1:]]

    def __call__(self, *args, typed="", **how):
        done = subprocess.run(
            self.command(*args, **how),
            input=typed,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert "Traceback" not in done.stderr
        return done

    @contextmanager
    def open(self, *args, **how):
        process = subprocess.Popen(
            self.command(*args, **how),
            env=self.env,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def notes(self, session="s1"):
        path = self.state / f"{session}.scratch" / "notes.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line.split("\t")[1]) for line in lines]


@pytest.fixture
def run(tmp_path):
    return Terminal(tmp_path / "state")


@contextmanager
def service(answer):
    """An HTTP service; `answer` gets the handler of each request."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            answer(self)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


def test_a_new_session_prints_its_id_first_and_the_line_to_resume_it(run):
    done = run("chat", typed="buy milk\n/quit\nnot read any more\n")
    first, second, *_ = done.stdout.splitlines()
    session = first.removeprefix("session ")
    assert second == (f"to resume it: reference-agent chat --state {run.state} --resume {session}")
    assert "agent: I have written that down (note 1)." in done.stdout
    assert (done.returncode, done.stderr, run.notes(session)) == (0, "", ["buy milk"])


@pytest.mark.requirement("K7")
@pytest.mark.parametrize("command", [("chat", "--resume"), ("--resume",)])
def test_resume_at_start_up_shows_the_conversation(run, command):
    run("say", "--new", "s1", "buy milk")
    words = [*command, "s1"] if command[0] == "chat" else ["--resume", "s1"]
    done = subprocess.run(
        [sys.executable, "-m", "reference_agent.terminal.cli", *words, "--state", run.state],
        input="",
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "session s1, 4 messages",
        "you: buy milk",
        '  * note({"text": "buy milk"})',
        "    = note 1",
        "agent: I have written that down (note 1).",
    ]


@pytest.mark.requirement("K7")
@pytest.mark.parametrize("moment", MOMENTS)
def test_after_a_kill_resume_shows_the_conversation_and_finishes_the_request(run, moment):
    run("say", "--new", "s1", "first")
    killed = run("chat", "--resume", "s1", typed="second\n", killed_at=moment)
    assert killed.returncode == -signal.SIGKILL, "the point was not passed"
    accepted = moment != "run.start:before"  # else it was never durable, and never acknowledged
    done = run("chat", "--resume", "s1")
    assert (done.returncode, done.stderr) == (0, "")
    expected = ["first", "second"] if accepted else ["first"]
    assert [line[5:] for line in done.stdout.splitlines() if line[:5] == "you: "] == expected
    assert done.stdout.count("agent: I have written that down") == len(expected)
    assert run.notes() == expected
    again = run("chat", "--resume", "s1", typed="third\n")
    assert "[interrupted" not in again.stdout
    assert run.notes() == [*expected, "third"]


@pytest.mark.requirement("K7")
def test_a_kill_during_the_recovery_loses_nothing_either(run):
    run("say", "--new", "s1", "first")
    run("chat", "--resume", "s1", typed="second\n", killed_at="note.append:after")
    again = run("chat", "--resume", "s1", killed_at="call.finish:before")
    assert again.returncode == -signal.SIGKILL
    assert "agent: I have written that down (note 2)" in run("chat", "--resume", "s1").stdout
    assert run.notes() == ["first", "second"]


@pytest.mark.requirement("K7")
def test_resume_in_a_chat_switches_to_the_other_conversation(run):
    run("say", "--new", "other", "theirs")
    run("chat", "--resume", "other", typed="unfinished\n", killed_at="call.issue:after")
    run("say", "--new", "s1", "mine")
    done = run("chat", "--resume", "s1", typed="more\n/resume other\nhere\n/resume s1\n")
    there = done.stdout[done.stdout.index("session other") :]
    for line in ("you: theirs", "[interrupted", "you: unfinished", "you: more"):
        assert line in there
    assert (run.notes("other"), run.notes()) == (["theirs", "unfinished", "here"], ["mine", "more"])
    assert (done.returncode, done.stderr) == (0, "")


def test_a_resume_that_fails_leaves_the_chat_where_it_was(run):
    run("say", "--new", "s1", "one")
    typed = "/resume\n/resume nobody\n/resume ../up\n/nonsense\ntwo\n"
    done = run("chat", "--resume", "s1", typed=typed)
    assert (done.returncode, run.notes()) == (0, ["one", "two"])
    problems = done.stderr.splitlines()
    assert len(problems) == 4
    assert f"no session nobody in {run.state}" in problems[1]


@pytest.mark.requirement("K7", "O1")
@pytest.mark.parametrize("moment", ["run.start:after", "call.finish:before", "log.append:after"])
def test_a_session_in_files_is_killed_shown_listed_and_resumed(run, moment):
    files = ("--store", "files")
    assert run("say", *files, "--new", "s1", "one").returncode == 0
    killed = run("say", *files, "--request", "r", "s1", "two", killed_at=moment)
    assert killed.returncode == -signal.SIGKILL
    shown = run("show", *files, "s1").stdout
    assert "[not answered yet: two]" in shown
    assert "--store files --resume s1" in shown
    assert run("sessions").stdout == "no sessions yet\n"
    assert run("sessions", *files).stdout.startswith("s1  ")
    done = run("chat", *files, "--resume", "s1", typed="/sessions\n/quit\n")
    assert "finishing it now" in done.stdout
    assert run.notes() == ["one", "two"]
    assert not (run.state / "sessions.db").exists()
    assert run("show", "s1").returncode == 2
    wrong = run("say", "--new", "s1", "three")
    assert "session s1 is in the store files" in wrong.stderr


def test_status_help_and_sessions_are_printed(run):
    run("say", "--new", "s1", "one")
    done = run("chat", "--resume", "s1", typed="/status\n/sessions\n/help\n")
    for line in ("saved      everything", "questions  none", "s1  4 messages", "/resume ID"):
        assert line in done.stdout
    assert run("sessions").stdout == "s1  4 messages\n"


def test_show_prints_what_is_stored_and_changes_nothing(run):
    run("say", "--new", "s1", "first")
    run("chat", "--resume", "s1", typed="second\n", killed_at="call.issue:after")
    shown = run("show", "s1").stdout
    assert shown == run("show", "s1").stdout
    assert "you: first" in shown
    assert "[not answered yet: second]" in shown
    assert run.notes() == ["first"]


def test_a_repeated_named_request_does_not_run_again(run):
    answers = {run("say", "--new", "s1", "once", "--request", "r1").stdout for _ in range(2)}
    assert answers == {"I have written that down (note 1).\n"}
    assert run.notes() == ["once"]


def test_the_same_text_sent_twice_is_two_notes(run):
    done = run("chat", typed="twice\ntwice\nnotes\n")
    assert "1. twice\n2. twice" in done.stdout


def test_any_bytes_can_be_sent_and_none_control_the_terminal(run):
    done = subprocess.run(
        run.command("chat"),
        input="ö \x1b[2J\n".encode() + b"\xff\n",
        capture_output=True,
        timeout=TIMEOUT,
        check=True,
    )
    assert b"\x1b" not in done.stdout
    assert "ö" in done.stdout.decode()


BAD = [
    (["chat", "--resume", "no/slash"], 2, "letters, digits, - and _"),
    (["chat", "--resume", ""], 2, "letters, digits, - and _"),
    (["show", "x" * 65], 2, "letters, digits, - and _"),
    (["say", "é", "hello"], 2, "letters, digits, - and _"),
    (["chat", "--resume", "nobody"], 2, "no session nobody"),
    (["show", "nobody"], 2, "no session nobody"),
    (["say", "nobody", "hello"], 2, "no session nobody"),
    (["chat", "--url", "http://127.0.0.1:1/v1"], 2, "--url needs --model"),
    (["chat", "--model", "m"], 2, "--model m needs --url"),
    (["chat", "--url", "ftp://x/v1", "--model", "m"], 2, "expected a base URL"),
    (["chat", "--config", "/nowhere.json"], 2, "/nowhere.json: cannot be read"),
    (["chat", "--log", "/nowhere/at/all"], 2, "--log /nowhere/at/all"),
    (["chat", "--cadence", "never"], 2, "invalid choice"),
    (["dance"], 2, "invalid choice"),
    (["say", "s1"], 2, "required: TEXT"),
]


@pytest.mark.parametrize(("args", "code", "text"), BAD)
def test_usage_errors_and_failures_are_one_line_and_an_exit_code(run, args, code, text):
    if args[0] == "dance":
        done = subprocess.run(
            [sys.executable, "-m", "reference_agent.terminal.cli", *args],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    else:
        done = run(*args)
    assert done.returncode == code
    line = done.stderr.splitlines()[-1]
    assert text in line
    assert line.startswith("reference-agent")
    assert not run.state.exists(), "a refused command leaves nothing behind"


def test_a_state_directory_that_cannot_be_created_is_reported(run):
    run.state.write_text("a file")
    for args in (["chat"], ["say", "--new", "s1", "hello"]):
        done = run(*args)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert str(run.state) in done.stderr


def test_a_damaged_database_is_reported_and_left_alone(run):
    run.state.mkdir()
    database = run.state / "sessions.db"
    database.write_bytes(b"no database at all" * 100)
    for args in (["chat"], ["chat", "--resume", "s1"], ["sessions"], ["show", "s1"]):
        done = run(*args)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert f"{database} is damaged" in done.stderr
    assert database.read_bytes() == b"no database at all" * 100


def test_a_damaged_event_log_is_reported_with_its_line_and_the_process_exits(run):
    run("say", "--new", "s1", "hello")
    (run.state / "s1.messages.jsonl").write_text("nonsense\n")
    done = run("chat", "--resume", "s1")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "s1.messages.jsonl, line 1" in done.stderr


def test_a_second_process_on_a_session_is_refused(run):
    run("say", "--new", "s1", "hello")
    with run.open("chat", "--resume", "s1") as first:
        assert first.stdout.readline() == "session s1, 4 messages\n"
        for args in (["chat", "--resume", "s1"], ["say", "s1", "me too"]):
            done = run(*args)
            assert done.returncode == 1
            assert f"session s1 is open in another process (pid {first.pid})" in done.stderr
        chatting = run("chat", typed="/resume s1\nstill here\n")
        assert "is open in another process" in chatting.stderr
        assert "I have written that down" in chatting.stdout
    assert run("say", "s1", "now").returncode == 0


def test_a_spent_budget_is_reported_and_the_chat_continues(run, tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"budget_tokens": 20}')
    done = run("chat", "--config", str(config), typed="one\ntwo\n/status\n")
    assert done.returncode == 0
    assert done.stderr.count("no answer: the budget is spent") >= 1
    assert "of 20" in done.stdout


def test_a_refusal_of_the_model_is_reported_without_the_key_and_the_chat_continues(run):
    seen = []

    def refuse(request):
        seen.append(request.headers["Authorization"])
        request.send_error(401, "who are you")

    run.env["OPENAI_API_KEY"] = "sk-never-shown"
    with service(refuse) as url:
        where = ["--url", url, "--model", "m"]
        done = run("chat", *where, typed="hello\n/status\n")
        said = run("say", "--new", "s1", "hello", *where)
    assert (done.returncode, said.returncode) == (0, 1)
    assert done.stderr.count("\n") == 1
    assert "401" in done.stderr
    assert "saved      everything" in done.stdout
    assert set(seen) == {"Bearer sk-never-shown"}
    assert "sk-never" not in done.stderr + done.stdout + said.stderr


def test_ctrl_c_stops_waiting_for_an_answer_and_the_chat_continues(run):
    asked, over = threading.Event(), threading.Event()

    def hang(_request):
        asked.set()
        over.wait(TIMEOUT)

    with service(hang) as url, run.open("chat", "--url", url, "--model", "m") as process:
        process.stdin.write("hello\n")
        process.stdin.flush()
        assert asked.wait(TIMEOUT)
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == "reference-agent: no answer: interrupted\n"
        out, err = process.communicate("/status\n", TIMEOUT)
        over.set()
    assert (process.returncode, err) == (0, "")
    assert "saved      everything" in out


def test_a_second_ctrl_c_quits_despite_a_hanging_tool_and_loses_nothing_accepted(run):
    run("say", "--new", "s1", "first")
    with run.open("chat", "--resume", "s1", code=STUCK) as process:
        process.stdin.write("second\n")
        process.stdin.flush()
        for line in ("working", "[waiting for a tool"):
            while not process.stdout.readline().startswith(line):
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    assert f"reference-agent chat --state {run.state} --resume s1" in err
    assert "agent: I have written that down (note 2)" in run("chat", "--resume", "s1").stdout
    assert run.notes() == ["first", "second"]


@pytest.mark.requirement("K9")
def test_what_is_not_durable_is_always_reported(run):
    run("say", "--new", "s1", "first")
    done = run("chat", "--resume", "s1", typed="second\n/status\n", code=FULL)
    assert "saved      DEGRADED: not saved yet" in done.stdout
    assert "No space left on device" in done.stderr
    assert done.returncode == 4
    said = run("say", "s1", "third", code=FULL)
    assert (said.returncode, "not saved yet" in said.stderr) == (4, True)
    assert run("chat", "--resume", "s1").returncode == 0
    assert run.notes() == ["first", "second"]  # the third was never accepted, and that was reported


def test_logs_are_written_where_asked(run, tmp_path):
    run("say", "--new", "s1", "hello", "--log", str(tmp_path / "log"))
    events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
    assert "session.open" in events


@pytest.mark.parametrize("cadence", ["turn", "call", "periodic"])
@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_every_cadence_with_and_without_streaming_shows_the_same(run, cadence, stream):
    done = run("chat", stream, "--cadence", cadence, typed="one\n")
    assert done.stdout.splitlines()[3:] == [
        '  * note({"text": "one"})',
        "    = note 1",
        "agent: I have written that down (note 1).",
    ]


@pytest.mark.skipif(
    importlib.util.find_spec("chaoskit.model_server") is None, reason="there is no model server yet"
)
def test_over_http_a_cut_stream_is_reported_and_restarted(run, tmp_path):
    from chaoskit.model_server import Misbehaviour, ModelServer  # noqa: PLC0415

    config = tmp_path / "config.json"
    config.write_text('{"retry_base_delay_ms": 1}')
    with ModelServer([Misbehaviour("cut", after=2)]) as server:
        where = ["--config", str(config), "--url", server.url, "--model", "m"]
        done = run("chat", *where, typed="hello\n")
    assert "[the answer was cut off; starting again]" in done.stdout
    assert done.stdout.rstrip().endswith("agent: You said: hello")
    assert done.returncode == 0


def test_help_imports_nothing_of_the_agent():
    code = (
        "import sys\nfrom reference_agent.terminal import cli\n"
        "try: cli.main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('asyncio', 'httpx2', 'rich', 'click', 'aiosqlite') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


def test_a_chat_without_a_url_imports_no_http_client(run):
    code = (
        "import sys\nfrom reference_agent.terminal import cli\n"
        f"cli.main(['say', '--new', 's1', 'x', '--state', {str(run.state)!r}])\n"
        "print('httpx2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")


# --- the parts


def test_a_torn_note_is_ignored_and_cut_off(tmp_path):
    notes = note_taking.Notes()
    notes.directory = tmp_path
    (tmp_path / "notes.txt").write_text('k1\t"whole"\nk2\t"to')
    assert asyncio.run(notes.verify({}, "k2")) is None
    assert asyncio.run(notes.note({"text": "whole too"}, "k2")) == "note 2"
    assert (tmp_path / "notes.txt").read_text() == 'k1\t"whole"\nk2\t"whole too"\n'


def test_the_screen_shows_streamed_text_once_and_says_when_it_is_discarded(capsys):
    screen, said = Screen(), []
    screen.follow(said)
    said.append(Message("user", "go"))
    for item in (TextDelta("Hal"), Restarted(), TextDelta("Hal"), TextDelta("lo")):
        screen.watch(item)
    said.append(Message("assistant", "Hallo", (ToolCall("c", "note", {"text": "x"}),)))
    screen.hear("turn", {})
    assert capsys.readouterr().out.splitlines() == [
        "you: go",
        "agent: Hal",
        "[the answer was cut off; starting again]",
        "agent: Hallo",
        '  * note({"text": "x"})',
    ]


def test_a_megabyte_is_shortened_on_the_screen():
    (line,) = rendered(Message("tool", "x" * 1_000_000, call_id="c", tool="t"))
    assert line.endswith("... (998000 more characters)")
