"""The output of the chat: a conversation as lines, text as it streams, one line per error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from reference_agent.messages import Message
from reference_agent.providers.base import TextDelta
from reference_agent.terminal.problems import put
from reference_agent.turn.retry import Restarted
from reference_agent.turn.tools import Args

LONGEST_SHOWN = 2000  # characters of one message; a tool may return a megabyte
# Characters a terminal would interpret instead of displaying: a model's escape sequences stay text.
CONTROLS = {n: "\ufffd" for n in (*range(32), *range(127, 160)) if chr(n) not in "\n\t"}


def plain(text: str) -> str:
    return text.translate(CONTROLS)


def complain(text: str) -> None:
    """Write one line to stderr, after flushing stdout."""
    with suppress(OSError):
        sys.stdout.flush()
    line = " ".join(plain(text).split("\n"))
    with suppress(OSError):  # there is no other place to report it
        sys.stderr.write(f"reference-agent: {line}\n")
        sys.stderr.flush()


def tell(text: str = "", end: str = "\n") -> None:
    put(plain(text) + end)


def counted(number: int, noun: str) -> str:
    """`1 session`, `2 sessions`"""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def call_shown(tool: str, args: Args) -> str:
    return shortened(f"{tool}({json.dumps(args, ensure_ascii=False)})")


def shortened(text: str) -> str:
    more = len(text) - LONGEST_SHOWN
    return text if more <= 0 else f"{text[:LONGEST_SHOWN]}... ({more} more characters)"


def rendered(message: Message) -> Iterator[str]:
    """A message as lines to display."""
    if message.role == "tool":
        mark = "!" if message.is_error else "="
        yield f"    {mark} " + shortened(message.content).replace("\n", "\n      ")
        return
    who = "you" if message.role == "user" else "agent"
    if message.content:
        yield f"{who}: {shortened(message.content)}"
    for call in message.calls:
        yield f"  * {call_shown(call.name, call.args)}"


class Screen:
    """Shows a conversation as it grows: streamed text at once, everything else when it is complete.

    It is notified of text (`watch`) and of changes (`hear`), and compares what it has shown with the
    agent's conversation. Streamed text is not shown a second time.
    """

    def __init__(self) -> None:
        self._conversation: Sequence[Message] = ()
        self._shown = 0
        self._streamed = ""
        self._from_user = False  # whether to show the user's own messages: not those just typed

    def follow(self, conversation: Sequence[Message]) -> None:
        """Show another conversation from its beginning."""
        self._conversation, self._shown = conversation, 0
        self.catch_up(from_user=True)

    def watch(self, item: TextDelta | Restarted) -> None:
        if isinstance(item, Restarted):
            self.end_line()
            tell("[the answer was cut off; starting again]")
            return
        if not self._streamed:
            self.catch_up()
            tell("agent: ", end="")
        self._streamed += item.text
        tell(item.text, end="")

    def hear(self, what: str, _facts: dict[str, Any]) -> None:
        if what in ("turn", "answer"):
            self.catch_up()

    def catch_up(self, *, from_user: bool | None = None) -> None:
        if from_user is not None:
            self._from_user = from_user
        while self._shown < len(self._conversation):
            message = self._conversation[self._shown]
            self._shown += 1
            self._show(message)

    def _show(self, message: Message) -> None:
        if message.role == "assistant" and self._streamed:
            self.end_line()
            message = Message("assistant", "", message.calls)
        if message.role != "user" or self._from_user:
            for line in rendered(message):
                tell(line)

    def end_line(self) -> None:
        if self._streamed:
            tell()
        self._streamed = ""
