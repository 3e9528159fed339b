"""`reference-agent`: use the durable agent from a terminal. argparse, because it starts fast."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from reference_agent.agent import Agent
from reference_agent.ids import ids_from
from reference_agent.messages import Message, ToolCall
from reference_agent.tools import Args, Tool, Toolbox


class NotingModel:
    """Needs no provider: has each message noted down, then says what the tool said."""

    async def decide(self, conversation: Sequence[Message]) -> Message:
        last = conversation[-1]
        if last.role == "tool":
            return Message("assistant", last.content)
        number = sum(message.role == "user" for message in conversation)
        call = ToolCall(f"call_{number}", "note", {"number": number, "text": last.content})
        return Message("assistant", "", (call,))


def note_taking(notes: Path) -> Toolbox:
    """A tool with a real effect: a line in a file, found again by its key."""

    async def note(args: Args, key: str) -> str:
        with notes.open("a") as file:
            file.write(f"{key} {args['text']!r}\n")
            file.flush()
            os.fsync(file.fileno())
        return f"noted: {args['text']}"

    async def was_noted(args: Args, key: str) -> str | None:
        return f"noted: {args['text']}" if _has_line(notes, key) else None

    return Toolbox([Tool(name="note", run=note, mutating=True, verify=was_noted)])


def _has_line(notes: Path, key: str) -> bool:
    return notes.exists() and any(line.startswith(key) for line in notes.read_text().splitlines())


async def talk(state: Path, session: str, text: str | None) -> None:
    """Recover the session, finish what a crash left undone, then say `text` or show what was said."""
    agent = await Agent.open(
        state,
        session=session,
        model=NotingModel(),
        toolbox=note_taking(state / "notes.txt"),
        new_id=ids_from(uuid.uuid4().hex),
    )
    try:
        await agent.resume()
        if text is not None:
            await agent.say(text, request_id=uuid.uuid4().hex)
        for message in await agent.messages():
            calls = ", ".join(f"{call.name} {call.args}" for call in message.calls)
            sys.stdout.write(f"{message.role}: {message.content or calls}\n")
    finally:
        await agent.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="reference-agent", description=__doc__)
    parser.add_argument("text", nargs="?", help="what to say; without it, show the conversation")
    parser.add_argument("--state", type=Path, default=Path(".reference-agent"), metavar="DIR",
                        help="the directory that survives (default: %(default)s)")  # fmt: skip
    parser.add_argument("--resume", dest="session", default="main", metavar="ID",
                        help="the session to go on with (default: %(default)s)")  # fmt: skip
    options = parser.parse_args()
    if not options.session.replace("-", "").replace("_", "").isalnum():
        parser.error(f"a session id has letters, digits, - and _ only, not {options.session!r}")
    try:
        options.state.mkdir(parents=True, exist_ok=True)
        asyncio.run(talk(options.state, options.session, options.text))
    except OSError as error:
        parser.exit(1, f"reference-agent: {error}\n")


if __name__ == "__main__":
    main()
