"""Store: an adapter whose sync and async methods are called alike, and whose content is recognised."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

from chaoskit.inside.life import said_by
from chaoskit.inside.saved_data import MOST, items_of, recognised, state_of


class Store:
    """Wraps an adapter, so that sync and async methods are called alike."""

    def __init__(self, adapter: Any, directory: Path) -> None:
        self._adapter = adapter
        self._directory = directory
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._kinds = [do for do in ("save", "append") if hasattr(adapter, do)]
        self.callers: str = getattr(self._adapter, "callers", "one")
        self._most: int = getattr(self._adapter, "items_per_call", MOST)

    def opens(self) -> str:
        """Empty, or the error that prevented it from opening."""
        try:
            self._call("open", str(self._directory))
            if hasattr(self._adapter, "settle"):
                self._call("settle")
        except Exception as error:  # noqa: BLE001 - a library may raise anything
            return self.said(error)
        return ""

    def close(self) -> None:
        self._call("close")

    def leave(self) -> None:
        for thread in self._threads.values():
            thread.shutdown()
        if self._loop:
            self._loop.close()

    def settings(self) -> dict[str, Any]:
        named = self._call("settings") if hasattr(self._adapter, "settings") else {}
        found: dict[str, Any] = {str(name): self._without_path(value) for name, value in named.items()}
        return found if self.callers == "one" else {**found, "callers": self.callers}

    def _without_path(self, value: Any) -> Any:
        """Every run has a directory of its own, which must not make its settings differ."""
        return value.replace(str(self._directory), ".") if isinstance(value, str) else value

    def in_its_thread(self, session: str, work: Callable[[], None]) -> None:
        """Runs `work` here or in the session's own thread; one at a time, so that runs are repeatable."""
        if self.callers != "threads":
            work()
            return
        if session not in self._threads:
            self._threads[session] = ThreadPoolExecutor(1, thread_name_prefix=session)
        self._threads[session].submit(work).result()

    def step(self, session: str, n: int, place: int = 0) -> dict[str, Any]:
        """A small change; neighbours use each way of changing that the adapter has."""
        return {"do": self._kinds[place % len(self._kinds)], "session": session, "n": n, "size": 40}

    def do(self, step: dict[str, Any]) -> None:
        self.finish(self.begin(step))

    def begin(self, step: dict[str, Any]) -> Any:
        """Performs the step, or returns an awaitable that does."""
        session = step["session"]
        if step["do"] == "delete":
            return self._adapter.delete(session)
        if step["do"] == "append":
            items = deepcopy(items_of(session, step["n"], step["size"], self._most))
            return self._adapter.append(session, items)
        return self._adapter.save(session, dict(state_of(session, step["n"], step["size"])))

    def look(self, session: str) -> dict[str, Any]:
        """What the store holds: the numbers of intact saves, and a description of anything else."""
        readers: dict[str, Callable[[Any], Any]] = {
            "load": lambda found: None if found is None else recognised(session, found),
            "history": lambda found: [recognised(session, state) for state in found],
            "items": lambda found: [recognised(session, item) for item in found],
            "records": lambda found: found,
        }
        seen: dict[str, Any] = {}
        for method, read in readers.items():
            if hasattr(self._adapter, method):
                try:
                    seen[method] = read(self._call(method, session))
                except Exception as error:  # noqa: BLE001 - a load may fail in any way
                    seen["trouble"] = f"{method}: {self.said(error)}"
        return seen

    def said(self, error: BaseException) -> str:
        name, words = type(error).__name__, said_by(error, self._directory)
        return name if words == name else f"{name}: {words}"[:300]

    def _call(self, method: str, *args: Any) -> Any:
        return self.finish(getattr(self._adapter, method)(*args))

    def finish(self, answer: Any) -> Any:
        if inspect.isawaitable(answer):
            self._loop = self._loop or asyncio.new_event_loop()
            return self._loop.run_until_complete(awaited(answer))
        return answer


async def awaited(answer: Any) -> Any:
    return await answer
