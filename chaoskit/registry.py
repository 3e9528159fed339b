"""What the engine knows by name: entry points, and `module:name` or `file.py:name` references."""

from __future__ import annotations

import difflib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from chaoskit.adapter import Adapter, read as read_adapter
from chaoskit.inside.loading import load
from chaoskit.model import Invariant, Mutant, Scenario
from chaoskit.run import environment
from chaoskit.settings import Settings

T = TypeVar("T")
SCENARIOS = "chaoskit.scenarios"
FAMILIES = "chaoskit.scenario_families"  # each a dictionary of scenarios
INVARIANTS = "chaoskit.invariants"
TARGETS = "chaoskit.target_families"  # each a dictionary: name -> file.py:Class of an adapter
KINDS = "chaoskit.adapter_kinds"  # how an adapter of each kind becomes a scenario
TARGET = "target:"  # a scenario of this name puts an adapter to the test


class UnknownName(ValueError):
    """The user named something that is not there; the message says what is."""


class CannotLoad(Exception):
    """It is there, but importing it fails."""


def names(group: str) -> list[str]:
    found = {entry.name for entry in entry_points(group=group)}
    return sorted(found | set(_families()) if group == SCENARIOS else found)


def scenario(name: str) -> Scenario:
    if name.startswith(TARGET):
        return _certified(name.removeprefix(TARGET))
    return _families().get(name) or _find(SCENARIOS, name, Scenario)


def _families() -> dict[str, Scenario]:
    """The members of all families, by name."""
    return _members(FAMILIES)


def targets() -> dict[str, str]:
    """The known adapters: name -> reference."""
    return _members(TARGETS)


def _members(group: str) -> dict[str, Any]:
    """What the dictionaries of a group have, together."""
    found: dict[str, Any] = {}
    for entry in entry_points(group=group):
        members = _load(entry.value)
        assert isinstance(members, dict), f"{entry.value} is not a dictionary"
        found |= members
    return found


def adapter(name: str) -> Adapter:
    """A known name, module:Class or file.py:Class; `name@requirement,...` asks for other versions."""
    head, colon, tail = name.rpartition(":")
    tail, _, instead = tail.partition("@")
    name = f"{head}{colon}{tail}"
    known = targets()
    if name not in known and ":" not in name:
        raise UnknownName(unknown("target", name, sorted(known)))
    found = read_adapter(name, known.get(name, name))
    wanted = environment.requirements(found.requires, instead.split(",") if instead else ())
    return msgspec.structs.replace(found, requires=wanted)


def _certified(name: str) -> Scenario:
    """`NAME#variant` is the same with a word more in its workload: zombie, fickle, race, fork."""
    plain, _, variant = name.partition("#")
    found = adapter(plain)
    (entry,) = entry_points(group=KINDS, name=found.kind)
    build = _load(entry.value)
    assert callable(build), f"{entry.value} does not make scenarios"
    made = build(found)
    assert isinstance(made, Scenario), f"{entry.value} made a {type(made).__name__}"
    return msgspec.structs.replace(
        made,
        name=f"{TARGET}{name}",
        workload=lambda seed: {**made.workload(seed), **({variant: True} if variant else {})},
    )


def invariant(name: str) -> Invariant:
    return _find(INVARIANTS, name, Invariant)


def invariants_of(scenario: Scenario) -> list[Invariant]:
    return [invariant(name) for name in scenario.invariants]


def mutant(scenario: Scenario, name: str, store: str | None = None) -> Mutant:
    known = {mutant.name: mutant for mutant in scenario.mutants}
    if name not in known:
        raise UnknownName(unknown(f"mutant of {scenario.name}", name, sorted(known)))
    found = known[name]
    if found.stores and store not in found.stores:
        raise UnknownName(
            f"mutant {name!r} breaks only the store {', '.join(found.stores)}, and this is {store}"
        )
    return found


def store(scenario: Scenario, name: str | None) -> str | None:
    """The store that was asked for, or the scenario's default; None where there is no choice."""
    if name is None:
        return scenario.stores[0] if scenario.stores else None
    if name not in scenario.stores:
        raise UnknownName(unknown(f"store of {scenario.name}", name, list(scenario.stores)))
    return name


def check_agents(found: Scenario, seed: int, agents: int) -> None:
    """Raises unless the scenario can have that many."""
    if found.crowd is None:
        able = ", ".join(name for name in names(SCENARIOS) if scenario(name).crowd)
        raise UnknownName(f"{found.name} takes no --agents; what does: {able or 'nothing'}")
    try:
        found.crowd(seed, agents)
    except ValueError as error:
        raise UnknownName(f"{found.name}: {error}") from None


def resolved(settings: Settings) -> Settings:
    """The same, with every name known and every default said; UnknownName if one is not there."""
    found = scenario(settings.scenario)
    invariants_of(found)
    chosen = store(found, settings.store)
    if settings.mutant:
        mutant(found, settings.mutant, chosen)
    if settings.agents is not None:
        check_agents(found, settings.seed, settings.agents)
    if settings.bias and not settings.fuzzes:
        raise UnknownName("--bias is for a fuzz: --plan sample --agents N, with --fault kill or disk")
    return msgspec.structs.replace(settings, store=chosen)


def unknown(what: str, name: str, known: list[str]) -> str:
    """`no scenario 'paymens': did you mean 'payments'? (there are: ...)`"""
    close = difflib.get_close_matches(name, known, 1)
    guess = f": did you mean {close[0]!r}?" if close else ""
    return f"no {what} {name!r}{guess} (there are: {', '.join(known) or 'none'})"


def _find(group: str, name: str, kind: type[T]) -> T:
    entry = next((entry for entry in entry_points(group=group) if entry.name == name), None)
    if entry is None and ":" not in name:
        raise UnknownName(unknown(kind.__name__.lower(), name, names(group)))
    found = _load(entry.value if entry else name)
    if not isinstance(found, kind):
        raise UnknownName(f"{name} is a {type(found).__name__}, not a {kind.__name__}")
    return found


def _load(reference: str) -> object:
    place = reference.rpartition(":")[0]
    if place.endswith(".py") and not Path(place).exists():
        raise UnknownName(f"no file {place!r}")
    try:
        return load(reference)
    except Exception as error:
        raise CannotLoad(f"{reference}: {type(error).__name__}: {error}") from error
