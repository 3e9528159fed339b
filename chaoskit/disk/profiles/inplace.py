"""OrderedFile: the pending data of one file on ext4 or xfs, and which of it can be on disk together.

A page is *settled* if its block was certainly allocated before: later writes go to the same block, at
any time (E4). Any other page has no block until the file is written back (E3). A page that reads as
zeros may or may not have a block, so it never counts as settled.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping

import msgspec

from chaoskit.disk.apply import apply_data
from chaoskit.disk.filedata import PAGE, FileData, Leaf, pages_of
from chaoskit.disk.ops import Op
from chaoskit.disk.profiles.pending import FilePending

NOTHING = -1  # a time before every operation


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How a journaling file system orders names, sizes and data. The letters refer to `power`."""

    sizes_first: bool  # a size may be committed before the data: zeros (E3)
    grows_at_once: bool  # ... and the size moves at once over a page that has a block (E5)
    allocates_early: bool  # ... and is, when the file is renamed over another or closed (E6, E7)
    block_by_block: bool  # the size on disk first grows over the block that the file already has (X4)
    writes_back_first: bool  # a truncation or allocation writes back what lies beyond the size on disk (X5)
    sync_flushes: bool  # sync flushes the disk's cache even if there is no metadata to write (X6)
    logs_inodes: bool  # a rename or link is one that fdatasync of the file waits for (X1)
    in_place: bool  # pages that have a block are overwritten (E4), not written elsewhere (B2)
    clears_later: bool  # a committed truncation may not have cleared the rest of its last block yet (X7)
    stamps: bool = True  # a write in place changes the file's times, which fsync waits for (E2)


EXT4 = Rules(
    sizes_first=True,
    grows_at_once=True,
    allocates_early=True,
    block_by_block=False,
    writes_back_first=False,
    sync_flushes=True,
    logs_inodes=False,
    in_place=True,
    clears_later=False,
)
XFS = Rules(
    sizes_first=False,
    grows_at_once=False,
    allocates_early=False,
    block_by_block=True,
    writes_back_first=True,
    sync_flushes=False,
    logs_inodes=True,
    in_place=True,
    clears_later=True,
)
BTRFS = Rules(
    sizes_first=False,
    grows_at_once=False,
    allocates_early=False,
    block_by_block=False,
    writes_back_first=False,
    sync_flushes=True,
    logs_inodes=False,
    in_place=False,
    clears_later=False,
)


class DataChoice:
    """New pages as of time `until`; each settled page as of its own time.

    Pages that were written by `allocated` and not by `until` have blocks without data: they read as zeros.
    The block in which the file ended at `until`, or all until page `edge`, is filled with what was written by
    `filled` (X4, X5). `pages` may name new pages, too (E3): then `size` may be smaller than at `until`.
    """

    __slots__ = ("allocated", "edge", "filled", "others", "pages", "size", "until")

    def __init__(
        self,
        until: int,
        pages: dict[int, int],
        others: int,
        allocated: int = NOTHING,
        filled: int = NOTHING,
        edge: int = 0,
        size: int | None = None,
    ) -> None:
        self.until = until
        self.pages = pages
        self.others = others  # the time of all other settled pages
        self.allocated = allocated
        self.filled = filled
        self.edge = edge
        self.size = size

    def time_of(self, page: int, file: OrderedFile) -> int:
        return self.pages.get(page, self.others if file.settled(page) else self.until)


class OrderedFile(FilePending):
    def __init__(self, base: FileData, rules: Rules = EXT4) -> None:
        super().__init__(base)
        self.rules = rules
        self.forced: list[tuple[int, int]] = []  # (cause, until): see JournaledModel._flush
        self.punched_until: set[int] = set()  # pages at which a hole ended (X5)
        self.cached_until = NOTHING  # what was written before this is in the disk's cache (X6)
        self._intact = 1 << 62  # pages from here on were truncated
        self._punched: set[int] = set()
        self._lost_blocks: list[tuple[int, int]] = []  # (position, length) of truncations
        self._cleared: dict[int, tuple[int, ...]] = {}  # position -> pages of which it clears a part (E5)
        self._overwrites: list[tuple[int, int]] = []  # (position, settled page), in order
        self._overwritten = base  # the base with all overwrites

    def add(self, position: int, op: Op, after: FileData) -> None:
        if op.kind == "truncate" and op.length < self.current.size:
            self._intact = min(self._intact, -(-op.length // PAGE))
            if op.length % PAGE:
                self._cleared[position] = (op.length // PAGE,)
            self._lost_blocks.append((position, op.length))
        elif op.kind == "punch":
            whole = range(-(-op.offset // PAGE), (op.offset + op.length) // PAGE)
            self._punched.update(whole)
            self._cleared[position] = tuple(
                page for page in pages_of(op.offset, op.length) if page not in whole
            )
        super().add(position, op, after)
        for page in self._cleared_at(position):
            self.page_history.setdefault(page, []).append((position, after.pages.get(page)))
        for page in written(op):
            if self.settled(page):
                self._overwrites.append((position, page))
                self._overwritten = self._overwritten.put_leaf(page, after.pages.get(page))

    def committed(self, base: FileData, commit: int) -> OrderedFile:
        """Sizes and reshapes before `commit` are durable, the data that was not synced is still pending."""
        rest = OrderedFile(base, self.rules)
        rest.forced = [(cause, until) for cause, until in self.forced if cause >= commit]
        rest.cached_until = self.cached_until
        rest.punched_until = self.punched_until
        done = bisect_left(self.positions, commit)
        triples = list(zip(self.positions, self.ops, self.versions, strict=True))
        if any(op.kind != "write" for op in self.ops[:done]):
            # Earlier versions had another shape: what is pending of them is written back as a whole.
            triples[:done] = self._as_one_write(done)
        for triple in triples:
            rest.add(*triple)
        return rest

    def _as_one_write(self, count: int) -> list[tuple[int, Op, FileData]]:
        writes = [(at, op) for at, op in zip(self.positions, self.ops[:count], strict=False) if written(op)]
        if not writes:
            return []
        after = self.versions[count - 1]
        start = min(op.offset for _, op in writes)
        end = min(after.size, max(op.offset + len(op.data) for _, op in writes))
        data = after.read_range(start, end - start) if end > start else b""
        position, last = writes[-1]
        return [(position, msgspec.structs.replace(last, offset=start, data=data), after)] if data else []

    def in_cache(self, at: int) -> OrderedFile:
        """After a sync that flushed nothing: only what was overwritten in place can be lost. A new page got
        its block from the first write, so that the others overwrite it."""
        since = {page: NOTHING for page in self.page_history if self.settled(page)}
        for page, history in self.page_history.items():
            if page not in since and len(history) > 1:
                since[page] = history[0][0] + 1
        base = _with_leaves(self.current, {page: self.page_before(page, at) for page, at in since.items()})
        rest = OrderedFile(base, self.rules)
        for position, op in zip(self.positions, self.ops, strict=True):
            if any(position >= since.get(page, at) for page in written(op)):
                times = {page: max(position + 1, first) for page, first in since.items()}
                leaves = {page: self.page_before(page, time) for page, time in times.items()}
                rest.add(position, op, _with_leaves(base, leaves))
        rest.cached_until = at
        return rest

    def floor(self, cut: int) -> int:
        """With metadata kept up to `cut`, what was written before this position has blocks (E6, E7)."""
        index = bisect_left(self.forced, (cut, NOTHING))
        return self.forced[index - 1][1] if index else NOTHING

    def settled(self, page: int) -> bool:
        has_block = self.base.pages.get(page) is not None and self.rules.in_place
        return has_block and page < self._intact and page not in self._punched

    def had_block(self, page: int) -> int:
        """Until when the page was overwritten in place; 0 if it had no block."""
        if not self.rules.in_place or self.base.pages.get(page) is None or page in self._punched:
            return 0
        return min((at for at, length in self._lost_blocks if page * PAGE >= length), default=1 << 62)

    def in_place(self, op: Op) -> bool:
        return op.kind == "write" and all(self.settled(page) for page in written(op))

    def _waits(self, position: int, op: Op) -> bool:
        """Whether the write appears as a whole, with its size, once it was written back."""
        grows = op.offset + len(op.data) > self.version_before(position).size
        return not self.in_place(op) or (grows and not self.rules.sizes_first)

    def first_edge(self, position: int, op: Op) -> list[int]:
        """How many bytes of an append go to a block that the file may have, if it needs others too."""
        pages = written(op)
        if len(pages) < 2 or not self.rules.in_place:
            return []
        has_block = self.settled(pages[0]) or self.page_history[pages[0]][0][0] < position
        return [pages[1] * PAGE - op.offset] if has_block else []

    def size_at(self, choice: DataChoice, cut: int) -> FileData:
        """The new pages of this choice, and the committed size if metadata is kept up to `cut`."""
        floor = self.floor(cut)
        until = choice.until if self.rules.sizes_first else max(choice.until, floor)
        data = self.version_before(until)
        allocated = max(until, choice.allocated, floor)
        if self.only_writes:
            data = data.at_least(max(self.base.size, self.version_before(allocated).size))
            index = bisect_left(self.positions, allocated)
        else:
            index = bisect_left(self.positions, until)
        size = max(self.base.size if self.only_writes else 0, self.version_before(self._time(index)).size)
        for op, after in zip(self.ops[index:], self.versions[index:], strict=True):
            if self._time(index) >= cut or (self.only_writes and data.size != size):
                break
            data = self._on_disk_after(data, size, op, allocated=self._time(index) < allocated)
            size, index = after.size, index + 1
        return data

    def _on_disk_after(self, data: FileData, size: int, op: Op, *, allocated: bool) -> FileData:
        """`data`: what is on disk; `size`: that of the file in memory; both before the operation."""
        if op.kind == "punch":
            return apply_data(data, op).at_least(self.size_at_once(data, size, op))
        if op.kind != "write":
            return apply_data(data, op)
        end = op.offset + len(op.data)
        return data.at_least(end if allocated else self.size_at_once(data, size, op))

    def size_at_once(self, data: FileData, size: int, op: Op) -> int:
        if op.kind == "punch" or op.keep_size:
            return min(op.offset + op.length, size) if self.rules.sizes_first else data.size
        return grown_at_once(data, size, op) if self.rules.grows_at_once else data.size

    def _time(self, index: int) -> int:
        return self.positions[index] if index < len(self.positions) else self.positions[-1] + 1

    def overwrites_only(self) -> DataChoice:
        return DataChoice(NOTHING, {}, others=self.positions[-1] + 1)

    def default(self, full: bool, cut: int) -> DataChoice:
        time = cut if full else NOTHING
        return DataChoice(time, {}, time)

    def dropping(self, lost: Collection[int], cut: int) -> DataChoice:
        """Everything except `lost`."""
        until, pages = cut, dict[int, int]()
        for position, op in self._mine(lost):
            if self._waits(position, op):
                until = min(until, position)
            for page in (*written(op), *self._cleared_at(position)):
                if self.settled(page):
                    pages[page] = min(pages.get(page, position), position)
        return DataChoice(until, pages, others=self.positions[-1] + 1)

    def without_data(self, position: int) -> DataChoice:
        """From this write on, new pages have blocks and no data (E3)."""
        end = self.positions[-1] + 1
        return DataChoice(position, {}, others=end, allocated=end if self.rules.sizes_first else NOTHING)

    def untouched_since(self, position: int, pages: Collection[int]) -> bool:
        return all(self.page_history[page][-1][0] == position for page in pages)

    def has_new_pages(self) -> bool:
        return self.only_writes and not all(self.settled(page) for page in self.page_history)

    def has_other_new_pages(self, position: int) -> bool:
        """Whether the write needs blocks, and other pages are pending, too; without a reshape."""
        op = self.operation(position)
        if not self.only_writes or self.in_place(op):
            return False
        return len(self.page_history) > len(written(op))

    def missing_pages(self, position: int) -> DataChoice:
        """E3, X2, B2: this write was not written back, all else was."""
        op, end = self.operation(position), self.positions[-1] + 1
        mine = {page: position for page in written(op) if not self.settled(page)}
        size = None if self.rules.sizes_first or not self.rules.in_place else self._size_beside(mine)
        return DataChoice(end, mine, others=end, size=size)

    def only_below(self, position: int) -> DataChoice:
        """E3, X2, B2: the file was written back by offset, up to this write."""
        op, end = self.operation(position), self.positions[-1] + 1
        first = op.offset // PAGE
        above = {page: NOTHING for page in self.page_history if page >= first and not self.settled(page)}
        return DataChoice(
            end, above, others=end, size=self._size_beside(above) if self.rules.in_place else None
        )

    def _size_beside(self, pages: Collection[int]) -> int:
        last = max((page for page in self.page_history if page not in pages), default=NOTHING)
        return min((last + 1) * PAGE, self.current.size)

    def _mine(self, positions: Collection[int]) -> Iterator[tuple[int, Op]]:
        for position in positions:
            index = bisect_left(self.positions, position)
            if index < len(self.positions) and self.positions[index] == position:
                yield position, self.ops[index]

    def only(self, kept: Collection[int]) -> DataChoice:
        """Only the operations in `kept`, and earlier ones that these depend on."""
        until, pages = NOTHING, dict[int, int]()
        for position, op in self._mine(kept):
            if self._waits(position, op):
                until = max(until, position + 1)
            for page in written(op):
                if self.settled(page):
                    pages[page] = max(pages.get(page, position + 1), position + 1)
        return DataChoice(until, pages, others=until)

    def content(self, choice: DataChoice, cut: int) -> FileData:
        new = self.size_at(choice, cut)
        if choice.size is not None:
            new = self.size_at(self.default(full=False, cut=cut), cut).at_least(choice.size)
        data, pages = self._start(choice) if self.only_writes else (new, self._settled_pages(choice))
        first = self.base.size // PAGE if self.rules.writes_back_first else 1 << 62
        for page in pages:
            least = self.floor(cut) if page >= first else NOTHING  # X5
            time = max(choice.time_of(page, self), least)
            data = data.put_leaf(page, self.page_before(page, time))
        return self._filled(data.fitted(new.size), choice)

    def _filled(self, data: FileData, choice: DataChoice) -> FileData:
        """X4: the last block, which the file has already, is written and counts before the new ones."""
        edge = choice.edge or -(-data.size // PAGE)
        if choice.filled == NOTHING or not data.size < edge * PAGE <= self.version_before(choice.filled).size:
            return data
        for page in range(data.size // PAGE, edge):
            data = data.put_leaf(page, self.page_before(page, choice.filled))
        return data.at_least(edge * PAGE)

    def ends_in(self, page: int, cut: int) -> list[int]:
        """The truncations before `cut` that ended in the middle of this page."""
        return [at for at, pages in self._cleared.items() if at < cut and page in pages]

    def _cleared_at(self, position: int) -> tuple[int, ...]:
        return self._cleared.get(position, ())

    def _settled_pages(self, choice: DataChoice) -> list[int]:
        return [page for page in self.page_history if page in choice.pages or self.settled(page)]

    def with_durable(self, pages: Collection[int], base: FileData) -> OrderedFile:
        """After these pages became durable, on top of `base`; other pages are still pending."""
        kept = {page: self.current.pages.get(page) for page in pages}
        rest = OrderedFile(_with_leaves(base, kept), self.rules)
        for position, op, after in zip(self.positions, self.ops, self.versions, strict=True):
            if op.kind != "write" or not set(written(op)) <= kept.keys():
                rest.add(position, op, _with_leaves(after, kept))
        return rest

    def _start(self, choice: DataChoice) -> tuple[FileData, Collection[int]]:
        """A known content close to the result, and the settled pages that differ from it."""
        all_overwritten = self.only_writes and choice.others > self.positions[-1]
        if all_overwritten and choice.until <= self.positions[0]:
            return self._overwritten, choice.pages
        found = set(choice.pages)
        if self.only_writes and choice.others > choice.until:
            start = bisect_left(self._overwrites, (choice.until, NOTHING))
            found.update(page for _, page in self._overwrites[start:])
        return self.version_before(choice.until), found

    def missing(self, choice: DataChoice, cut: int) -> list[int]:
        """The pending operations that are lost at least in part."""
        found: list[int] = []
        for position, op in zip(self.positions, self.ops, strict=True):
            if op.kind != "write":
                there = position < cut
            else:
                there = all(position < choice.time_of(page, self) for page in written(op))
            if not there:
                found.append(position)
        return found


def _with_leaves(data: FileData, leaves: Mapping[int, Leaf | None]) -> FileData:
    for page, content in leaves.items():
        data = data.put_leaf(page, content)
    return data


def grown_at_once(data: FileData, size: int, op: Op) -> int:
    """E5: the size on disk after a write of which nothing was written back. A program writes page by page,
    and the end of the file moves with each page that has a block."""
    edge = -(-data.size // PAGE) * PAGE
    appends = data.size == size and op.offset < edge and size < op.offset + len(op.data)
    has_block = data.size < edge and data.pages.get(data.size // PAGE) is not None
    return min(op.offset + len(op.data), edge) if appends and has_block else data.size


def written(op: Op) -> range:
    return pages_of(op.offset, len(op.data)) if op.kind == "write" else range(0)
