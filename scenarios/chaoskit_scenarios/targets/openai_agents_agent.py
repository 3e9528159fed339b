# /// script
# requires-python = ">=3.11"
# dependencies = ["openai-agents>=0.3"]
# ///
"""An agent on the OpenAI Agents SDK: a session in SQLite, and a RunState in a file where it waits.

The SDK accesses the session in asyncio's default thread pool. Here the pool has one thread, so that two
runs execute in the same order.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")

from agents import Agent, FunctionTool, Model, ModelResponse, Runner, RunState, SQLiteSession, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

SESSIONS = "https://openai.github.io/openai-agents-python/sessions/"
ACTS = {"pay": ("payments", "pay"), "mail": ("mail", "send")}
STATE = "waits.json"


class Sessions:
    """OpenAI Agents SDK agent with a SQLiteSession in a file"""

    unit = "one add_items(): the user's input, or a turn with its tool calls and their outputs"
    promises = {"resumes": ("a conversation continues in a session with the same id and file", SESSIONS)}

    async def start(self, directory: str, world: Any) -> str:
        with opened(directory) as session:
            return await _run(world, world.task, session)

    async def resume(self, directory: str, world: Any) -> str | None:
        """With the same session, and no new input."""
        with opened(directory) as session:
            items = await session.get_items()
            if not items:
                return None
            answer = _answer(items[-1])
            return answer if answer is not None else await _run(world, [], session)

    async def validate(self, directory: str) -> None:
        with opened(directory) as session:
            await session.get_items()

    async def park(self, directory: str, world: Any) -> None:
        with opened(directory) as session:
            result = await Runner.run(_agent(world, gate=True), world.task, session=session)
            assert result.interruptions, "expected the run to wait for an approval"
            (Path(directory) / STATE).write_text(result.to_state().to_string())

    async def approve(self, directory: str, world: Any) -> None:
        agent = _agent(world, gate=True)
        state = await _approved(directory, agent)
        with opened(directory) as session:
            await Runner.run(agent, state, session=session)

    async def fork(self, directory: str, world: Any) -> tuple[Any, Any]:
        """One RunState, resumed twice in succession; it holds all that a run needs."""
        agent = _agent(world, gate=True)
        parked = await Runner.run(agent, world.task)
        (Path(directory) / STATE).write_text(parked.to_state().to_string())
        one, other = [
            (await Runner.run(agent, await _approved(directory, agent))).to_input_list() for _ in range(2)
        ]
        return one, other


async def _approved(directory: str, agent: Any) -> Any:
    state = await RunState.from_string(agent, (Path(directory) / STATE).read_text())
    for each in state.get_interruptions():
        state.approve(each)
    return state


@contextmanager
def opened(directory: str) -> Iterator[Any]:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    session = SQLiteSession("session", str(Path(directory) / "conversations.db"))
    try:
        yield session
    finally:
        session.close()


async def _run(world: Any, given: Any, session: Any) -> str:
    return str((await Runner.run(_agent(world), given, session=session)).final_output)


def _agent(world: Any, gate: bool = False) -> Any:
    tools = [_tool(world, name, gate) for name in ACTS]
    # With a gate the run ends after the tool: one effect suffices to detect a duplicate.
    behaviour = "stop_on_first_tool" if gate else "run_llm_again"
    return Agent(name="agent", model=Scripted(world), tools=tools, tool_use_behavior=behaviour)


def _tool(world: Any, name: str, gate: bool) -> Any:
    async def act(_context: Any, args: str) -> str:
        return str(world.act(*ACTS[name], **json.loads(args)))

    return FunctionTool(
        name=name,
        description=name,
        params_json_schema={"type": "object"},
        on_invoke_tool=act,
        strict_json_schema=False,
        needs_approval=gate,
    )


def _answer(item: Any) -> str | None:
    """The text of an assistant message; None for anything else."""
    if item.get("role") != "assistant":
        return None
    return "".join(part["text"] for part in item["content"])


def _message(item: Any) -> dict[str, Any]:
    if item.get("type") == "function_call":
        return {"role": "assistant", "calls": [item["call_id"]]}
    if item.get("type") == "function_call_output":
        return {"role": "tool", "call_id": item["call_id"]}
    return {"role": item["role"]}


class Scripted(Model):
    """The world's model, in the SDK's words."""

    def __init__(self, world: Any) -> None:
        self.world = world

    async def get_response(
        self,
        system_instructions: str | None,
        input: Any,  # noqa: A002
        *_: Any,
        **__: Any,
    ) -> Any:
        items = [{"role": "user"}] if isinstance(input, str) else input
        said = self.world.model([_message(item) for item in items])
        if "answer" in said:
            text = ResponseOutputText(text=said["answer"], type="output_text", annotations=[])
            output: Any = ResponseOutputMessage(
                id="message", content=[text], role="assistant", status="completed", type="message"
            )
        else:
            output = ResponseFunctionToolCall(
                call_id=said["id"],
                name=said["tool"],
                arguments=json.dumps(said["args"]),
                type="function_call",
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    async def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise AssertionError("the SDK requires this method; nothing here streams")
        yield
