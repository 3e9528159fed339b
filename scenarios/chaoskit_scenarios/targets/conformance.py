# /// script
# requires-python = ">=3.11"
# dependencies = ["langgraph-checkpoint-sqlite>=3", "langgraph-checkpoint-conformance>=0.0.2"]
# ///
"""LangGraph's own conformance suite on one of its savers: prints the vendor's verdict as JSON.

    python conformance.py module:Saver | file.py:Saver

The suite drives the async methods. A saver that has only the sync ones is called through them, and the
verdict says so (`bridged`). A saver on SQLite gets a database file in its own directory.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.sqlite import SqliteSaver

METHODS = (
    "put",
    "put_writes",
    "get_tuple",
    "list",
    "delete_thread",
    "delete_for_runs",
    "copy_thread",
    "prune",
)
PACKAGES = ("langgraph-checkpoint-conformance", "langgraph-checkpoint-sqlite", "langgraph-checkpoint")


def saver_class(reference: str) -> type[Any]:
    place, _, name = reference.rpartition(":")
    if place.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(place).stem, place)
        if not spec or not spec.loader:
            raise SystemExit(f"cannot read {place}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    found: type[Any] = getattr(module, name)
    return found


def bridged(kind: type[Any]) -> type[Any]:
    """The same saver, with its async methods built from the sync ones it has."""
    mine = [m for m in METHODS if getattr(kind, m, None) is not getattr(BaseCheckpointSaver, m, None)]
    return type(kind.__name__, (kind,), {f"a{m}": _awaited(getattr(kind, m)) for m in mine})


def _awaited(method: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(inspect.unwrap(method)):

        @functools.wraps(method)
        async def each(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            for found in method(*args, **kwargs):
                yield found

        return each

    @functools.wraps(method)
    async def one(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    return one


async def verdict(kind: type[Any]) -> dict[str, Any]:
    needs_bridge = issubclass(kind, SqliteSaver)

    @checkpointer_test(name=kind.__name__)
    async def saver() -> AsyncIterator[Any]:
        with tempfile.TemporaryDirectory() as directory:
            place = str(Path(directory) / "checkpoints.db")
            async with AsyncExitStack() as stack:
                if needs_bridge:
                    db = stack.enter_context(closing(sqlite3.connect(place, check_same_thread=False)))
                    yield bridged(kind)(db)
                elif hasattr(kind, "from_conn_string"):
                    yield await stack.enter_async_context(kind.from_conn_string(place))
                else:
                    yield kind()

    report = await validate(saver)
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    found = report.to_dict()
    parts = found["results"].values()
    passed, failed = (sum(part[f"tests_{how}"] for part in parts) for how in ("passed", "failed"))
    words = f"{found['conformance_level']}: {passed} tests passed, {failed} failed"
    return {"verdict": words, **found, "bridged": needs_bridge, "versions": versions}


if __name__ == "__main__":
    json.dump(asyncio.run(verdict(saver_class(sys.argv[1]))), sys.stdout, indent=2)
