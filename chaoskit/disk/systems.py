"""possible_on: the file systems on which the same failure can happen."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from chaoskit.disk.image import Image
from chaoskit.disk.ops import Profile, Trace
from chaoskit.disk.power_states import states_at
from chaoskit.disk.recipe import Candidate

REAL: Final[tuple[Profile, ...]] = ("ext4", "xfs", "btrfs")
MOST = 24  # states per file system that are tried, the most revealing first


def possible_on(trace: Trace, candidate: Candidate, shows_it: Callable[[Image], bool]) -> dict[Profile, bool]:
    """For each real file system, whether a power loss at the same position shows the same failure."""
    return {profile: _possible(trace, candidate, profile, shows_it) for profile in REAL}


def _possible(
    trace: Trace, candidate: Candidate, profile: Profile, shows_it: Callable[[Image], bool]
) -> bool:
    if profile == candidate.profile:
        return True
    images = [state.image for state in islice(states_at(trace, candidate.at, profile), MOST)]
    same = any(image.digest == candidate.image.digest for image in images)
    return same or any(shows_it(image) for image in images)


def in_words(found: dict[Profile, bool]) -> str:
    there = [name for name, possible in found.items() if possible]
    not_there = [name for name, possible in found.items() if not possible]
    if not there:
        return "not seen on ext4, xfs or btrfs: a warning about other file systems"
    return f"happens on {', '.join(there)}" + (f"; not seen on {', '.join(not_there)}" if not_there else "")
