# /// script
# requires-python = ">=3.11"
# dependencies = ["langgraph>=1", "langgraph-checkpoint-sqlite>=3"]
# ///
"""An agent on LangGraph: a model node and a tool node, checkpointed in SQLite, resumed by its thread id."""

from __future__ import annotations

import operator
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.config import get_config
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

DOCS = "https://docs.langchain.com/oss/python/langgraph/durable-execution"
CONFIG: dict[str, Any] = {"configurable": {"thread_id": "session"}}
ONE_THREAD = {**CONFIG, "max_concurrency": 1}  # background work runs sequentially


LONG = 10.0  # seconds; only reached if something is wrong here


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
            graph.invoke(
                {"messages": [{"role": "user", "content": world.task}]}, CONFIG, durability=self.durability
            )

    def approve(self, directory: str, world: Any) -> None:
        with Opened(directory, world, gate=True) as graph:
            graph.invoke(Command(resume="yes"), CONFIG, durability=self.durability)

    def _run(self, directory: str, world: Any, given: Any) -> str:
        with Opened(directory, world, late=self.durability == "async") as graph:
            last = graph.invoke(given, ONE_THREAD, durability=self.durability)["messages"][-1]
        return str(last["content"])


class Sync(_Agent):
    """LangGraph agent on SqliteSaver, durability="sync" """

    durability = "sync"
    unit = "one super-step of the graph"
    promises = {
        "resumes": ("execution resumes from the last recorded step after a failure", DOCS),
        "same-answer": ("a resumed workflow completes as if never interrupted", DOCS),
        "no-orphan": ("state is checkpointed at the boundaries of super-steps", DOCS),
        "model-once": ("completed steps are not processed again when a workflow resumes", DOCS),
    }

    def fork(self, directory: str, world: Any) -> tuple[Any, Any]:
        """Resume twice from one checkpoint, as in time travel; the first result must stay unchanged."""
        with Opened(directory, world) as graph:
            graph.invoke(
                {"messages": [{"role": "user", "content": world.task}]}, CONFIG, durability=self.durability
            )
            saved = graph.get_state_history(CONFIG)
            chosen = next(each.config for each in saved if each.next == ("tools",))
            one = graph.invoke(None, chosen, durability=self.durability)["messages"]
            place = graph.get_state(CONFIG).config
            other = graph.invoke(None, chosen, durability=self.durability)["messages"]
            return [one, one], [other, graph.get_state(place).values["messages"]]


class Async(Sync):
    """LangGraph agent on SqliteSaver, durability="async" (the default)"""

    durability = "async"
    # Checkpoints are written while the next step already runs: that some may be missing is documented. Here
    # each is written once that step has done its work: as late as permitted.
    promises = {
        "resumes": ("execution resumes from the last recorded step after a failure", DOCS),
        "same-answer": ("a resumed workflow completes as if never interrupted", DOCS),
        "no-orphan": ("state is checkpointed at the boundaries of super-steps", DOCS),
    }


class Exit(_Agent):
    """LangGraph agent on SqliteSaver, durability="exit" """

    durability = "exit"
    unit = "the whole run of the graph, up to where it stops"
    # Saved only when the graph exits: that a crash before then cannot be recovered from is documented.
    # There is no intermediate checkpoint to fork from, either.
    promises: dict[str, Any] = {}


class Late(SqliteSaver):
    """Saves of the background when the next step has done its work: in an order that is allowed, and known.

    With a real thread the order would depend on the machine, and two runs would differ.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        super().__init__(db)
        self.turn = threading.Condition()
        found = self.get_tuple(CONFIG)
        self.saved = found.metadata["step"] if found else -2  # the input is saved as step -1
        # If the answer is already stored, no step will run, and nothing would trigger the save.
        self.may_save = found is not None and any(
            channel == "messages" and is_answer(value[-1])
            for _task, channel, value in found.pending_writes or ()
        )
        self.for_good = self.may_save

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self._wait()
        with self._noticed(metadata["step"]):
            return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(self, *args: Any, **kwargs: Any) -> None:
        self._wait()
        with self._noticed(self.saved):
            super().put_writes(*args, **kwargs)

    def _wait(self) -> None:
        with self.turn:
            self.turn.wait_for(lambda: self.may_save, LONG)

    @contextmanager
    def _noticed(self, step: int) -> Iterator[None]:
        try:
            yield
        except BaseException:  # the graph is about to end: nothing would trigger the save
            self.may_save = self.for_good = True
            raise
        finally:
            with self.turn:
                self.saved = step
                self.turn.notify_all()

    def catch_up(self, *, is_last: bool) -> None:
        """In a step: save everything before it. After the last step there is nothing to wait for."""
        step = get_config()["metadata"]["langgraph_step"]
        with self.turn:
            self.may_save = True
            self.turn.notify_all()
            self.turn.wait_for(lambda: self.saved >= step - 1 or self.for_good, LONG)
            self.for_good = self.for_good or is_last
            self.may_save = self.for_good


def is_answer(message: dict[str, Any]) -> bool:
    return message["role"] == "assistant" and not message["calls"]


class Opened:
    """The graph, or without a world its saver, on a database that is closed again afterwards."""

    def __init__(self, directory: str, world: Any = None, *, gate: bool = False, late: bool = False) -> None:
        self.db = sqlite3.connect(Path(directory) / "graph.db", check_same_thread=False)
        self.made: Any = Late(self.db) if late else SqliteSaver(self.db)
        if world is not None:
            worked = self.made.catch_up if late else lambda **_: None
            self.made = graph_of(world, gate, worked).compile(checkpointer=self.made)

    def __enter__(self) -> Any:
        return self.made

    def __exit__(self, *_: object) -> None:
        self.db.close()


def graph_of(world: Any, gate: bool, worked: Callable[..., None]) -> Any:
    def model(state: State) -> dict[str, Any]:
        said = world.model([*state["messages"]])
        worked(is_last="answer" in said)
        if "answer" in said:
            return {"messages": [{"role": "assistant", "content": said["answer"], "calls": []}]}
        return {"messages": [{"role": "assistant", "call": said, "calls": [said["id"]]}]}

    def tools(state: State) -> dict[str, Any]:
        call = state["messages"][-1]["call"]
        if gate:
            interrupt("may I?")
        service, action = {"pay": ("payments", "pay"), "mail": ("mail", "send")}[call["tool"]]
        receipt = world.act(service, action, **call["args"])
        worked(is_last=False)
        return {"messages": [{"role": "tool", "call_id": call["id"], "content": receipt}]}

    def after_model(state: State) -> str:
        return END if is_answer(state["messages"][-1]) else "tools"

    graph = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tools", tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", after_model, ["tools", END])
    graph.add_edge("tools", END if gate else "model")
    return graph
