"""Deferred imports: `reference-agent --help` and a process that only plays a script should not pay for
importing an HTTP client."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from operator import attrgetter
from typing import Any


def load(reference: str) -> Any:
    """Return the object that "module:attribute" refers to."""
    module, _, attribute = reference.partition(":")
    return attrgetter(attribute)(import_module(module))


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to a misspelt one."""
    from difflib import get_close_matches  # noqa: PLC0415 - only a misspelt name pays for it

    close = get_close_matches(name, list(known), 1)
    return close[0] if close else None
