"""Recipe: how a crash state came about, as plain data; Candidate: the state itself.

Recipe, trace, position and profile determine the state; a token stores all of them except the trace, which
is recorded again.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Literal, Protocol

import msgspec

from chaoskit.disk.image import Image
from chaoskit.disk.ops import Op, Profile

Way = Literal[
    "kill", "nothing", "without", "keeping", "names", "sizes", "zeros", "missing", "below", "data", "torn"
]
Tail = Literal["absent", "zeros", "old", "head"]
Beside = Literal["data", "nothing", "zeros"]


class Recipe(msgspec.Struct, frozen=True):
    way: Way
    positions: tuple[int, ...] = ()  # lost (without), kept (keeping), or the torn write
    cut: int = 0  # torn: how many of its bytes were written
    tail: Tail = "absent"  # torn: what is in place of the rest
    under_way: bool = False  # the next operation has begun, and has not returned
    beside: Beside = "data"  # torn: what the file's other new pages hold

    def words(self) -> str:
        text = self._words()
        return f"the next operation under way: {text}" if self.under_way else text

    def _words(self) -> str:
        which = ", ".join(str(position) for position in self.positions)
        if self.way == "torn":
            rest = BESIDE[self.beside]
            return f"write {which} torn after {self.cut} bytes, {TAILS[self.tail]}{rest}"
        return WORDS[self.way].format(which=which)


WORDS: dict[Way, str] = {
    "kill": "nothing lost (a kill)",
    "nothing": "everything unsynced lost",
    "without": "operation {which} lost, with everything that depends on it",
    "keeping": "only operation {which} kept of what was unsynced, with what it depends on",
    "names": "names kept, unsynced data lost",
    "sizes": "names and sizes kept, unsynced data lost",
    "zeros": "the size of write {which} kept, its data zeros",
    "missing": "write {which} not written back, though the rest of the file was",
    "below": "of the file, only what lies before write {which} was written back",
    "data": "data kept, unsynced names lost",
}
TAILS: dict[Tail, str] = {
    "absent": "the rest missing",
    "zeros": "the rest zeros",
    "old": "old bytes in place of the rest",
    "head": "old bytes in place of the beginning",
}
BESIDE: dict[Beside, str] = {
    "data": "",
    "nothing": ", and what the file grew by lost",
    "zeros": ", and what the file grew by zeros",
}


class Candidate:
    """One state that a power loss at position `at` could have left."""

    __slots__ = ("at", "image", "profile", "recipe")

    def __init__(self, at: int, profile: Profile, recipe: Recipe, image: Image) -> None:
        self.at = at
        self.profile = profile
        self.recipe = recipe
        self.image = image


class Model(Protocol):
    """What is durable and what is pending at one position; advances along the trace."""

    at: int

    @property
    def kill(self) -> Image: ...

    def advance(self, op: Op) -> None:
        """`begin` and `finish`. Between the two, the operation is under way: a durable write may be torn."""
        ...

    def begin(self, op: Op) -> None: ...

    def finish(self, op: Op) -> None: ...

    def pending(self) -> list[int]:
        """Positions of the operations that a power loss now could lose, oldest first."""
        ...

    def latest(self, count: int) -> list[int]:
        """The last `count` of them, latest first; the cost does not depend on how many are pending."""
        ...

    def last_write(self) -> int | None:
        """The latest pending write, if no later operation changed its file."""
        ...

    def overwritten(self, count: int) -> int | None:
        """Of the latest `count`, a write in place that may be torn though a later one is the last."""
        ...

    def unwritten(self, count: int) -> list[int]:
        """Of the latest `count`, writes whose size may survive with zeros for data, if `sizes` and `torn` do
        not produce that."""
        ...

    def reordered(self, count: int) -> list[Recipe]:
        """Of the latest `count`, writes that reached the disk in another order."""
        ...

    def tears(self, position: int) -> list[Recipe]:
        """The ways in which this profile can tear the write."""
        ...

    def build(self, recipe: Recipe) -> Image: ...

    def lost(self, recipe: Recipe) -> list[int]:
        """Positions of the pending operations that are lost in the built state."""
        ...


def latest_of(count: int, *ascending: dict[int, Any]) -> list[int]:
    """The highest keys of dictionaries whose keys ascend, highest first."""
    heads = (list(islice(reversed(keys), count)) for keys in ascending)
    return sorted({key for head in heads for key in head}, reverse=True)[:count]
