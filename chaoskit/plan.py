"""Plans: from the points that were seen to the schedules to run. Pure; one seed, one list.

A schedule can only name points that are known to be reached, so plans grow in rounds: round one is
drawn from the run without faults; a schedule with a second crash extends one that has been run, by
a point that its last life was seen to pass. Every planned fault is therefore expected to fire, and
one that does not is worth a doubt.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from chaoskit.model import Firing, Kill, Schedule

Seen = Mapping[Schedule, Sequence[Firing]]  # what the last life of each finished schedule passed


class Plan(Protocol):
    def rounds(self) -> int: ...

    def schedules(self, round_number: int, seen: Seen) -> Iterator[Schedule]:
        """The schedules of one round (from 1), given what all earlier rounds have shown."""
        ...


class Sweep:
    """Every point, before and after it, one crash each."""

    def rounds(self) -> int:
        return 1

    def schedules(self, round_number: int, seen: Seen) -> Iterator[Schedule]:  # noqa: ARG002
        return (Schedule((Kill(f.point, f.when),)) for f in seen[Schedule()])


class Sample:
    """`runs` schedules drawn from the seed: one crash, then two, then three, a third of them each.

    Later crashes are drawn with a bias towards the beginning of a life, because that is where
    recovery happens.
    """

    DEPTH = 3

    def __init__(self, seed: int, runs: int) -> None:
        self._seed = seed
        self._runs = runs

    def rounds(self) -> int:
        return self.DEPTH

    def schedules(self, round_number: int, seen: Seen) -> Iterator[Schedule]:
        rng = random.Random(f"{self._seed}/{round_number}")
        parents = [s for s in seen if len(s.faults) == round_number - 1 and seen[s]]
        done: set[Schedule] = set()
        # Few distinct schedules may exist; a bounded number of draws keeps this finite.
        for _ in range(20 * self._share(round_number)):
            if len(done) == self._share(round_number) or not parents:
                return
            schedule = self._draw(rng, rng.choice(parents), seen)
            if schedule not in done:
                done.add(schedule)
                yield schedule

    def _draw(self, rng: random.Random, parent: Schedule, seen: Seen) -> Schedule:
        firings = seen[parent]
        fraction = rng.random() if not parent.faults else rng.random() ** 2
        firing = firings[int(fraction * len(firings))]
        return Schedule((*parent.faults, Kill(firing.point, firing.when)))

    def _share(self, round_number: int) -> int:
        share, rest = divmod(self._runs, self.DEPTH)
        return share + (rest if round_number == 1 else 0)
