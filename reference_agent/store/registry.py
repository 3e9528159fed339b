"""Registry: finds things by name, both built-in ones and those that other packages add.

A package adds an entry with an entry point in the registry's group:

    [project.entry-points."reference_agent.stores"]
    postgresql = "my_package.store:KIND"

A built-in name is looked up in a dictionary. Only an unknown name triggers reading the metadata of the
installed packages, which takes longer than starting an agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from reference_agent.references import closest, load


class UnknownName(ValueError):
    """The name is unknown; the one-line message lists the known names."""


class Registry:
    def __init__(self, group: str, what: str, built_in: Mapping[str, str]) -> None:
        """`what` is the noun for messages. `built_in` maps each name to its reference, "module:attribute"."""
        self.group = group
        self._what = what
        self.built_in = built_in

    def names(self) -> tuple[str, ...]:
        """The built-in names with the default first, then the others."""
        return *self.built_in, *sorted(_entry_points(self.group).keys() - self.built_in.keys())

    def reference(self, name: str) -> str:
        """The reference to the entry, without importing it."""
        found = self.built_in.get(name) or _entry_points(self.group).get(name)
        if found is None:
            raise UnknownName(unknown(self._what, name, self.names()))
        return found

    def load(self, name: str) -> Any:
        return load(self.reference(name))


def unknown(what: str, name: str, known: tuple[str, ...]) -> str:
    """`no store 'sqlit': did you mean 'sqlite'? (there are: sqlite, files)`"""
    close = closest(name, known)
    guess = f": did you mean {close!r}?" if close else ""
    return f"no {what} {name!r}{guess} (there are: {', '.join(known)})"


@cache
def _entry_points(group: str) -> dict[str, str]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - only a third-party store pays for it

    found = entry_points(group=group)
    return {entry.name: entry.value for entry in found}


STORES = Registry(
    "reference_agent.stores",
    "store",
    {"sqlite": "reference_agent.store.sqlite_kind:KIND", "files": "reference_agent.store.files_kind:KIND"},
)
DEFAULT = "sqlite"


def name_in(store: str) -> str:
    """The kind's name in a store given as a name or as a URL such as `postgresql://host/database`."""
    return store.partition(":")[0]
