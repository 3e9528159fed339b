"""Structured logs for operators: one JSON object per line, built on the standard `logging`.

    log = get_logger(__name__)
    log.info("session.open", agent_id="agent", session_id="s1", model="m", provider="p")

    {"time": "2026-02-21T10:01:25.000Z", "level": "info", "logger": "reference_agent.turn.agent",
     "event": "session.open", "agent_id": "agent", "session_id": "s1", ...}

(The event log of a session is the durable record of what happened; these logs only describe it.)

What is logged at which level:

| level   | what                                                                                        |
|---------|---------------------------------------------------------------------------------------------|
| debug   | a turn begins or ends; a tool is called, with its arguments; a hook changed them            |
| info    | a session is opened (agent_id, session_id, model, provider); tokens of the final message    |
| warning | a model call is retried; a checkpoint, message, token count or error could not be persisted;|
|         | the context was trimmed; a tool failed, was denied or unknown; a hook failed; a bad setting |
| error   | the loop failed: the request was given up                                                   |

A failed persist is a warning and not an error because the agent continues (as `degraded`).

Guarantees, cited as L1... by the tests:

L1  Off by default: nothing is written until `written_to` or the program's own `logging` set-up enables it.
    An event without a listener is never rendered, and below warning it costs one comparison.
L2  One event is one line of ASCII JSON, whatever its fields contain.
L3  What looks like a secret (see `redaction`) is not written, even when a foreign handler writes the event.
    The additional names given to `written_to` apply to its handler only.
L4  Logging never raises. A value that cannot be serialised is written as its repr; a line that cannot be
    written is counted by the handler (`lost`) and dropped.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from typing import TextIO

from reference_agent.ids import Clock, system_clock
from reference_agent.logs.redaction import SECRET_NAMES, Redactor

ROOT = "reference_agent"
RESERVED = ("time", "level", "logger", "event")

# Without a handler of its own, `logging` would print warnings to stderr by itself (L1).
logging.getLogger(ROOT).addHandler(logging.NullHandler())


class Log:
    """The interface for call sites. Fields may have any name and any value."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, /, **fields: object) -> None:
        self._say(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        self._say(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        self._say(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        """A field that is an exception includes its traceback."""
        self._say(logging.ERROR, event, fields)

    def exception(self, event: str, /, **fields: object) -> None:
        """Like `error`, for the exception being handled."""
        self._say(logging.ERROR, event, {"error": sys.exception(), **fields})

    def _say(self, level: int, event: str, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            with_traceback = level >= logging.ERROR
            self._logger.log(level, Event(event, fields, with_traceback), stacklevel=3)


def get_logger(name: str) -> Log:
    """By module name. Other names are placed below the agent's root logger, and enabled with it."""
    inside = name == ROOT or name.startswith(f"{ROOT}.")
    return Log(logging.getLogger(name if inside else f"{ROOT}.{name}"))


@contextmanager
def written_to(
    stream: TextIO, *, level: str = "info", clock: Clock = system_clock, secret_names: Sequence[str] = ()
) -> Iterator[LineHandler]:
    """Within the context, write the agent's events of this level and above to the stream."""
    logger = logging.getLogger(ROOT)
    handler = LineHandler(stream)
    handler.setFormatter(LineFormatter(clock, Redactor((*SECRET_NAMES, *secret_names))))
    before = logger.level
    logger.setLevel(level.upper())
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class Event:
    """An event's name and fields, not rendered yet. As text it is JSON without secrets (L3)."""

    def __init__(self, name: str, fields: dict[str, object], with_traceback: bool) -> None:
        self._name = name
        self._fields = fields
        self._with_traceback = with_traceback

    def __str__(self) -> str:
        return _encode(self.rendered(_usual_redactor()))

    def rendered(self, redactor: Redactor) -> dict[str, object]:
        line: dict[str, object] = {"event": redactor.text(str(self._name))}
        for name, value in self._fields.items():
            line[redactor.text(_free(name))] = redactor.field(name, value)
        if self._with_traceback:
            line |= self._tracebacks(redactor)
        return line

    def _tracebacks(self, redactor: Redactor) -> dict[str, object]:
        errors = [value for value in self._fields.values() if isinstance(value, BaseException)]
        texts = ["".join(traceback.format_exception(error)) for error in errors]
        return {"traceback": redactor.text("\n".join(texts))} if texts else {}


class LineHandler(logging.StreamHandler[TextIO]):
    """Counts the lines it could not write: a full disk must not stop the agent, nor flood stderr (L4)."""

    lost = 0

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - logging's name
        self.lost += 1


class LineFormatter(logging.Formatter):
    """Formats any record, the agent's or another library's, as one line of JSON (L2)."""

    def __init__(self, clock: Clock, redactor: Redactor) -> None:
        super().__init__()
        self._clock = clock
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        head = {"time": self._time(), "level": record.levelname.lower(), "logger": record.name}
        try:
            return _encode({**head, **self._body(record)})
        except Exception as error:  # noqa: BLE001 - L4: report as much as possible
            return _encode({**head, "event": "log.unprintable", "error": type(error).__name__})

    def _body(self, record: logging.LogRecord) -> dict[str, object]:
        if isinstance(record.msg, Event):
            return record.msg.rendered(self._redactor)
        return {"event": self._redactor.text(record.getMessage())}

    def _time(self) -> str:
        try:
            now = datetime.fromtimestamp(self._clock(), UTC)
            return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        except Exception as error:  # noqa: BLE001 - L4: a clock may be out of a date's range
            return f"unknown ({type(error).__name__})"


@cache
def _usual_redactor() -> Redactor:
    """For foreign handlers (L3). Compiling its patterns takes milliseconds, so not at import."""
    return Redactor(SECRET_NAMES)


def _free(name: str) -> str:
    """Rename a field called "level": it must not hide the line's own."""
    return f"{name}_" if name in RESERVED else name


def _encode(line: dict[str, object]) -> str:
    return json.dumps(line)
