"""The entry point of the command line: its commands, and the exit code of each error.

Exit codes: 0 HOLDS, 1 VIOLATED, 2 usage error or a target that cannot be tested, 3 UNKNOWN (also when
nothing ran), 130 interrupted.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import rich_click as click
from click.exceptions import Abort, Exit

from chaoskit import __version__, repro
from chaoskit.cli.certify import certify, compare, scoreboard
from chaoskit.cli.doctor import doctor
from chaoskit.cli.explain import explain
from chaoskit.cli.listing import list_
from chaoskit.cli.options import NOTHING_KNOWN
from chaoskit.cli.run import replay, report_, run
from chaoskit.entry_points import CannotLoad, UnknownName
from chaoskit.run.environment import NoEnvironment
from chaoskit.search.rig import CannotTest, NotSeen
from chaoskit.show.wrapping import wrapped

WRONG_USE, INTERRUPTED = 2, 130
COMMANDS = (run, certify, replay, list_, explain, scoreboard, compare, report_, doctor)
click.rich_click.TEXT_MARKUP = "markdown"
click.rich_click.SHOW_ARGUMENTS = True


@click.group(
    no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="chaoskit")
def cli() -> None:
    """Crash an agent wherever it persists state, restart it, and judge what it lost, repeated or corrupted.

    Start here:

    - `chaoskit run payments`: kill a sound agent at every point where it persists state
    - `chaoskit run payments --mutant forgets-pending`: the same agent with a bug
    - `chaoskit certify ./my_store.py:MyStore`: your own checkpointer, through an adapter (docs/adapters.md)
    - `chaoskit doctor`: what works on this machine

    Exit codes: 0 HOLDS, 1 VIOLATED, 2 usage error or a target that cannot be tested, 3 UNKNOWN,
    130 interrupted.
    """


for command in COMMANDS:
    cli.add_command(command)


def main() -> None:
    """Turns every expected error into one line on standard error and an exit code."""
    sys.path.insert(0, str(Path.cwd()))  # `module:name` may be in the current directory
    try:
        cli(standalone_mode=False)
    except Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        _fail(error.format_message(), WRONG_USE)
    except (ValueError, UnknownName, repro.BadToken) as error:
        _fail(str(error), WRONG_USE)
    except CannotTest as error:
        _fail(f"cannot be tested: {error}", WRONG_USE)
    except (NotSeen, NoEnvironment, CannotLoad) as error:
        _fail(f"verdict: UNKNOWN: {error}", NOTHING_KNOWN)
    except (KeyboardInterrupt, Abort):
        _fail("interrupted: all processes ended, all temporary files removed", INTERRUPTED)


def _fail(message: str, code: int) -> None:
    """For other programs one line; on a terminal it is wrapped."""
    text = f"chaoskit: {message}"
    if sys.stderr.isatty():
        text = "\n".join(wrapped(text, shutil.get_terminal_size().columns))
    sys.stderr.write(f"{text}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
