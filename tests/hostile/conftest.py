"""The command line called as a function: an attack costs milliseconds."""

from __future__ import annotations

import signal
import sys
from typing import NamedTuple

import pytest

from chaoskit.cli.main import main

CODES = {0, 1, 2, 3, 4, 130, 143}


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def attack(monkeypatch, capfd, tmp_path):
    """Runs `chaoskit ARGUMENTS` in an empty directory; the exit code must be a documented one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHAOSKIT_CACHE", str(tmp_path / "cache"))

    def run(*arguments: str) -> Answer:
        before, path = sys.stdout, list(sys.path)
        handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)}
        monkeypatch.setattr(sys, "argv", ["chaoskit", *arguments])
        try:
            main()
            code = 0
        except SystemExit as done:
            code = done.code or 0
        finally:
            sys.stdout.flush()
            sys.stdout, sys.path[:] = before, path
            for number, handler in handlers.items():
                signal.signal(number, handler)
        out, err = capfd.readouterr()
        assert code in CODES
        assert "Traceback" not in out + err
        assert "\x1b" not in out + err
        return Answer(int(code), out, err)

    return run


@pytest.fixture
def refused(attack, tmp_path):
    """The attack is answered with one line and exit code 2, and leaves nothing behind."""

    def run(*arguments: str) -> str:
        answer = attack(*arguments)
        assert answer.code == 2, answer
        assert answer.out == ""
        assert answer.err.startswith("chaoskit: ")
        assert answer.err.count("\n") == 1
        assert len(answer.err) < 2000
        assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == []
        return answer.err

    return run
