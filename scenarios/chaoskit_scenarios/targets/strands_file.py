# /// script
# requires-python = ">=3.11"
# dependencies = ["strands-agents>=1"]
# ///
"""Strands' sessions on files: an agent with a session manager, whose messages are written as they arrive.

One call appends one message; items that belong together are its content blocks.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from strands import Agent
from strands.models import Model
from strands.session.file_session_manager import FileSessionManager

DOCS = "https://strandsagents.com/docs/user-guide/concepts/agents/session-management/"
API = "https://strandsagents.com/latest/documentation/docs/api-reference/python/session/file_session_manager"


class Silent(Model):
    """A model that is never asked; an agent must have one."""

    def update_config(self, **config: Any) -> None: ...

    def get_config(self) -> dict[str, Any]:
        return {}

    async def structured_output(self, *_args: Any, **_options: Any) -> Any:
        yield {}

    async def stream(self, *_args: Any, **_options: Any) -> Any:
        yield {}


class File:
    """Strands FileSessionManager, one file per message"""

    style = "append"
    unit = "one append_message(): one message with all its content blocks"
    callers = "threads"
    promises = {
        "durable": ("conversation and state survive a restart of the application", DOCS),
        "prefix": ("an agent continues the conversation where it left off", DOCS),
        "loadable": ("an agent with the same session id restores its conversation", DOCS),
        "continues": ("a session that does not exist yet is created", API),
        "isolated": ("each session has a directory of its own", API),
    }

    def open(self, directory: str) -> None:
        logging.getLogger("strands").setLevel(logging.ERROR)
        self.directory = directory
        self.agents: dict[str, tuple[FileSessionManager, Agent]] = {}

    def close(self) -> None:
        self.agents.clear()

    def _of(self, session: str) -> tuple[FileSessionManager, Agent]:
        if session not in self.agents:
            manager = FileSessionManager(session_id=session, storage_dir=self.directory)
            agent = Agent(agent_id="agent", model=Silent(), session_manager=manager, callback_handler=None)
            self.agents[session] = manager, agent
        return self.agents[session]

    def append(self, session: str, items: list[dict[str, Any]]) -> None:
        manager, agent = self._of(session)
        blocks: Any = [{"text": json.dumps(item)} for item in items]
        manager.append_message({"role": "user", "content": blocks}, agent)
        manager.sync_agent(agent)

    def items(self, session: str) -> list[dict[str, Any]]:
        self.agents.pop(session, None)  # restored from the files, as in a new process
        _, agent = self._of(session)
        return [json.loads(block["text"]) for m in agent.messages for block in m["content"]]

    def delete(self, session: str) -> None:
        manager, _ = self._of(session)
        del self.agents[session]
        manager.delete_session(session)

    def settings(self) -> dict[str, Any]:
        return {"files": len([path for path in Path(self.directory).rglob("*") if path.is_file()])}
