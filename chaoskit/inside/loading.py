"""`module:name` and `path/to/file.py:name` references."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def include_current_directory() -> None:
    """For code that the user names. Not for the rest: a project may come from somebody else."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def load(reference: str) -> Any:
    """The object that a reference refers to."""
    place, _, name = reference.rpartition(":")
    module = _load_file(place) if place.endswith(".py") else importlib.import_module(place)
    return getattr(module, name)


def _load_file(path: str) -> ModuleType:
    resolved = str(Path(path).resolve())
    name = f"chaoskit_file:{resolved}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
