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

from chaoskit.disk.interposer import NEEDS_SPACE
from chaoskit.disk.ops import SYNC_KINDS
from chaoskit.model import DiskError, DiskErrorKind, Fault, Firing, Kill, Schedule

Seen = Mapping[Schedule, Sequence[Firing]]  # what the last life of each finished schedule passed


class Plan(Protocol):
    def rounds(self) -> int: ...

    def schedules(self, round_number: int, seen: Seen) -> Iterator[Schedule]:
        """The schedules of one round (from 1), given what all earlier rounds have shown."""
        ...

    def extent(self, recovery: int) -> int | None:
        """How much of a later life's trace the plan wants to see, given how long recovery took."""
        ...


def faults_at(firing: Firing, kind: str) -> list[Fault]:
    """What can be done at a point."""
    return disk_errors(firing) if kind == "disk" else [Kill(firing.point, firing.when)]


def disk_errors(firing: Firing) -> list[Fault]:
    """Each error that the operation can have there, once and from there on."""
    point = firing.point
    kind = point.name.partition(" ")[0]
    refused = kind in NEEDS_SPACE | SYNC_KINDS  # by a full disk
    full: tuple[DiskErrorKind, ...] = ("ENOSPC",) if refused else ()
    errors: dict[str, tuple[DiskErrorKind, ...]] = {
        "before": ("lost" if kind in ("fsync", "fdatasync") else "EIO", *full),
        "half": ("short",),
        "after": (),
    }
    return [DiskError(point, e, lasting) for e in errors[firing.when] for lasting in (False, True)]


class Sweep:
    """Every point, every fault; then every point of every recovery that was seen to be different.

    Two recoveries that pass the same points in the same order are taken as one: crashing both at
    every point would try the same thing twice.
    """

    def __init__(self, kind: str = "kill") -> None:
        self._kind = kind

    def rounds(self) -> int:
        return 1 if self._kind == "disk" else 2

    def schedules(self, round_number: int, seen: Seen) -> Iterator[Schedule]:
        for parent in [Schedule()] if round_number == 1 else self._recoveries(seen):
            for firing in seen[parent]:
                for fault in faults_at(firing, self._kind):
                    yield Schedule((*parent.faults, fault))

    def extent(self, recovery: int) -> int | None:
        return recovery

    @staticmethod
    def _recoveries(seen: Seen) -> Iterator[Schedule]:
        met: set[tuple[tuple[str, str], ...]] = set()
        for schedule, firings in seen.items():
            passed = tuple((firing.point.name, firing.when) for firing in firings)
            if schedule.faults and passed and passed not in met:
                met.add(passed)
                yield schedule


class Sample:
    """`runs` schedules drawn from the seed: one crash, then two, then three, about a third each.

    Later crashes are drawn with a bias towards the beginning of a life, because that is where
    recovery happens.
    """

    DEPTH = 3

    def __init__(self, seed: int, runs: int, kind: str = "kill") -> None:
        self._seed = seed
        self._runs = runs
        self._kind = kind

    def rounds(self) -> int:
        return self.DEPTH

    def extent(self, recovery: int) -> int | None:  # noqa: ARG002 - any point of a later life will do
        return None

    def schedules(self, round_number: int, seen: Seen) -> Iterator[Schedule]:
        rng = random.Random(f"{self._seed}/{round_number}")
        parents = [s for s in seen if len(s.faults) == round_number - 1 and seen[s]]
        done: set[Schedule] = set()
        share = self._share(round_number, sum(bool(schedule.faults) for schedule in seen))
        # Few distinct schedules may exist; a bounded number of draws keeps this finite.
        for _ in range(20 * share):
            if len(done) == share or not parents:
                return
            schedule = self._draw(rng, rng.choice(parents), seen)
            if schedule and schedule not in done:
                done.add(schedule)
                yield schedule

    def _draw(self, rng: random.Random, parent: Schedule, seen: Seen) -> Schedule | None:
        firings = seen[parent]
        fraction = rng.random() if not parent.faults else rng.random() ** 2
        possible = faults_at(firings[int(fraction * len(firings))], self._kind)
        return Schedule((*parent.faults, rng.choice(possible))) if possible else None

    def _share(self, round_number: int, done: int) -> int:
        """What a round could not find, because there was no more, the later ones make up for."""
        rounds_left = self.DEPTH - round_number + 1
        return -(-(self._runs - done) // rounds_left)
