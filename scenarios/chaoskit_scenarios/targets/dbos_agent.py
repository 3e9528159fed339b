# /// script
# requires-python = ">=3.11"
# dependencies = ["dbos>=2"]
# ///
"""An agent on DBOS: a workflow whose steps are the model's turns and the tool calls, stored in SQLite.

Recovery is DBOS's own: launching it again resumes pending workflows in the background. Executor and
application version are fixed, because DBOS recovers only workflows that match both. No approval is raced:
DBOS requires one process per executor, so no two processes may ever resume the same workflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID

WORKFLOWS = "https://docs.dbos.dev/python/tutorials/workflow-tutorial"
TASK = "task"
ACTS = {"pay": ("payments", "pay"), "mail": ("mail", "send")}
NOW: dict[str, Any] = {}  # the world of this life: steps are plain functions without access to the adapter


class Workflow:
    """DBOS workflow of an agent, system database in SQLite"""

    unit = "one step: an answer of the model or the result of a tool"
    promises = {
        "resumes": (
            "workflows always run to completion; after a crash they resume where they stopped",
            WORKFLOWS,
        ),
        "model-once": ("a step that has completed is never executed again", WORKFLOWS),
        "same-answer": ("a workflow resumes from its last completed step", WORKFLOWS),
        "no-orphan": ("a workflow resumes from its last completed step", WORKFLOWS),
    }
    deadline = 60.0

    def start(self, directory: str, world: Any) -> str:
        with launched(directory, world), SetWorkflowID(TASK):
            return work(world.task)

    def resume(self, directory: str, world: Any) -> str | None:
        """Launching recovers; all that remains is to wait for the result."""
        with launched(directory, world):
            if DBOS.get_workflow_status(TASK) is None:
                return None
            return _result(DBOS.retrieve_workflow(TASK))

    def fork(self, directory: str, world: Any) -> tuple[Any, Any]:
        """Fork twice from one step of a finished workflow."""
        with launched(directory, world):
            with SetWorkflowID(TASK):
                work(world.task)
            return _forked(), _forked()


@contextmanager
def launched(directory: str, world: Any) -> Iterator[None]:
    NOW["world"] = world
    DBOS(
        config={
            "name": "agent",
            "system_database_url": f"sqlite:///{Path(directory) / 'dbos.sqlite'}",
            "application_version": "1",
            "executor_id": "one",
            "log_level": "CRITICAL",
        }
    )
    DBOS.launch()
    try:
        yield
    finally:
        DBOS.destroy()


def _forked() -> Any:
    handle = DBOS.fork_workflow(TASK, 3)
    return [_result(handle), _steps(handle.workflow_id)]


def _result(handle: Any) -> str:
    return str(handle.get_result(polling_interval_sec=0.02))


def _steps(workflow: str) -> list[Any]:
    return [[step["function_name"], step["output"]] for step in DBOS.list_workflow_steps(workflow)]


@DBOS.step()
def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
    said: dict[str, Any] = NOW["world"].model(messages)
    return said


@DBOS.step()
def act(tool: str, args: dict[str, Any]) -> str:
    return str(NOW["world"].act(*ACTS[tool], **args))


@DBOS.workflow()
def work(task: str) -> str:
    messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
    while "answer" not in (said := ask(messages)):
        messages += [
            {"role": "assistant", "calls": [said["id"]]},
            {"role": "tool", "call_id": said["id"], "content": act(said["tool"], said["args"])},
        ]
    return str(said["answer"])
