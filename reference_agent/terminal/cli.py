"""`reference-agent`: the durable agent in a terminal.

    reference-agent chat                  a new session; prints its id and the line to resume it first
    reference-agent chat --resume ID      the conversation so far, then what a crash left unfinished
    reference-agent sessions              list the sessions
    reference-agent show ID               a conversation, without touching it
    reference-agent say ID TEXT           one request, for scripts: prints the answer and nothing else
    reference-agent serve                 the HTTP API, on this machine only unless configured otherwise

Exit codes: 0 done; 1 it failed (one line on stderr says why); 2 usage error; 130 interrupted.

Uses argparse, and imports nothing of the agent before the command is known, so `--help` takes milliseconds.
The default command is `chat`: `reference-agent --resume ID` works as well.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from reference_agent.store.registry import DEFAULT, STORES, UnknownName, name_in

HELP = ("-h", "--help")
INTERRUPTED = 130  # the shell's exit code for a process ended by Ctrl-C
EXIT_CODES = """exit codes: 0 done, 1 failed (one line on stderr gives the reason),
2 usage error, 130 interrupted"""
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
    "serve": ("reference-agent serve", "reference-agent serve --port 0 --store files"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or (given[0].startswith("-") and given[0] not in HELP):
        given.insert(0, "chat")
    options = _parser().parse_args(given)
    try:
        return _obey(options)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `reference-agent show ID | head`: the reader is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _obey(options: argparse.Namespace) -> int:
    # Deferred imports: `--help` pays for neither, and a chat does not pay for a server.
    if options.command == "serve":
        from reference_agent.terminal import serve  # noqa: PLC0415

        return serve.run(options)
    from reference_agent.terminal import chat  # noqa: PLC0415

    return chat.run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
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
    say.add_argument("text", metavar="TEXT")
    say.add_argument("--new", action="store_true", help="create the session if it does not exist")
    say.add_argument(
        "--request",
        metavar="NAME",
        help="name of the request; a repeated name returns the recorded answer and runs nothing",
    )
    serve = commands.add_parser(
        "serve", parents=[place, model], help="serve the HTTP API", **_ending("serve")
    )
    serve.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on (127.0.0.1: this machine only; there is no authentication)",
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
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds greater than 0, found {text!r}")
    return seconds


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


def _place() -> argparse.ArgumentParser:
    """Options for paths and stores, shared by every command."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--state", metavar="DIR", help="the state directory (default: .reference-agent)")
    parser.add_argument(
        "--store",
        type=_store,
        choices=_StoreNames(),
        metavar="NAME",
        help=f"where sessions are kept: %(choices)s (default: {DEFAULT})",
    )
    parser.add_argument("--config", metavar="FILE", help="read settings from a JSON file")
    parser.add_argument("--log", metavar="FILE", help="append structured logs to a file")
    return parser


def _model() -> argparse.ArgumentParser:
    """Options for the model. There is no option for a key: a command line is no place for one."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--url",
        help="an OpenAI-compatible service, such as http://localhost:8000/v1"
        " (the key is read from the environment variable OPENAI_API_KEY, or from the"
        " variable that the settings name)",
    )
    parser.add_argument("--model", metavar="NAME", help="the model to use there")
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
