"""OrderedFile: the pending data of one file on ext4, and which of it can be on disk together.

A page is *settled* if its block was certainly allocated before: later writes go to the same block, at
any time (E4). Any other page has no block until the file is written back (E3). A page that reads as
zeros may or may not have a block, so it never counts as settled.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping

from chaoskit.disk.apply import apply_data
from chaoskit.disk.filedata import PAGE, FileData, Leaf, pages_of
from chaoskit.disk.ops import Op
from chaoskit.disk.pending import FilePending

NOTHING = -1  # a time before every operation


class DataChoice:
    """New pages as of time `until`; each settled page as of its own time.

    Pages that were written by `allocated` and not by `until` have blocks without data: they read as zeros.
    """

    __slots__ = ("allocated", "others", "pages", "until")

    def __init__(self, until: int, pages: dict[int, int], others: int, allocated: int = NOTHING) -> None:
        self.until = until
        self.pages = pages
        self.others = others  # the time of all other settled pages
        self.allocated = allocated

    def time_of(self, page: int, file: OrderedFile) -> int:
        return self.pages.get(page, self.others) if file.settled(page) else self.until


class OrderedFile(FilePending):
    def __init__(self, base: FileData) -> None:
        super().__init__(base)
        self.forced: list[tuple[int, int]] = []  # (cause, until): see Ext4Model._flush
        self._intact = 1 << 62  # pages from here on were truncated
        self._punched: set[int] = set()
        self._cleared: dict[int, int] = {}  # position of a truncation -> the page whose end it clears (E5)
        self._overwrites: list[tuple[int, int]] = []  # (position, settled page), in order
        self._overwritten = base  # the base with all overwrites

    def add(self, position: int, op: Op, after: FileData) -> None:
        if op.kind == "truncate" and op.length < self.current.size:
            self._intact = min(self._intact, -(-op.length // PAGE))
            if op.length % PAGE:
                self._cleared[position] = op.length // PAGE
        elif op.kind == "punch":
            self._punched.update(pages_of(op.offset, op.length))
        super().add(position, op, after)
        for page in self._cleared_at(position):
            self.page_history.setdefault(page, []).append((position, after.pages.get(page)))
        for page in written(op):
            if self.settled(page):
                self._overwrites.append((position, page))
                self._overwritten = self._overwritten.put_leaf(page, after.pages.get(page))

    def committed(self, base: FileData) -> OrderedFile:
        """After a commit: sizes and reshapes are durable, the data that was not synced is still pending."""
        rest = OrderedFile(base)
        triples = list(zip(self.positions, self.ops, self.versions, strict=True))
        if not self.only_writes:
            # Earlier versions had another shape: what is pending is written back as a whole.
            last = max(index for index, op in enumerate(self.ops) if op.kind == "write")
            triples = [(self.positions[last], self.ops[last], self.current)]
        for triple in triples:
            rest.add(*triple)
        return rest

    def floor(self, cut: int) -> int:
        """With metadata kept up to `cut`, what was written before this position has blocks (E6, E7)."""
        index = bisect_left(self.forced, (cut, NOTHING))
        return self.forced[index - 1][1] if index else NOTHING

    def settled(self, page: int) -> bool:
        has_block = self.base.pages.get(page) is not None
        return has_block and page < self._intact and page not in self._punched

    def in_place(self, op: Op) -> bool:
        return op.kind == "write" and all(self.settled(page) for page in written(op))

    def first_edge(self, op: Op) -> list[int]:
        """How many bytes of an append go to a block that the file already has, if it needs others too."""
        pages = written(op)
        return [pages[1] * PAGE - op.offset] if len(pages) > 1 and self.settled(pages[0]) else []

    def size_at(self, choice: DataChoice, cut: int) -> FileData:
        """The new pages of this choice, and the committed size if metadata is kept up to `cut`."""
        data = self.version_before(choice.until)
        allocated = max(choice.until, choice.allocated, self.floor(cut))
        if self.only_writes:
            data = data.at_least(max(self.base.size, self.version_before(allocated).size))
            index = bisect_left(self.positions, allocated)
        else:
            index = bisect_left(self.positions, choice.until)
        size = max(self.base.size if self.only_writes else 0, self.version_before(self._time(index)).size)
        for op, after in zip(self.ops[index:], self.versions[index:], strict=True):
            if self._time(index) >= cut or (self.only_writes and data.size != size):
                break
            data = _on_disk_after(data, size, op, allocated=self._time(index) < allocated)
            size, index = after.size, index + 1
        return data

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
            if not self.in_place(op):
                until = min(until, position)
            for page in (*written(op), *self._cleared_at(position)):
                if self.settled(page):
                    pages[page] = min(pages.get(page, position), position)
        return DataChoice(until, pages, others=self.positions[-1] + 1)

    def without_data(self, position: int) -> DataChoice:
        """From this write on, new pages have blocks and no data (E3)."""
        return DataChoice(position, {}, others=self.positions[-1] + 1, allocated=self.positions[-1] + 1)

    def _mine(self, positions: Collection[int]) -> Iterator[tuple[int, Op]]:
        for position in positions:
            index = bisect_left(self.positions, position)
            if index < len(self.positions) and self.positions[index] == position:
                yield position, self.ops[index]

    def only(self, kept: Collection[int]) -> DataChoice:
        """Only the operations in `kept`, and earlier ones that these depend on."""
        until, pages = NOTHING, dict[int, int]()
        for position, op in self._mine(kept):
            if not self.in_place(op):
                until = max(until, position + 1)
            for page in written(op):
                if self.settled(page):
                    pages[page] = max(pages.get(page, position + 1), position + 1)
        return DataChoice(until, pages, others=until)

    def content(self, choice: DataChoice, cut: int) -> FileData:
        new = self.size_at(choice, cut)
        data, pages = self._start(choice) if self.only_writes else (new, self._settled_pages())
        for page in pages:
            time = choice.pages.get(page, choice.others)
            data = data.put_leaf(page, self.page_before(page, time))
        return data.fitted(new.size)

    def _cleared_at(self, position: int) -> tuple[int, ...]:
        return (self._cleared[position],) if position in self._cleared else ()

    def _settled_pages(self) -> list[int]:
        return [page for page in self.page_history if self.settled(page)]

    def with_durable(self, pages: Collection[int]) -> OrderedFile:
        """After a durable write of these pages; the file has writes in place only."""
        kept = {page: self.current.pages.get(page) for page in pages}
        rest = OrderedFile(_with_leaves(self.base, kept))
        for position, op, after in zip(self.positions, self.ops, self.versions, strict=True):
            if not set(written(op)) <= kept.keys():
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


def _on_disk_after(data: FileData, size: int, op: Op, *, allocated: bool) -> FileData:
    """`data`: what is on disk; `size`: that of the file in memory; both before the operation."""
    if op.kind != "write":
        return apply_data(data, op)
    end = op.offset + len(op.data)
    return data.at_least(end if allocated else grown_at_once(data, size, op))


def grown_at_once(data: FileData, size: int, op: Op) -> int:
    """E5: the size on disk after a write of which nothing was written back. A program writes page by page,
    and the end of the file moves with each page that has a block."""
    edge = -(-data.size // PAGE) * PAGE
    appends = data.size == size and op.offset <= size < op.offset + len(op.data)
    has_block = data.size < edge and data.pages.get(data.size // PAGE) is not None
    return min(op.offset + len(op.data), edge) if appends and has_block else data.size


def written(op: Op) -> range:
    return pages_of(op.offset, len(op.data)) if op.kind == "write" else range(0)
