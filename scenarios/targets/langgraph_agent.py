# /// script
# requires-python = ">=3.11"
# dependencies = ["langgraph>=1", "langgraph-checkpoint-sqlite>=3"]
# ///
"""An agent on LangGraph: a model node and a tool node, checkpointed in SQLite, resumed by its thread id."""

from __future__ import annotations

import operator
import sqlite3
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

DOCS = "https://docs.langchain.com/oss/python/langgraph/durable-execution"
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "session"}}


class State(TypedDict):
    messages: Annotated[list[dict[str, Any]], operator.add]


class _Agent:
    durability: Any

    def start(self, directory: str, world: Any) -> str:
        return self._run(directory, world, {"messages": [{"role": "user", "content": world.task}]})

    def resume(self, directory: str, world: Any) -> str | None:
        with Opened(directory) as saver:
            if saver.get_tuple(CONFIG) is None:
                return None
        return self._run(directory, world, None)

    def validate(self, directory: str) -> None:
        with Opened(directory) as saver:
            list(saver.list(CONFIG))

    def park(self, directory: str, world: Any) -> None:
        with Opened(directory, world, gate=True) as graph:
            graph.invoke({"messages": [{"role": "user", "content": world.task}]}, CONFIG,
                         durability=self.durability)  # fmt: skip

    def approve(self, directory: str, world: Any) -> None:
        with Opened(directory, world, gate=True) as graph:
            graph.invoke(Command(resume="yes"), CONFIG, durability=self.durability)

    def _run(self, directory: str, world: Any, given: Any) -> str:
        with Opened(directory, world) as graph:
            last = graph.invoke(given, CONFIG, durability=self.durability)["messages"][-1]
        return str(last["content"])


class Sync(_Agent):
    """LangGraph agent on SqliteSaver, durability="sync" """

    durability = "sync"
    unit = "one super-step of the graph"
    promises = {
        "resumes": ("execution resumes from the last recorded step after a failure", DOCS),
        "same-answer": (
            "a workflow that is resumed comes to its end as if never interrupted",
            DOCS,
        ),
        "no-orphan": ("state is checkpointed at the boundaries of super-steps", DOCS),
        "model-once": ("completed steps are not processed again when a workflow resumes", DOCS),
    }

    def fork(self, directory: str, world: Any) -> tuple[Any, Any]:
        """Twice from one checkpoint, as in time travel: and the first is still what it was."""
        with Opened(directory, world) as graph:
            graph.invoke({"messages": [{"role": "user", "content": world.task}]}, CONFIG,
                         durability=self.durability)  # fmt: skip
            saved = graph.get_state_history(CONFIG)
            chosen = next(each.config for each in saved if each.next == ("tools",))
            one = graph.invoke(None, chosen, durability=self.durability)["messages"]
            place = graph.get_state(CONFIG).config
            other = graph.invoke(None, chosen, durability=self.durability)["messages"]
            return [one, one], [other, graph.get_state(place).values["messages"]]


class Async(Sync):
    """LangGraph agent on SqliteSaver, durability="async" (the default)"""

    durability = "async"
    # Checkpoints are written while the next step runs already: that some may be missing is documented.
    promises = {
        "resumes": ("execution resumes from the last recorded step after a failure", DOCS),
        "same-answer": (
            "a workflow that is resumed comes to its end as if never interrupted",
            DOCS,
        ),
        "no-orphan": ("state is checkpointed at the boundaries of super-steps", DOCS),
    }


class Exit(_Agent):
    """LangGraph agent on SqliteSaver, durability="exit" """

    durability = "exit"
    unit = "the whole run of the graph, up to where it stops"
    # Saved when the graph is left, and no sooner: that a crash in between cannot be recovered from is
    # documented. There is no checkpoint in between to fork from, either.
    promises: dict[str, Any] = {}


class Opened:
    """The graph, or without a world its saver, on a database that is closed again afterwards."""

    def __init__(self, directory: str, world: Any = None, gate: bool = False) -> None:
        self.db = sqlite3.connect(Path(directory) / "graph.db", check_same_thread=False)
        self.made = SqliteSaver(self.db)
        if world is not None:
            self.made = graph_of(world, gate).compile(checkpointer=self.made)

    def __enter__(self) -> Any:
        return self.made

    def __exit__(self, *_: object) -> None:
        self.db.close()


def graph_of(world: Any, gate: bool) -> Any:
    def model(state: State) -> dict[str, Any]:
        said = world.model([*state["messages"]])
        if "answer" in said:
            return {"messages": [{"role": "assistant", "content": said["answer"], "calls": []}]}
        return {"messages": [{"role": "assistant", "call": said, "calls": [said["id"]]}]}

    def tools(state: State) -> dict[str, Any]:
        call = state["messages"][-1]["call"]
        if gate:
            interrupt("may I?")
        service, action = {"pay": ("payments", "pay"), "mail": ("mail", "send")}[call["tool"]]
        receipt = world.act(service, action, **call["args"])
        return {"messages": [{"role": "tool", "call_id": call["id"], "content": receipt}]}

    def after_model(state: State) -> str:
        return "tools" if state["messages"][-1]["calls"] else END

    graph = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tools", tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", after_model, ["tools", END])
    graph.add_edge("tools", END if gate else "model")
    return graph
