"""A real file system against the model of its profile, both ways.

A program runs on a logged disk, with hidden steps in between that do what time does: a *commit* of metadata,
a *writeback* of a file's pages or of some of them, or a slow disk, on which a commit overtakes a writeback,
or all but its first block. A writeback may end operations after it began, and commits may happen during an
operation. Every disk that a power loss could have left is mounted and read. What was observed must be
possible in the model, and what the model generates must be observed.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, groupby, islice, product
from threading import Event, Thread
from time import sleep

import msgspec

from chaoskit.disk.filedata import FileData
from chaoskit.disk.image import FileNode, Image
from chaoskit.disk.ops import Profile, Trace
from chaoskit.disk.profiles.btrfs import BtrfsModel
from chaoskit.disk.profiles.inplace import EXT4, NOTHING, XFS, DataChoice, OrderedFile, written
from chaoskit.disk.profiles.journaled import JournaledModel
from tests.disk.listings import Content, listing
from tests.disk.membership import could_survive
from tests.disk.positions import states
from tests.disk.traces import not_returned
from tests.realdisk.crashes import crashes
from tests.realdisk.device import CrashedDisk, LiveDisk, Workshop
from tests.realdisk.independent import explains
from tests.realdisk.performing import RealDisk

Program = Callable[[RealDisk], None]
Plan = Mapping[int, Sequence[str]]  # hidden steps after this many operations
State = frozenset[tuple[str, Content]]
# Whether the size moves at once (E5) depends on the folios of the page cache, and whether a write in place
# changes times (E2) on the clock.
RARE = [{"grows_at_once": False}, {"stamps": False}, {"grows_at_once": False, "stamps": False}]
EXT4_RULES = [EXT4, *(msgspec.structs.replace(EXT4, **rare) for rare in RARE)]
MODELS: dict[str, list[Callable[[Trace], JournaledModel]]] = {
    "ext4": [partial(JournaledModel, rules=rules) for rules in EXT4_RULES],
    "xfs": [
        partial(JournaledModel, rules=each) for each in (XFS, msgspec.structs.replace(XFS, stamps=False))
    ],
    "btrfs": [BtrfsModel],
}
MOST_STATES = 5000
MOST_CHOICES = 200_000
DELAY = 0.04  # of each write to a slow disk, in seconds
SLOW = f"delay {1000 * DELAY:.0f}"
OVERTAKEN = ["slow", "start writeback", "commit", "fast"]  # the commit overtakes the data
WRITEBACK = re.compile(r"(?:(start) )?writeback(?: from page (\d+)| below page (\d+))?(?: of file (\d+))?")
IN_PARTS = ["slow", "start writeback below page 1", "wait", "start writeback", "commit", "fast"]
COMMITTING = (["keep committing"], ["slow", "keep committing", "wait"])
BEGUN = ["slow", "start writeback"]
LATER = ["wait", "fast", "commit"]  # ends a writeback that began operations ago
HALF_WAY = ["slow", "start writeback", "wait", "commit", "fast"]  # ... but not its first block


class Performance(RealDisk):
    """Marks each operation in the disk's log, and performs the hidden steps of a plan."""

    def __init__(self, live: LiveDisk, plan: Plan, initial: Mapping[str, bytes], keep_open: bool) -> None:
        super().__init__(live.root, keep_open, initial)
        self._live, self._plan = live, plan
        self._stop, self._timer = Event(), Thread(target=self._keep_committing)
        live.mark("start")
        self._after(0)

    def _op(self, kind, path, **fields):
        index = super()._op(kind, path, **fields)
        self._live.mark(f"op {self.at}")
        self._after(self.at)
        return index

    def _after(self, count: int) -> None:
        for step in self._plan.get(count, ()):
            if step == "commit":
                self._live.commit()
            elif step == "slow":
                self._live.mark(SLOW)
            elif step == "fast":
                self._live.mark("delay 0")
            elif step == "wait":
                sleep(1.5 * DELAY)
            elif step == "keep committing":
                self._timer.start()
            elif step == "stop committing":
                self._stop_committing()
            else:
                self._write_back(step)

    def _keep_committing(self) -> None:
        """While the next operations are under way."""
        while not self._stop.is_set():
            self._live.commit()

    def _stop_committing(self) -> None:
        self._stop.set()
        if self._timer.is_alive():
            self._timer.join()

    def close_all(self) -> None:
        self._stop_committing()
        super().close_all()

    def _write_back(self, step: str) -> None:
        """`[start] writeback [from page N | below page N] [of file N]`"""
        found = WRITEBACK.fullmatch(step)
        assert found, step
        start, first, end, only = (text and int(text, 36) for text in found.groups())
        self.write_back(wait=start is None, only=only, first=first or 0, end=end or 0)


class Comparison(msgspec.Struct, kw_only=True):
    trace: Trace
    generated: list[set[State]]  # by position
    possible: list[set[State]]  # ... with every choice that the model can make
    profile: Profile
    observed: list[dict[State, str]]  # by position, with how it came about
    counts: list[Counter[State]]  # ... and how often
    disks: int = 0

    def unexplained(self) -> Iterator[tuple[int, State, str]]:
        """Observed, not possible in the model. Between two marks an operation may be under way. Of the
        sectors at which a write may be torn, the model chooses two: there the membership test decides."""
        for at, found in enumerate(self.observed):
            near = self.possible[at] | (self.possible[at + 1] if at + 1 < len(self.possible) else set())
            for state, how in found.items():
                torn = "torn" in how and self.profile != "btrfs"
                if state in near or (torn and self._could_survive(at, state)):
                    continue
                if not self._explained(at, state, torn=torn):
                    yield at, state, how

    def _explained(self, at: int, state: State, *, torn: bool) -> bool:
        """Every page for itself; the next operation may be under way, or done."""
        for make in MODELS[self.profile]:
            model = make(self.trace)
            for op in self.trace.ops[:at]:
                model.advance(op)
            if explains(model, dict(state), torn=torn):
                return True
            for op in self.trace.ops[at : at + 1]:
                model.begin(op)
                if explains(model, dict(state), torn=torn):
                    return True
                model.finish(op)
                if explains(model, dict(state), torn=torn):
                    return True
        return False

    def _could_survive(self, at: int, state: State) -> bool:
        positions = range(at, min(at + 2, len(self.observed)))
        trace = not_returned(self.trace, at)
        return any(could_survive(trace, each, self.profile, dict(state)) for each in positions)

    def unreached(self) -> Iterator[tuple[int, State]]:
        """Generated by default, not observed."""
        for at, made in enumerate(self.generated):
            near = {state for found in self.observed[max(0, at - 1) : at + 2] for state in found}
            yield from ((at, state) for state in made if state not in near)


def compare(
    shop: Workshop,
    profile: Profile,
    program: Program,
    initial: Mapping[str, bytes],
    plans: Iterable[Plan],
    *,
    keep_open: bool = True,
    seed: int = 0,
    least: int = 1 << 30,
) -> Comparison:
    """After `least` plans, ends as soon as everything that is generated was observed."""
    trace = perform(shop, program, initial, {}, keep_open)[0]
    positions = range(len(trace.ops) + 1)
    made = [generated(trace, at, profile) for at in positions]
    found = Comparison(
        trace=trace,
        generated=[few for few, _ in made],
        possible=[all_ for _, all_ in made],
        observed=[{} for _ in positions],
        counts=[Counter() for _ in positions],
        profile=profile,
    )
    rng = random.Random(seed)
    with CrashedDisk(shop) as crashed:
        for count, plan in enumerate(plans):
            if count >= least and not any(found.unreached()):
                break
            _, log = perform(shop, program, initial, plan, keep_open)
            for crash in crashes(log, shop.blank, rng):
                state = frozenset(crashed.survivors(crash.blocks).items())
                found.disks += 1
                found.counts[crash.done][state] += 1
                found.observed[crash.done].setdefault(state, f"{dict(plan)}, {crash.label}")
    return found


def perform(
    shop: Workshop, program: Program, initial: Mapping[str, bytes], plan: Plan, keep_open: bool
) -> tuple[Trace, bytes]:
    with LiveDisk(shop) as live:
        disk = Performance(live, plan, initial, keep_open)
        try:
            program(disk)
        finally:
            disk.close_all()
    return disk.trace(), live.log()


def generated(trace: Trace, at: int, profile: Profile) -> tuple[set[State], set[State]]:
    """What the profile generates by default, and with every choice that the model can make."""
    few = {_state(each.image) for each in states(trace, at, profile, budget=MOST_STATES)}
    every = few.copy()
    for make in MODELS[profile]:
        model = make(trace)
        for op in trace.ops[:at]:
            model.advance(op)
        every |= {_state(image) for image in islice(every_choice(model), MOST_CHOICES)}
        if at < len(trace.ops) and trace.ops[at].durable:
            model.begin(trace.ops[at])
            every |= {_state(image) for image in islice(every_choice(model), MOST_CHOICES)}
    return few, every


def every_choice(model: JournaledModel) -> Iterator[Image]:
    for cut in range(model.commit, model.at + 1):
        bare = model.bares[cut - model.commit]
        there = [number for number in model.files if isinstance(bare.nodes.get(number), FileNode)]
        contents = [list(_contents(model.files[number], cut).items()) for number in there]
        for chosen in product(*contents):
            image = bare
            for number, (_, data) in zip(there, chosen, strict=True):
                image = image.with_data(number, data)
            yield model.recovered(image, cut)


def _contents(file: OrderedFile, cut: int) -> dict[tuple[int, int], FileData]:
    times = [NOTHING, *(at + 1 for at in file.positions)]
    found: dict[tuple[int, int], FileData] = {}
    for until in (time for time in times if time <= cut):
        pages = {page: _times(file, page, times, until, cut) for page in file.page_history}
        pages = {page: found for page, found in pages.items() if found}
        ahead = [time for time in times if until <= time <= cut] if file.rules.sizes_first else [until]
        filled = [time for time in times if until < time <= cut] if file.rules.block_by_block else []
        lasts = [(NOTHING, 0), *product(filled, (0, *file.punched_until))]
        for allocated, (last, edge) in product(ahead, lasts):
            for each in product(*pages.values()):
                chosen = dict(zip(pages, each, strict=True))
                choice = DataChoice(until, chosen, NOTHING, allocated, last, edge)
                data = file.content(choice, cut)
                found[data.digest] = data
    return found


def _times(file: OrderedFile, page: int, times: list[int], until: int, cut: int) -> list[int]:
    """When a page may have been overwritten in place. A page that was written back once has a block; a
    truncation that is lost has not taken it away."""
    if file.settled(page):
        return [time for time in times if time >= _grown(file, page, until)]
    if not file.rules.in_place and file.ends_in(page, cut):  # B2
        return [until, *(at + 1 for at in file.ends_in(page, cut))]
    truncated = file.had_block(page)
    if truncated >= cut:
        return [time for time in times if time <= truncated]
    first = file.page_history[page][0][0]
    return [time for time in times if time >= until] if first < until else []


def _grown(file: OrderedFile, page: int, until: int) -> int:
    """On xfs a size is on disk only with the data that it covers (X2)."""
    least = NOTHING
    for position, op in zip(file.positions, file.ops, strict=True):
        grows = op.kind == "write" and op.offset + len(op.data) > file.version_before(position).size
        if grows and not file.rules.sizes_first and position < until and page in written(op):
            least = position + 1
    return least


def _state(image: Image) -> State:
    return frozenset(listing(image).items())


def telling_plans(operations: int) -> Iterator[Plan]:
    """One hidden step after each operation, and pairs of a commit and a writeback."""
    yield {}
    for at in range(1, operations + 1):
        yield {at: ["commit"]}
        yield {at: ["writeback"]}
        yield {at: ["writeback", "commit"]}
        yield {at: OVERTAKEN}
        yield {at: HALF_WAY}
        yield {at: IN_PARTS}
        yield {at: ["writeback from page 1", "commit"]}
        yield {at: ["writeback below page 1", "commit"]}
    for first, second in combinations(range(1, operations + 1), 2):
        yield {first: ["commit"], second: ["writeback"]}
        yield {first: ["writeback"], second: ["commit"]}
        yield {first: BEGUN, second: LATER}
    for at in range(operations):  # the disk is slow during one operation, and a commit follows at once
        yield {at: ["slow"], at + 1: ["commit", "fast"]}
    for at in range(operations):
        for begin in COMMITTING:
            yield {at: begin, at + 1: ["stop committing", "fast"]}


def random_plan(rng: random.Random, operations: int) -> Plan:
    """Commits and writebacks at random: the commit timer, and memory pressure. Some writebacks are of a part
    of the file only, some end operations after they began."""
    part = rng.choice(("", "", " from page 1", " below page 1", " from page 2", " from page 3"))
    which = part + rng.choice(("", " of file 0", " of file 1"))
    steps = (
        ["commit"],
        [f"writeback{which}"],
        [f"writeback{which}", "commit"],
        ["slow", f"start writeback{which}", "commit", "fast"],
        ["slow", f"start writeback{which}", "wait", "commit", "fast"],
    )
    often = rng.choice((0.2, 0.4, 0.6))
    plan = {at: rng.choice(steps) for at in range(1, operations + 1) if rng.random() < often}
    if operations > 1 and rng.random() < 0.5:
        first, second = sorted(rng.sample(range(1, operations + 1), 2))
        plan |= {first: ["slow", f"start writeback{which}"], second: LATER}
    if operations and rng.random() < 0.2:
        at = rng.randrange(operations)
        plan |= {at: rng.choice(COMMITTING), at + 1: ["stop committing", "fast"]}
    return plan


def words(state: State) -> str:
    return "{" + ", ".join(f"{path}: {_brief(content)}" for path, content in sorted(state)) + "}"


def _brief(content: Content) -> str:
    if not isinstance(content, bytes):
        return "directory" if content is None else f"-> {content}"
    runs = [(chr(byte) if byte else "NUL", len(list(same))) for byte, same in groupby(content)]
    return " ".join(f"{byte}*{count}" for byte, count in runs[:8]) or "empty"
