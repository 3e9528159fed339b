# /// script
# requires-python = ">=3.11"
# dependencies = ["langchain-community>=0.3"]
# ///
"""LangChain's FileChatMessageHistory: the messages of a chat in one JSON file, one file per session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from langchain_community.chat_message_histories import FileChatMessageHistory
from langchain_core.messages import AIMessage, HumanMessage

DOCS = (
    "https://python.langchain.com/api_reference/community/chat_message_histories/"
    "langchain_community.chat_message_histories.file.FileChatMessageHistory.html"
)


class FileHistory:
    """LangChain FileChatMessageHistory, a JSON file for each session"""

    style = "append"
    unit = "one add_message(): add_messages() calls it for each message"
    callers = "threads"
    largest = 200_000  # every message rewrites the whole file
    promises = {
        "durable": ("stores the history of a chat in a local file", DOCS),
        "prefix": ("a message is appended to the record in the file", DOCS),
    }

    def open(self, directory: str) -> None:
        self.directory = Path(directory)

    def close(self) -> None:
        pass

    def _history(self, session: str) -> Any:
        return FileChatMessageHistory(str(self.directory / f"{session}.json"))

    def append(self, session: str, items: list[dict[str, Any]]) -> None:
        kinds = [AIMessage if item["part"] else HumanMessage for item in items]
        self._history(session).add_messages(
            [kind(json.dumps(item)) for kind, item in zip(kinds, items, strict=True)]
        )

    def items(self, session: str) -> list[dict[str, Any]]:
        return [json.loads(message.content) for message in self._history(session).messages]

    def delete(self, session: str) -> None:
        self._history(session).clear()

    def settings(self) -> dict[str, Any]:
        return {"files": sorted(path.name for path in self.directory.iterdir())}
