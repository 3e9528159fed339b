"""Power loss: unsynced data is lost, in the ways that a profile allows.

Method. The process is killed before the operation; then its directory is put into a state that a power
loss could have left, given by a recipe (`chaoskit.disk.recipe`). Usually the life before the crash need not
be run: the states are rebuilt from one recording.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec

from chaoskit.disk import hint, interposer, power, staging
from chaoskit.disk.image import DirNode, FileNode, Image
from chaoskit.disk.ops import Profile, Trace
from chaoskit.disk.power_states import power_states
from chaoskit.disk.recipe import Candidate, Recipe
from chaoskit.disk.systems import in_words, possible_on
from chaoskit.faults.kind import Arming, FaultKind, StateSource, StillBad
from chaoskit.model import Fault, Firing, PersistPoint
from chaoskit.recording import CrashState, Recording, points

MOST_STATES = 1000  # default budget


class PowerLoss(Fault, msgspec.Struct, frozen=True, tag="power"):
    """The power fails before the point. `way` and what follows are the recipe."""

    point: PersistPoint
    profile: Profile
    way: str
    positions: tuple[int, ...] = ()
    cut: int = 0
    tail: str = "absent"
    under_way: bool = False
    beside: str = "data"

    decides_tier = True  # what a power loss may lose, nobody promises to keep in a mere crash

    def __str__(self) -> str:
        return f"power loss before {self.point} ({self.profile}: {self.recipe.words()})"

    @property
    def recipe(self) -> Recipe:
        return msgspec.convert({name: getattr(self, name) for name in Recipe.__struct_fields__}, Recipe)

    @property
    def name(self) -> str:
        return f"power loss ({self.profile})"

    @property
    def tier(self) -> str:
        return f"power-{self.profile}"


def at(_firing: Firing) -> list[Fault]:
    return []  # the states that a power loss can leave depend on the whole trace: see `states`


def arm(fault: PowerLoss) -> Arming:
    assert fault.point.op is not None, "a power loss strikes at a disk operation"
    return Arming(disk=interposer.kill(fault.point.op, "before"))


def draw(recording: Recording, point: PersistPoint, profile: Profile, rng: Random) -> Fault | None:
    """One of the losses that are possible at this point; if nothing is pending, it is a kill."""
    assert point.op is not None
    model = power.model_at(recording.trace, recording.trace.base + point.op, profile)
    generators = (power.whole, power.apart, power.singles, power.torn, power.pairs, power.subsets)
    lossy = [[r for r in generate(model, rng) if r.way != "kill"] for generate in generators]
    groups = [recipes for recipes in lossy if recipes]
    recipe = rng.choice(rng.choice(groups)) if groups else Recipe("kill")
    return PowerLoss(point, profile, **msgspec.structs.asdict(recipe))


def after_death(fault: PowerLoss, trace: Trace, directory: Path) -> None:
    candidate = candidate_of(trace, fault)
    staging.materialise(candidate.image, directory, None)
    staging.set_times(candidate.image, directory, Recording(trace, ()).times(candidate.at))


def states(recording: Recording, source: StateSource) -> Iterator[CrashState]:
    """The most revealing states first, up to the budget."""
    where = points(recording.trace)
    found = power_states(
        recording.trace,
        recording.ack_positions(),
        source.profile or "ext4",
        source.budget or MOST_STATES,
        seed=source.seed,
        logical_key=_outline,
    )
    for state in found:
        yield state_of(state.candidate, where, recording.trace.base)


def state_of(candidate: Candidate, where: list[PersistPoint], base: int) -> CrashState:
    recipe = msgspec.structs.asdict(candidate.recipe)
    fault = PowerLoss(where[candidate.at - base], candidate.profile, **recipe)
    return CrashState(candidate.at, candidate.image, fault)


def _outline(image: Image) -> tuple[tuple[str, int], ...]:
    """States with the same names and sizes are probably read alike: they are tried last."""
    return tuple(
        (path, node.data.size if isinstance(node, FileNode) else -1)
        for path, _, node in image.walk()
        if not isinstance(node, DirNode)
    )


def candidate_of(trace: Trace, fault: PowerLoss) -> Candidate:
    """The state that a power loss leaves, rebuilt from its recipe."""
    assert fault.point.op is not None
    at = min(trace.base + fault.point.op, len(trace.ops))
    return power.rebuild(trace, at, fault.profile, fault.recipe)


def minimise(recording: Recording, fault: PowerLoss, still_bad: StillBad) -> Fault:
    """The same failure with as little data lost as possible."""
    candidate = candidate_of(recording.trace, fault)

    def shows_it(image: Image) -> bool:
        return still_bad(CrashState(candidate.at, image, fault))

    smallest = hint.minimise(recording.trace, candidate, shows_it)
    return state_of(smallest, points(recording.trace), recording.trace.base).fault


def explain(recording: Recording, fault: PowerLoss, still_bad: StillBad | None) -> hint.Hint:
    """Which missing sync would have prevented it; with `still_bad`, also on which file systems it happens."""
    candidate = candidate_of(recording.trace, fault)
    acknowledged = [at for at in recording.ack_positions() if at <= candidate.at]
    found = hint.explain(recording.trace, candidate, acknowledged[-1] if acknowledged else None)
    if still_bad is None:
        return found

    def shows_it(image: Image) -> bool:
        return still_bad(CrashState(candidate.at, image, fault))

    systems = in_words(possible_on(recording.trace, candidate, shows_it))
    if fault.profile == "ext4" and fault.way in ("zeros", "sizes"):
        systems += " (on ext4 since Linux 5.6, or with dioread_nolock)"
    return msgspec.structs.replace(found, systems=systems)


KIND = FaultKind(
    name="power",
    summary="power loss: unsynced data is lost, in every way that the profile allows",
    data=PowerLoss,
    at=at,
    arm=arm,
    draw=draw,
    watches_disk=True,
    after_death=after_death,
    states=states,
    rebuilt=True,
    selects=True,
    minimise=minimise,
    explain=explain,
)
