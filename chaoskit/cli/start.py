"""The console script: answers signals while the command line is imported, which takes a moment."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    how = b"interrupted" if number == signal.SIGINT else b"terminated"
    os.write(2, b"chaoskit: " + how + b": nothing was started\n")
    os._exit(128 + number)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    from chaoskit.cli.main import main as run  # noqa: PLC0415 - see above

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run()
