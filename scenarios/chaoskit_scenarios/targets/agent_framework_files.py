# /// script
# requires-python = ">=3.11"
# dependencies = ["agent-framework-core>=1"]
# ///
"""Microsoft agent-framework's files: checkpoints of workflows, and the history of a conversation."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from agent_framework import FileCheckpointStorage, FileHistoryProvider, Message, WorkflowCheckpoint

DOCS = "https://learn.microsoft.com/agent-framework/workflows/checkpoints"
SOURCE = (
    "https://github.com/microsoft/agent-framework/blob/main/python/packages/core/agent_framework/_sessions.py"
)


class Checkpoints:
    """Microsoft agent-framework FileCheckpointStorage, one file per checkpoint"""

    style = "history"
    unit = "one save(): one checkpoint"
    promises = {
        "durable": ("a workflow does not lose its progress in case of failures", DOCS),
        "atomic": ("a checkpoint captures the entire state of the workflow", DOCS),
        "loadable": ("a workflow resumes from its checkpoints, also in a new process", DOCS),
        "continues": ("after resuming, checkpoints are made at the end of each superstep", DOCS),
    }

    def open(self, directory: str) -> None:
        logging.getLogger("agent_framework").setLevel(logging.ERROR)
        self.storage = FileCheckpointStorage(directory)

    def close(self) -> None: ...

    async def save(self, session: str, state: dict[str, Any]) -> None:
        # The checkpoint's id is determined by the save: saved again, it is the same checkpoint.
        checkpoint = WorkflowCheckpoint(
            workflow_name=session,
            graph_signature_hash="chaoskit",
            checkpoint_id=f"{session}-{state['n']}",
            state={"state": state},
            iteration_count=state["n"],
        )
        await self.storage.save(checkpoint)

    async def load(self, session: str) -> dict[str, Any] | None:
        found = await self.storage.get_latest(workflow_name=session)
        return found.state["state"] if found else None

    async def history(self, session: str) -> list[dict[str, Any]]:
        found = await self.storage.list_checkpoints(workflow_name=session)
        return [each.state["state"] for each in sorted(found, key=lambda each: each.timestamp)]

    def settings(self) -> dict[str, Any]:
        return {"files": len(list(Path(self.storage.storage_path).iterdir()))}


class History:
    """Microsoft agent-framework FileHistoryProvider, one file of lines per session"""

    style = "append"
    unit = "one save_messages(): the messages of one run"
    promises = {
        "durable": ("the messages of a session are stored in its file", SOURCE),
        "prefix": ("the file is append-only, one line per message", SOURCE),
        "isolated": ("one file per session", SOURCE),
    }

    def open(self, directory: str) -> None:
        self.provider = FileHistoryProvider(directory)

    def close(self) -> None: ...

    async def append(self, session: str, items: list[dict[str, Any]]) -> None:
        messages = [
            Message("user", [json.dumps(item)], message_id=f"{item['n']}.{item['part']}") for item in items
        ]
        await self.provider.save_messages(session, messages)

    async def items(self, session: str) -> list[dict[str, Any]]:
        return [json.loads(each.text) for each in await self.provider.get_messages(session)]

    def settings(self) -> dict[str, Any]:
        return {"format": self.provider.serialization_format}
