"""The entry point of the command line: its commands, and the exit code of each error.

Exit codes: 0 HOLDS, 1 VIOLATED, 2 usage error or a target that cannot be tested, 3 UNKNOWN (also when
nothing ran), 4 internal error, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import errno
import shutil
import signal
import sys
import traceback
from contextlib import suppress
from types import FrameType
from typing import NoReturn

import rich_click as click
from click.exceptions import Abort, Exit

from chaoskit import __version__
from chaoskit.cli.certify import certify, compare, scoreboard
from chaoskit.cli.doctor import doctor
from chaoskit.cli.explain import explain
from chaoskit.cli.listing import list_
from chaoskit.cli.options import NOTHING_KNOWN
from chaoskit.cli.run import replay, report_, run
from chaoskit.cli.streams import CannotPrint, protect_output
from chaoskit.entry_points import CannotLoad
from chaoskit.run.environment import NoEnvironment
from chaoskit.run.workspace import NoWorkspace
from chaoskit.search.rig import CannotTest, NotSeen
from chaoskit.show.wrapping import brief, harmless, shortened, wrapped
from chaoskit.wrong_use import WrongUse

WRONG_USE, INTERNAL, INTERRUPTED, TERMINATED = 2, 4, 130, 143
COMMANDS = (run, certify, replay, list_, explain, scoreboard, compare, report_, doctor)
LONGEST = 1000  # characters of an error message
ENDED = "all processes ended, all temporary files removed"
ELSEWHERE = "set CHAOSKIT_TMPDIR and CHAOSKIT_CACHE to directories"
REMEDIES = {
    errno.ENOSPC: f"free some space, or {ELSEWHERE} with more",
    errno.EDQUOT: f"free some space, or {ELSEWHERE} with more",
    errno.EMFILE: "raise the limit of open files (ulimit -n 1024), or use --jobs 1",
    errno.ENFILE: "close other programs: the system has too many open files",
    errno.EACCES: f"check who may write there, or {ELSEWHERE} of yours",
    errno.EPERM: f"check who may write there, or {ELSEWHERE} of yours",
    errno.EROFS: f"{ELSEWHERE} that are writable",
    errno.ENOMEM: "free some memory, or use --jobs 1",
    errno.EAGAIN: "too many processes for this user (ulimit -u): end some, or use --jobs 1",
}
REPORT = "this is a bug in chaoskit: please report it with what `chaoskit --debug ...` prints"
click.rich_click.TEXT_MARKUP = "markdown"
click.rich_click.SHOW_ARGUMENTS = True


class Terminated(BaseException):
    """SIGTERM: end as on Ctrl-C, with everything cleaned up."""


@click.group(
    no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="chaoskit")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an internal error.")
def cli() -> None:
    """Crash an agent wherever it persists state, restart it, and judge what it lost, repeated or corrupted.

    Start here:

    - `chaoskit run payments`: kill a sound agent at every point where it persists state
    - `chaoskit run payments --mutant forgets-pending`: the same agent with a bug
    - `chaoskit certify ./my_store.py:MyStore`: your own checkpointer, through an adapter (docs/adapters.md)
    - `chaoskit doctor`: what works on this machine

    Exit codes: 0 HOLDS, 1 VIOLATED, 2 usage error or a target that cannot be tested, 3 UNKNOWN,
    4 internal error, 130 interrupted, 143 terminated.
    """


for command in COMMANDS:
    cli.add_command(command)


def main() -> None:
    """Turns every error into one line on standard error and an exit code."""
    protect_output()
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # else it was started with nohup
        signal.signal(signal.SIGHUP, _terminate)
    try:
        _run()
    except (KeyboardInterrupt, Abort):
        _fail(f"interrupted: {ENDED}", INTERRUPTED)
    except Terminated:
        _fail(f"terminated: {ENDED}", TERMINATED)


def _run() -> None:
    debug = "--debug" in sys.argv[1:2]
    try:
        cli(standalone_mode=False)
        sys.stdout.flush()
    except Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        _fail(_one_line(error.format_message()), WRONG_USE)
    except (WrongUse, CannotLoad, NoWorkspace) as error:
        _fail(_one_line(str(error)), WRONG_USE)
    except CannotTest as error:
        _fail(f"cannot be tested: {error if debug else _one_line(brief(str(error)))}", WRONG_USE)
    except (NotSeen, NoEnvironment) as error:
        _fail(f"verdict: UNKNOWN: {error if debug else brief(str(error))}", NOTHING_KNOWN)
    except CannotPrint as error:
        _fail(str(error), INTERNAL)
    except (Abort, SystemExit):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is no verdict
        if debug:
            traceback.print_exc()
        _fail(explained(error), INTERNAL)


def _one_line(message: str) -> str:
    """Names and values from the user may contain anything, and be of any length."""
    return shortened(" ".join(message.split()), LONGEST)


def explained(error: Exception) -> str:
    """One line: what happened, and what to do."""
    if isinstance(error, OSError) and error.errno in REMEDIES:
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror}{where}: {REMEDIES[error.errno]}"
    return _one_line(f"internal error: {type(error).__name__}: {str(error)[:300]}: {REPORT}")


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends at once; the guardian cleans up
    raise Terminated


def _fail(message: str, code: int) -> NoReturn:
    """For other programs one line; on a terminal it is wrapped."""
    text = harmless(f"chaoskit: {message}")
    with suppress(OSError, AttributeError):  # standard error may be full, or closed
        if sys.stderr.isatty():
            text = "\n".join(wrapped(text, shutil.get_terminal_size().columns))
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    sys.exit(code)


if __name__ == "__main__":
    main()
