"""Entry points: declarations of this distribution and of others, loaded on first use.

An entry is one declaration, or a family: a sequence or a dictionary of declarations. Every declaration has
a `name`. Those of chaoskit come first, in the order of its families.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar

from chaoskit.inside.loading import load
from chaoskit.wrong_use import WrongUse

T = TypeVar("T")
OURS = "chaoskit"
LONGEST = 100  # characters of a name in a message
MANY = 12  # names; a longer list is shortened, and with a good guess not printed at all


class UnknownName(WrongUse):
    """The user named something that does not exist; the message lists what does."""


class CannotLoad(Exception):
    """The declaration exists, but importing it fails."""


def entries(group: str) -> list[EntryPoint]:
    """Entries of this distribution first, then the others by name."""
    return sorted(entry_points(group=group), key=lambda e: (e.dist is None or e.dist.name != OURS, e.name))


@cache
def declared(group: str, kind: type[T]) -> dict[str, T]:
    """Every declaration of a group, by name."""
    found: dict[str, T] = {}
    for entry in entries(group):
        for each in _family(load_reference(entry.value)):
            if not isinstance(each, kind):
                raise CannotLoad(f"{entry.value}: expected {kind.__name__}, found {type(each).__name__}")
            found[each.name] = each  # type: ignore[attr-defined]  # every declaration has a name
    return found


def _family(loaded: Any) -> Iterator[Any]:
    if isinstance(loaded, dict):
        yield from loaded.values()
    elif isinstance(loaded, tuple | list):
        yield from loaded
    else:
        yield loaded


def load_reference(reference: str) -> object:
    """The object that `module:name` or `file.py:name` refers to."""
    place = reference.rpartition(":")[0]
    if place.endswith(".py") and not Path(place).exists():
        raise UnknownName(f"no file {place!r}")
    try:
        return load(reference)
    except Exception as error:
        raise CannotLoad(f"{reference}: {type(error).__name__}: {error}") from error


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """`no scenario 'paymens': did you mean 'payments'? (there are: ...)`"""
    names = list(known)
    name = name if len(name) <= LONGEST else f"{name[:LONGEST]}..."
    close = difflib.get_close_matches(name, names, 1)
    guess = f": did you mean {close[0]!r}?" if close else ""
    if close and len(names) > MANY:
        return f"no {what} {name!r}{guess}"
    more = f" and {len(names) - MANY} more" if len(names) > MANY else ""
    return f"no {what} {name!r}{guess} (there are: {', '.join(names[:MANY]) or 'none'}{more})"
