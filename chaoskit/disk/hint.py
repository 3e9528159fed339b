"""The fix hint: which write was not durable when it was acknowledged, and which sync was missing.

A sync is proposed only if the state becomes impossible when the model runs again with that sync in
place. If no sync can help (the crash came before one could have been made), the hint says so: then
the order of the operations is wrong, not their durability.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from chaoskit.disk.image import Image
from chaoskit.disk.ops import DATA_KINDS, Op, Trace
from chaoskit.disk.power import lost_operations, model_at
from chaoskit.disk.recipe import Candidate, Recipe
from chaoskit.disk.timeline import Words, timeline

ASIDE = "write to a temporary file, then rename it"
DROP_TAIL = "when reading, drop a damaged tail (a record that is cut short, or ends in NUL bytes)"
StillBad = Callable[[Image], bool]


class Loss(msgspec.Struct, frozen=True):
    position: int
    words: str


class MissingSync(msgspec.Struct, frozen=True):
    file: int
    path: str
    is_directory: bool
    after: int  # position of the operation that it should follow
    before: str  # what it should precede

    def __str__(self) -> str:
        what = f"directory {self.path}" if self.is_directory else self.path
        return f"fsync of {what} after operation {self.after}, before {self.before}"


class Hint(msgspec.Struct, frozen=True):
    losses: tuple[Loss, ...]
    missing: tuple[MissingSync, ...]  # the smallest set; empty: no sync could have helped
    timeline: str
    cure: str = ASIDE  # where no sync could have helped
    systems: str = ""  # on which file systems it can happen

    def __str__(self) -> str:
        first = self.losses[-1] if self.losses else None
        text = [self.systems] if self.systems else []
        text += [f"not durable: operation {first.position}, {first.words}"] if first else []
        text += [f"missing: {sync}" for sync in self.missing]
        if not self.losses:
            text.append("nothing is lost in this state: a kill leaves the same state")
        elif not self.missing:
            text.append(f"no sync could have prevented it: {self.cure}")
        return "\n".join([*text, self.timeline])


def explain(trace: Trace, candidate: Candidate, ack: int | None = None) -> Hint:
    """`ack`: the position of the acknowledgement that the state violates, if any."""
    lost = lost_operations(trace, candidate)
    guilty = [position for position in lost if ack is None or position < ack]
    if not guilty:  # everything acknowledged is on disk; a later operation broke it
        guilty, ack = lost, None
    words = Words(trace, guilty)
    losses = tuple(Loss(position, words.words[position]) for position in guilty)
    missing = _smallest(trace, candidate, guilty, _proposals(trace, candidate, guilty, ack, words))
    cure = DROP_TAIL if words.appends.issuperset(guilty) else ASIDE
    return Hint(losses, tuple(missing), timeline(trace, candidate.at, guilty, ack), cure)


def _proposals(
    trace: Trace, candidate: Candidate, guilty: Sequence[int], ack: int | None, words: Words
) -> list[MissingSync]:
    """One sync per object that lost something, after its last lost operation; those that are needed least
    often first: of the directory that a file was moved out of (B3)."""
    found: dict[int, MissingSync] = {}
    for position in guilty:
        place, before = _place(trace, candidate.at, position, guilty, ack)
        for file, path, is_directory in _targets(trace.ops[position], position, words):
            found[file] = MissingSync(file, path, is_directory, place - 1, before)
    return list(found.values())


def _targets(op: Op, position: int, words: Words) -> Iterator[tuple[int, str, bool]]:
    if op.kind in DATA_KINDS:
        yield op.file, words.paths[position], False
        return
    if position in words.origins:
        yield op.parent, words.origins[position], True
    home = op.parent2 if op.kind in ("rename", "link") else op.parent
    yield home, words.homes[position], True


def _place(trace: Trace, at: int, position: int, guilty: Sequence[int], ack: int | None) -> tuple[int, str]:
    """Before the file got the name under which it is found, else before the acknowledgement."""
    file = trace.ops[position].file
    for later in range(position + 1, at):
        op = trace.ops[later]
        publishes = op.kind in ("rename", "link") and op.file == file and later not in guilty
        if publishes and trace.ops[position].kind in DATA_KINDS:
            return later, f"operation {later} ({op.kind})"
    if ack is not None and position < ack <= at:
        return ack, "the acknowledgement"
    kept = (later for later in range(position + 1, at) if later not in guilty)
    following = next(kept, at)
    return following, f"operation {following}" if following < at else "the power loss"


def _smallest(
    trace: Trace, candidate: Candidate, guilty: Sequence[int], proposals: list[MissingSync]
) -> list[MissingSync]:
    """Drops every sync that is not needed to prevent the losses."""
    if not _prevents(trace, candidate, guilty, proposals):
        return []
    for sync in list(proposals):
        rest = [other for other in proposals if other is not sync]
        if rest and _prevents(trace, candidate, guilty, rest):
            proposals = rest
    return proposals


def _prevents(
    trace: Trace, candidate: Candidate, guilty: Sequence[int], syncs: Sequence[MissingSync]
) -> bool:
    """Whether none of the losses can happen if the model runs again with the syncs in place."""
    places = sorted(((sync.after + 1, sync.file) for sync in syncs), reverse=True)
    ops = list(trace.ops)
    for place, file in places:
        ops.insert(place, Op(index=-1, kind="fsync", file=file))
    mended = msgspec.structs.replace(trace, ops=tuple(ops))

    def moved(position: int) -> int:
        return position + sum(place <= position for place, _ in places)

    at = candidate.at + sum(place < candidate.at or _acked_at(place, syncs) for place, _ in places)
    still = set(model_at(mended, at, candidate.profile).pending())
    return bool(guilty) and not any(moved(position) in still for position in guilty)


def _acked_at(place: int, syncs: Sequence[MissingSync]) -> bool:
    """A sync before an acknowledgement right before the crash counts as done."""
    return any(s.after + 1 == place and s.before == "the acknowledgement" for s in syncs)


def minimise(trace: Trace, candidate: Candidate, still_bad: StillBad) -> Candidate:
    """The same failure with as little lost as possible: greedily, in ever smaller chunks."""
    if candidate.recipe.under_way:
        return candidate
    model = model_at(trace, candidate.at, candidate.profile)

    def without(positions: Sequence[int]) -> Candidate:
        recipe = Recipe("without", tuple(positions)) if positions else Recipe("kill")
        return Candidate(candidate.at, candidate.profile, recipe, model.build(recipe))

    best, lost = candidate, model.lost(candidate.recipe)
    if still_bad(without(lost).image):
        best = without(lost)
    elif candidate.recipe.way == "torn":
        return candidate
    bite = len(lost)
    while bite:
        best, lost, shrunk = _bite(best, lost, bite, without, still_bad)
        bite = min(bite, len(lost)) if shrunk else bite // 2
    return best


def _bite(
    best: Candidate,
    lost: list[int],
    bite: int,
    without: Callable[[Sequence[int]], Candidate],
    still_bad: StillBad,
) -> tuple[Candidate, list[int], bool]:
    """Restores `bite` lost operations at a time, as long as the state stays bad."""
    shrunk = False
    start = 0
    while start < len(lost):
        rest = lost[:start] + lost[start + bite :]
        trial = without(rest)
        if trial.image.digest != best.image.digest and not still_bad(trial.image):
            start += bite
            continue
        best, lost, shrunk = trial, rest, True
    return best, lost, shrunk
