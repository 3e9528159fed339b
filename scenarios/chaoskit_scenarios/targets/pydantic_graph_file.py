# /// script
# requires-python = ">=3.11"
# dependencies = ["pydantic-graph>=1,<2"]
# ///
"""pydantic-graph 1.x FileStatePersistence: the snapshots of a graph run in one JSON file, one per run.

A save is the snapshot that a run takes before its next node; the latest is the last snapshot in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_graph import BaseNode, End, Graph, GraphRunContext
from pydantic_graph.persistence.file import FileStatePersistence

DOCS = "https://ai.pydantic.dev/graph/#state-persistence"
API = "https://ai.pydantic.dev/api/pydantic_graph/persistence/"

State = dict[str, Any]


@dataclass
class Step(BaseNode[State, None, int]):
    async def run(self, ctx: GraphRunContext[State]) -> End[int]:
        return End(0)


GRAPH = Graph(nodes=(Step,), state_type=State, run_end_type=int)


class FilePersistence:
    """pydantic-graph 1.x FileStatePersistence, a JSON file for each run"""

    style = "history"
    unit = "one snapshot_node(): the state and the node that is next"
    largest = 200_000  # every snapshot rewrites the whole file
    promises = {
        "durable": ("the state of a run is kept in a JSON file, a snapshot before each node", API),
        "prefix": ("the entire history of snapshots can be loaded", API),
        "loadable": ("an interrupted run is resumed from what was persisted", DOCS),
        "continues": ("it continues where it stopped, also in another process", DOCS),
    }

    def open(self, directory: str) -> None:
        self.directory = Path(directory)

    def close(self) -> None:
        pass

    def _run(self, session: str) -> Any:
        persistence = FileStatePersistence(self.directory / f"run_{session}.json")
        persistence.set_graph_types(GRAPH)
        return persistence

    async def save(self, session: str, state: State) -> None:
        await self._run(session).snapshot_node(state, Step())

    async def history(self, session: str) -> list[State]:
        return [snapshot.state for snapshot in await self._run(session).load_all()]

    async def load(self, session: str) -> State | None:
        found = await self.history(session)
        return found[-1] if found else None

    def settings(self) -> dict[str, Any]:
        return {"files": sorted(path.name for path in self.directory.iterdir())}
