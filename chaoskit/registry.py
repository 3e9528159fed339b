"""Registries: scenarios, invariants, claims and targets by name; `resolve` looks up the names in settings."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from chaoskit import entry_points
from chaoskit.adapter import Adapter, BadAdapter, read as read_adapter, requirements
from chaoskit.entry_points import UnknownName, unknown
from chaoskit.faults.kind import kind, kinds
from chaoskit.inside.loading import include_current_directory
from chaoskit.model import Claim, Invariant, Mutant, Scenario, Subject
from chaoskit.settings import Settings

T = TypeVar("T")
SCENARIOS = "chaoskit.scenarios"
INVARIANTS = "chaoskit.invariants"
CLAIMS = "chaoskit.claims"
TARGETS = "chaoskit.targets"  # each entry is a dictionary: name -> file.py:Class of an adapter
SUBJECTS = "chaoskit.subjects"  # functions that turn an adapter of a subject into a scenario
ALL_FAULTS = "all"
TARGET = "target:"  # prefix of scenarios that test an adapter


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """Settings with every name looked up, so that nothing built from them can fail on an unknown name."""

    settings: Settings  # with the store that is used
    scenario: Scenario
    invariants: tuple[Invariant, ...]
    mutant: Mutant | None

    @property
    def claims(self) -> tuple[str, ...]:
        return tuple(invariant.name for invariant in self.invariants)


def resolve(settings: Settings) -> Resolved:
    """Raises UnknownName, which lists the known names, or CannotLoad."""
    found = scenario(settings.scenario)
    chosen = msgspec.structs.replace(
        settings,
        store=store(found, settings.store),
        generated=found.generated,
        faults=faults(found, settings.faults),
    )
    if settings.agents is not None:
        _check_agents(found, settings.seed, settings.agents)
    if settings.bias and not chosen.fuzzes:
        raise UnknownName(
            "--bias needs fuzzing: --plan sample, with --agents N or a scenario that generates its workload"
        )
    return Resolved(
        settings=chosen,
        scenario=found,
        invariants=tuple(map(invariant, found.invariants)),
        mutant=mutant(found, settings.mutant, chosen.store) if settings.mutant is not None else None,
    )


# --- scenarios and targets


def scenarios() -> dict[str, Scenario]:
    """The scenarios registered by name."""
    found = entry_points.declared(SCENARIOS, Scenario)
    return dict(sorted(found.items()))


def scenario(name: str) -> Scenario:
    if name.startswith(TARGET):
        return _scenario_of_target(name.removeprefix(TARGET))
    known = scenarios()
    if name in known:
        return known[name]
    return _by_reference("scenario", name, Scenario, known)


def targets() -> dict[str, str]:
    """The registered adapters: name -> reference."""
    found: dict[str, str] = {}
    for entry in entry_points.entries(TARGETS):
        family = entry_points.load_reference(entry.value)
        assert isinstance(family, dict), f"{entry.value} is not a dictionary"
        found |= family
    return dict(sorted(found.items()))


class AskedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of `REFERENCE[@REQUIREMENT,...][#VARIANT]`."""

    reference: str
    instead: tuple[str, ...] = ()
    variant: str = ""

    @property
    def without_variant(self) -> str:
        return f"{self.reference}@{','.join(self.instead)}" if self.instead else self.reference


# A path may contain `@` and `#`, so the reference ends with the class; a name contains neither.
_ASKED = re.compile(
    r"(?P<reference>.*\.py:\w+|[\w.]+:\w+|[^:@#/]+)(@(?P<instead>.+?))?(#(?P<variant>\w+))?", re.DOTALL
)


def parse_target(name: str) -> AskedTarget:
    found = _ASKED.fullmatch(name)
    if not found:
        return AskedTarget(reference=name)
    instead = found["instead"]
    return AskedTarget(
        reference=found["reference"],
        instead=tuple(instead.split(",")) if instead else (),
        variant=found["variant"] or "",
    )


def adapter(name: str) -> Adapter:
    """By name, module:Class or file.py:Class; `name@requirement,...` selects other versions."""
    asked = parse_target(name)
    name, instead = asked.reference, asked.instead
    known = targets()
    if name not in known and ":" not in name:
        raise UnknownName(unknown("target", name, known))
    if name not in known:
        include_current_directory()
    found = read_adapter(name, known.get(name, name))
    for claim in found.promises or ():
        if claim not in claims(found.subject):
            what = f"claim about {found.subject}s"
            raise BadAdapter(f"promises of {found.reference}: {unknown(what, claim, claims(found.subject))}")
    wanted = requirements(found.requires, instead)
    return msgspec.structs.replace(found, requires=wanted)


def _scenario_of_target(name: str) -> Scenario:
    """A variant is one of the scenario's own, or a flag of the workload: zombie, fickle, race, fork."""
    asked = parse_target(name)
    variant = asked.variant
    found = adapter(asked.without_variant)
    (entry,) = (entry for entry in entry_points.entries(SUBJECTS) if entry.name == found.subject)
    build = entry_points.load_reference(entry.value)
    assert callable(build), f"{entry.value} does not make scenarios"
    made = build(found)
    assert isinstance(made, Scenario), f"{entry.value} made a {type(made).__name__}"
    seeded = found.options.get("clock") == "seeded"
    flags = {variant: True} if variant and variant not in made.variants else {}
    draw = made.variants.get(variant, made.workload)
    return msgspec.structs.replace(
        made,
        name=f"{TARGET}{name}",
        target=msgspec.structs.replace(made.target, seeded_clock=seeded),
        workload=lambda seed: {**draw(seed), **flags},
    )


# --- invariants and claims


def invariants() -> dict[str, Invariant]:
    """All invariants, claims included."""
    found: dict[str, Invariant] = {**entry_points.declared(INVARIANTS, Invariant)}
    return dict(sorted({**found, **entry_points.declared(CLAIMS, Claim)}.items()))


def invariant(name: str) -> Invariant:
    known, name = invariants(), current_name(name)
    return known[name] if name in known else _by_reference("invariant", name, Invariant, known)


def current_name(name: str) -> str:
    """The name of an invariant, given that name or a former one; other names are returned unchanged."""
    known = invariants()
    if name in known:
        return name
    return next((each.name for each in known.values() if name in each.aliases), name)


def current_signature(signature: str) -> str:
    """`invariant/kind`, as in a token, with the invariant's current name."""
    name, slash, kind = signature.partition("/")
    return f"{current_name(name)}{slash}{kind}"


def claims(subject: Subject | None = None) -> dict[str, Claim]:
    """The claims that a certificate examines, in the order of its rows."""
    every = entry_points.declared(CLAIMS, Claim)
    return {name: claim for name, claim in every.items() if subject in (None, claim.subject)}


def _by_reference(what: str, name: str, kind: type[T], known: dict[str, T]) -> T:
    if ":" not in name:
        raise UnknownName(unknown(what, name, known))
    include_current_directory()
    found = entry_points.load_reference(name)
    if not isinstance(found, kind):
        raise UnknownName(f"{name} is a {type(found).__name__}, not a {kind.__name__}")
    return found


# --- mutants, stores and agents of a scenario


def mutant(scenario: Scenario, name: str, store: str | None = None) -> Mutant:
    known = {mutant.name: mutant for mutant in scenario.mutants}
    if name not in known:
        raise UnknownName(unknown(f"mutant of {scenario.name}", name, sorted(known)))
    found = known[name]
    if found.stores and store not in found.stores:
        raise UnknownName(f"mutant {name!r} needs --store {' or '.join(found.stores)}, got {store}")
    return found


def store(scenario: Scenario, name: str | None) -> str | None:
    """The requested store, or the scenario's default; None if the scenario has no choice of stores."""
    if name is None:
        return scenario.stores[0] if scenario.stores else None
    if name.partition(":")[0] not in scenario.stores:  # `postgresql://...` is of the kind `postgresql`
        raise UnknownName(unknown(f"store of {scenario.name}", name, scenario.stores))
    return name


def faults(scenario: Scenario, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """`all` means those that the scenario is to survive."""
    if ALL_FAULTS in wanted:
        return tuple(k.name for k in kinds().values() if scenario.world_faults or not k.strikes_calls)
    for name in wanted:
        if kind(name).strikes_calls and not scenario.world_faults:
            able = ", ".join(name for name, each in scenarios().items() if each.world_faults)
            raise UnknownName(
                f"{scenario.name} does not support --fault {name}: it does not promise to survive errors "
                f"of the services that it calls (Scenario.world_faults); these scenarios do: {able or 'none'}"
            )
    return wanted


def _check_agents(found: Scenario, seed: int, agents: int) -> None:
    """Raises UnknownName unless the scenario supports this number of agents."""
    if found.workload_for is None:
        able = ", ".join(name for name, each in scenarios().items() if each.workload_for)
        raise UnknownName(f"{found.name} does not support --agents; these scenarios do: {able or 'none'}")
    try:
        found.workload_for(seed, agents)
    except ValueError as error:
        raise UnknownName(f"{found.name}: {error}") from None
