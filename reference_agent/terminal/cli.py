"""`reference-agent`: the durable agent in a terminal.

    reference-agent chat                  a new session; prints its id and the line to resume it first
    reference-agent chat --resume ID      the conversation so far, then what a crash left unfinished
    reference-agent sessions              list the sessions
    reference-agent show ID               a conversation, without touching it
    reference-agent say ID TEXT           one request, for scripts: prints the answer and nothing else
    reference-agent serve                 the HTTP API, on this machine only unless configured otherwise

Exit codes: 0 done; 1 it failed; 2 usage error, such as an unknown session; 4 the machine failed (a full
disk, for example) or the program has a bug; 130 after Ctrl-C; 143 after SIGTERM. One line on stderr gives the
reason. Output that nobody reads (`| head -1`) is not an error.

Whatever the commands create is accessible to its owner only, whatever the umask.

Uses argparse, and imports nothing of the agent before the command is known, so `--help` takes milliseconds.
The default command is `chat`: `reference-agent --resume ID` works as well.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, NoReturn

from reference_agent.store.registry import DEFAULT, STORES, UnknownName, name_in
from reference_agent.terminal.problems import (
    INTERNAL,
    INTERRUPTED,
    TERMINATED,
    WRONG_USE,
    CannotWrite,
    NoReader,
    Problem,
    put,
)

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

HELP = ("-h", "--help")
EXIT_CODES = """exit codes: 0 done, 1 failed, 2 usage error, 4 the machine failed or
the program has a bug, 130 after Ctrl-C, 143 after SIGTERM; one line on stderr
gives the reason"""
LONGEST_SWEEP = 86_400.0
EXAMPLES = {
    "": (
        "reference-agent chat                    start a session",
        "reference-agent chat --resume ID        resume it, also after a kill -9",
        "reference-agent say ID TEXT --new       send one request, for scripts",
    ),
    "chat": ("reference-agent chat --store files", "reference-agent chat --resume ID"),
    "sessions": ("reference-agent sessions", "reference-agent sessions --store files"),
    "show": ("reference-agent show ID", "reference-agent show ID --store files"),
    "say": ("reference-agent say ID 'Pay invoice 17' --new", "reference-agent say ID 'Go on' --request r2"),
    "serve": (
        "reference-agent serve",
        "reference-agent serve --port 0 --store files",
        "reference-agent serve --host 0.0.0.0 --allow-host agent.example",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or (given[0].startswith("-") and given[0] not in HELP):
        given.insert(0, "chat")
    try:
        _check_streams()
        signal.signal(signal.SIGTERM, _leave_at_once)
        code = _ended(given)
        put("")
    except NoReader:
        code = 0
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:  # noqa: BLE001 - a bug is one line too
        problem = _problem(error)
        code = problem.code
        _complain(str(problem), with_traceback=code == INTERNAL and "--debug" in given)
    _discard_unwritten()
    return code


def _problem(error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case CannotWrite():
            return Problem(str(error), INTERNAL)
        case _:
            what = f"{type(error).__name__}: {error}"
            return Problem(f"internal error: {what}: this is a bug; --debug shows where it is", INTERNAL)


def _ended(given: Sequence[str]) -> int:
    try:
        options = _parser().parse_args(given)
        with _private_files():
            return _obey(options)
    except SystemExit as end:  # after --help and usage errors, and at the prompt after SIGTERM
        return end.code if isinstance(end.code, int) else WRONG_USE


def _complain(text: str, *, with_traceback: bool) -> None:
    """Within the handler of the exception. (`screen` cannot be imported before the command is known.)"""
    with suppress(OSError):
        if with_traceback:
            import traceback  # noqa: PLC0415

            traceback.print_exc()
        sys.stderr.write(f"reference-agent: {_on_one_line(text)}\n")
        sys.stderr.flush()


def _on_one_line(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)


def _leave_at_once(_number: int, _frame: object) -> NoReturn:
    """Nothing is lost: every command but the prompt of a chat and the server may be killed at any time."""
    os._exit(TERMINATED)


@contextmanager
def _private_files() -> Iterator[None]:
    """One place for all files: the umask also applies to those that SQLite and other stores create."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


# --- standard streams


def _check_streams() -> None:
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            # Opened in order, so that each gets its own number. Otherwise a database could get it.
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115
            if name == "stdout":
                raise Problem("standard output is closed: redirect it, for example to /dev/null", INTERNAL)
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # input may contain arbitrary bytes


def _discard_unwritten() -> None:
    """What could not be written would be tried again at exit, and change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _obey(options: argparse.Namespace) -> int:
    # Deferred imports: `--help` pays for neither, and a chat does not pay for a server.
    if options.command == "serve":
        from reference_agent.terminal import serve  # noqa: PLC0415

        return serve.run(options)
    from reference_agent.terminal import chat  # noqa: PLC0415

    return chat.run(options)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line: the usage would bury it."""
        self.exit(WRONG_USE, f"{self.prog}: error: {_on_one_line(message)} (see {self.prog} --help)\n")

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """argparse would ignore that the help cannot be written."""
        assert file is None
        put(self.format_help())


def _parser() -> Parser:
    parser = Parser(
        prog="reference-agent",
        description="A durable agent in the terminal. Kill it at any time, and resume.",
        **_ending(""),
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    place, model = _place(), _model()
    chat = commands.add_parser(
        "chat", parents=[place, model], help="chat with the agent (the default command)", **_ending("chat")
    )
    chat.add_argument("--resume", metavar="ID", help="resume a session")
    commands.add_parser("sessions", parents=[place], help="list all sessions", **_ending("sessions"))
    show = commands.add_parser("show", parents=[place], help="print a conversation", **_ending("show"))
    show.add_argument("id", metavar="ID")
    say = commands.add_parser(
        "say",
        parents=[place, model],
        help="send one request and print the answer, for scripts",
        **_ending("say"),
    )
    say.add_argument("id", metavar="ID")
    say.add_argument("text", type=_message, metavar="TEXT")
    say.add_argument("--new", action="store_true", help="create the session if it does not exist")
    say.add_argument(
        "--request",
        type=_text,
        metavar="NAME",
        help="name of the request; a repeated name returns the recorded answer and runs nothing,"
        " and with another TEXT it is an error",
    )
    serve = commands.add_parser(
        "serve", parents=[place, model], help="serve the HTTP API", **_ending("serve")
    )
    serve.add_argument(
        "--host",
        type=_host,
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on (127.0.0.1: this machine only; there is no authentication)",
    )
    serve.add_argument(
        "--allow-host",
        action="append",
        type=_host_name,
        default=[],
        metavar="NAME",
        help="answer requests to this host name or address too, besides localhost and --host;"
        " may be repeated (web pages could otherwise reach the server by a name of their own)",
    )
    serve.add_argument(
        "--port", type=_port, default=8420, help="port to listen on; 0 picks a free one (default: 8420)"
    )
    serve.add_argument(
        "--sweep",
        type=_seconds,
        default=1.0,
        metavar="SECONDS",
        help="seconds between two checks of deadlines (default: 1)",
    )
    return parser


def _ending(command: str) -> dict[str, Any]:
    """What the help of a command ends with: examples, and what the exit codes mean."""
    lines = "\n".join(f"  {example}" for example in EXAMPLES[command])
    ending = f"examples:\n{lines}\n\n{EXIT_CODES}"
    return {"epilog": ending, "formatter_class": argparse.RawDescriptionHelpFormatter}


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected 0 to 65535, found {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST_SWEEP:
        raise argparse.ArgumentTypeError(
            f"expected seconds greater than 0 and at most {LONGEST_SWEEP:.0f}, found {text[:80]!r}"
        )
    return seconds


def _path(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError(f"expected a path, found {text!r}")
    return text


def _text(text: str) -> str:
    """A name that is stored or sent. The shell may pass bytes that are not valid text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"expected valid UTF-8, found {text[:80]!r}") from None
    if not text.strip() or len(text) > 200:
        raise argparse.ArgumentTypeError(f"expected 1 to 200 characters, found {text[:80]!r}")
    return text


def _message(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError(f"expected a message, found {text!r}")
    return text


def _host(text: str) -> str:
    """`''` would be every address of the machine."""
    if not re.fullmatch(r"[^\s/@\[\]]+", text):
        raise argparse.ArgumentTypeError(f"expected an address or a host name, found {text[:80]!r}")
    return text


def _host_name(text: str) -> str:
    """As in a `Host` header, without a port."""
    if re.fullmatch(r"\[?[0-9a-fA-F]*:[0-9a-fA-F:.]+\]?", text):
        return f"[{text.strip('[]')}]"
    if not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", text):
        raise argparse.ArgumentTypeError(f"expected a host name or an address, no port, found {text[:80]!r}")
    return text


def _store(text: str) -> str:
    """A name, or a URL that begins with one."""
    try:
        STORES.reference(name_in(text))
    except UnknownName as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


class _StoreNames:
    """For --help, and evaluated only then: it reads the entry points of every installed package."""

    def __iter__(self) -> Iterator[str]:
        return iter(STORES.names())

    def __contains__(self, _text: str) -> bool:
        return True  # `_store` validates it


def _place() -> Parser:
    """Options for paths and stores, shared by every command."""
    parser = Parser(add_help=False)
    parser.add_argument(
        "--state", type=_path, metavar="DIR", help="the state directory (default: .reference-agent)"
    )
    parser.add_argument(
        "--store",
        type=_store,
        choices=_StoreNames(),
        metavar="NAME",
        help=f"where sessions are kept: %(choices)s (default: {DEFAULT})",
    )
    parser.add_argument("--config", type=_path, metavar="FILE", help="read settings from a JSON file")
    parser.add_argument("--log", type=_path, metavar="FILE", help="append structured logs to a file")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an internal error")
    return parser


def _model() -> Parser:
    """Options for the model. There is no option for a key: a command line is no place for one."""
    parser = Parser(add_help=False)
    parser.add_argument(
        "--url",
        type=_text,
        help="an OpenAI-compatible service, such as http://localhost:8000/v1"
        " (the key is read from the environment variable OPENAI_API_KEY, or from the"
        " variable that the settings name)",
    )
    parser.add_argument("--model", type=_text, metavar="NAME", help="the model to use there")
    parser.add_argument(
        "--stream",
        action=argparse.BooleanOptionalAction,
        help="show the answer while it arrives (the default)",
    )
    parser.add_argument(
        "--cadence",
        choices=("turn", "call", "periodic"),
        help="when checkpoints are written (default: after each turn)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
