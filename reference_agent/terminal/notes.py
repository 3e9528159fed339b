"""A model that needs no provider: it notes down each message once, and can list the notes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from reference_agent.ids import random_id
from reference_agent.messages import Message, ToolCall
from reference_agent.points import persisting
from reference_agent.providers.base import Answer, TextDelta, ToolSpec, Usage, estimated_tokens
from reference_agent.store.durable import sync_directory
from reference_agent.turn.tools import Args, Tool, Toolbox


class NoteTaker:
    """An in-process model. It has each message noted down and confirms the result."""

    name = "local"
    model = "note-taker"
    LIST = re.compile(r"((list|show)( me)?( my| the| all)* )?notes\W*", re.IGNORECASE)

    async def complete(
        self, conversation: Sequence[Message], *, system: str, tools: Sequence[ToolSpec]
    ) -> Answer:
        message = self._reply(conversation[-1], {tool.name for tool in tools})
        asked = estimated_tokens(system, *(each.content for each in conversation))
        return Answer(message, Usage(asked, estimated_tokens(message.content) + len(message.calls)))

    async def stream(
        self, conversation: Sequence[Message], *, system: str, tools: Sequence[ToolSpec]
    ) -> AsyncIterator[TextDelta | Answer]:
        answer = await self.complete(conversation, system=system, tools=tools)
        for word in re.findall(r"\S+\s*|\s+", answer.message.content):
            yield TextDelta(word)
        yield answer

    def _reply(self, last: Message, tools: set[str]) -> Message:
        if last.role == "tool":
            return Message("assistant", self._confirmation(last))
        wanted = self._wanted(last.content, tools)
        # Random, like the ids of a real model: after a rollback, a counted id could collide with an earlier
        # one.
        return Message("assistant", "", (ToolCall(random_id("call"), *wanted),))

    def _wanted(self, text: str, tools: set[str]) -> tuple[str, dict[str, str]]:
        if self.LIST.fullmatch(text):
            return "notes", {}
        if "ask" in tools and text.lower().startswith("ask "):
            return "ask", {"question": text[4:].strip()}
        return "note", {"text": text}

    def _confirmation(self, result: Message) -> str:
        if result.is_error:
            return f"That did not work: {result.content}"
        if result.tool == "notes":
            return f"Your notes:\n{result.content}" if result.content else "There are no notes yet."
        if result.tool == "ask":
            return f"They say: {result.content}"
        return f"I have written that down ({result.content})."


# For settings where an answer can arrive later: a server's client, with a token.
ASK = Tool(
    name="ask",
    description="Ask a person, and wait for the answer.",
    mutating=True,
    waits_for="answer",
    parameters={"type": "object", "properties": {"question": {"type": "string"}}, "required": ["question"]},
    key=lambda _args, call_id: call_id,
    deadline=600.0,
)


class Notes:
    """`notes.txt` in the session's scratchpad: a line is an idempotency key, a tab, and a text in JSON.

    A crash can leave one unfinished last line, which was never acknowledged. It is ignored, and the next
    note cuts it off.
    """

    directory = Path()  # set once the session is open; no tool runs before

    def tools(self, *more: Tool) -> Toolbox:
        text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        note = Tool(
            name="note",
            description="Write a note down.",
            parameters=text,
            mutating=True,
            run=self.note,
            verify=self.verify,
            key=lambda _args, call_id: call_id,  # two equal notes are two notes
        )
        nothing = {"type": "object", "properties": {}}
        notes = Tool(name="notes", description="List all notes.", parameters=nothing, run=self.listed)
        return Toolbox([note, notes, *more])

    async def note(self, args: Args, key: str) -> str:
        text = args.get("text")
        if not isinstance(text, str):
            raise TypeError(f"text: expected a string, found {json.dumps(text)}")
        with persisting("note.append"):
            self._append(f"{key}\t{json.dumps(text)}\n".encode())
        return self._number(key) or "written, but since removed"

    async def verify(self, _args: Args, key: str) -> str | None:
        found = self._number(key)
        if found:
            self._sync()  # the process that wrote it may have died before it was synced
        return found

    async def listed(self, _args: Args, _key: str) -> str:
        texts = [json.loads(line.partition("\t")[2]) for line in self._lines()]
        return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))

    def _number(self, key: str) -> str | None:
        keys = [line.partition("\t")[0] for line in self._lines()]
        return f"note {keys.index(key) + 1}" if key in keys else None

    def _lines(self) -> list[str]:
        path = self.directory / "notes.txt"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def _append(self, line: bytes) -> None:
        path = self.directory / "notes.txt"
        with path.open("a+b") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(line)
        self._sync()

    def _sync(self) -> None:
        with (self.directory / "notes.txt").open("rb+") as file:
            os.fsync(file.fileno())
        for directory in (self.directory, self.directory.parent):  # both may be new
            sync_directory(directory)
