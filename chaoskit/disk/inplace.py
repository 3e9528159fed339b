"""OrderedFile: the pending data of one file on ext4, and which of it can be on disk together.

A page is *settled* if its block was certainly allocated before: later writes go to the same block, at
any time (E4). Any other page has no block until the file is written back (E3). A page that reads as
zeros may or may not have a block, so it never counts as settled.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator
from typing import Literal

from chaoskit.disk.filedata import PAGE, FileData, pages_of
from chaoskit.disk.ops import Op
from chaoskit.disk.pending import FilePending

SizeEffect = Literal["allocates", "grows", "forces"]
NOTHING = -1  # a time before every operation


class DataChoice:
    """New pages as of time `until`; each settled page as of its own time."""

    __slots__ = ("others", "pages", "until")

    def __init__(self, until: int, pages: dict[int, int], others: int) -> None:
        self.until = until
        self.pages = pages
        self.others = others  # the time of all other settled pages

    def time_of(self, page: int, file: OrderedFile) -> int:
        return self.pages.get(page, self.others) if file.settled(page) else self.until


class OrderedFile(FilePending):
    def __init__(self, base: FileData) -> None:
        super().__init__(base)
        self.forced: list[tuple[int, int]] = []  # (cause, until): see Ext4Model._flush
        self._overwrites: list[tuple[int, int]] = []  # (position, settled page), in order
        self._overwritten = base  # the base with all overwrites

    def add(self, position: int, op: Op, after: FileData) -> None:
        super().add(position, op, after)
        for page in written(op):
            if self.settled(page):
                self._overwrites.append((position, page))
                self._overwritten = self._overwritten.put_leaf(page, after.pages.get(page))

    def committed(self, base: FileData, now: int) -> OrderedFile:
        """After a commit: forced data is durable, and committed sizes stay."""
        rest = OrderedFile(base)
        start = bisect_left(self.positions, self.floor(now + 1))
        for triple in zip(self.positions[start:], self.ops[start:], self.versions[start:], strict=True):
            rest.add(*triple)
        return rest

    def floor(self, cut: int) -> int:
        """With metadata kept up to `cut`, operations before this position are on disk (E5 to E7)."""
        index = bisect_left(self.forced, (cut, NOTHING))
        return self.forced[index - 1][1] if index else NOTHING

    def settled(self, page: int) -> bool:
        return self.only_writes and self.base.pages.get(page) is not None

    def in_place(self, op: Op) -> bool:
        return op.kind == "write" and all(self.settled(page) for page in written(op))

    def size_effect(self, on_disk: FileData, size_before: int, op: Op) -> SizeEffect:
        """E5: how a write changes the size on disk before any of its data is written."""
        end, edge = op.offset + len(op.data), -(-on_disk.size // PAGE) * PAGE
        if end <= max(size_before, on_disk.size) or on_disk.size == edge or op.offset >= edge:
            return "allocates"
        has_block = on_disk.pages.get(on_disk.size // PAGE) is not None
        return "grows" if end <= edge and on_disk.size == size_before and has_block else "forces"

    def size_at(self, until: int, cut: int) -> tuple[int, int | None]:
        """The committed size if pages are written back at `until` and metadata is kept up to `cut`; or
        the operation that cannot be committed then."""
        data = self.version_before(until)
        if self.only_writes:
            data = data.at_least(self.base.size)
        index = bisect_left(self.positions, until)
        size_before = data.size
        while index < len(self.ops) and self.positions[index] < cut and data.size % PAGE:
            op = self.ops[index]
            effect = self.size_effect(data, size_before, op)
            if effect == "forces":
                return data.size, self.positions[index]
            if effect == "grows":
                data = data.at_least(op.offset + len(op.data))
            size_before = self.versions[index].size
            index += 1
        return data.size, None

    def overwrites_only(self) -> DataChoice:
        return DataChoice(NOTHING, {}, others=self.positions[-1] + 1)

    def default(self, full: bool, cut: int) -> DataChoice:
        time = cut if full else self.floor(cut)
        return DataChoice(time, {}, time)

    def dropping(self, lost: Collection[int], cut: int, commit: int) -> tuple[DataChoice, int]:
        """Everything except `lost`, and the highest cut at which that is possible."""
        until, pages, limit = cut, dict[int, int](), cut
        floor = self.floor(cut)
        for position, op in self._mine(lost):
            if position < floor:
                limit = min(limit, self._cause_of(position))
            if not self.in_place(op):
                until = min(until, position)
            for page in written(op):
                if self.settled(page):
                    pages[page] = min(pages.get(page, position), position)
        _, conflict = self.size_at(until, cut)
        if conflict is not None and conflict < commit:
            until = floor  # its metadata is durable: nothing more was written back
        elif conflict is not None:
            limit = min(limit, conflict)
        return DataChoice(until, pages, others=self.positions[-1] + 1), limit

    def _mine(self, positions: Collection[int]) -> Iterator[tuple[int, Op]]:
        for position in positions:
            index = bisect_left(self.positions, position)
            if index < len(self.positions) and self.positions[index] == position:
                yield position, self.ops[index]

    def _cause_of(self, position: int) -> int:
        return next(cause for cause, until in self.forced if until > position)

    def only(self, kept: Collection[int], cut: int) -> DataChoice:
        """Forced operations, those in `kept`, and earlier ones that these depend on."""
        floor = until = self.floor(cut)
        pages: dict[int, int] = {}
        for position, op in self._mine(kept):
            if not self.in_place(op):
                until = max(until, position + 1)
            for page in written(op):
                if self.settled(page):
                    pages[page] = max(pages.get(page, position + 1), position + 1)
        until = self._possible(until, cut)
        return DataChoice(until, pages, others=max(until, floor))

    def _possible(self, until: int, cut: int) -> int:
        """The first time from `until` on that no committed operation rules out."""
        while True:
            _, conflict = self.size_at(until, cut)
            if conflict is None:
                return until
            until = conflict + 1

    def content(self, choice: DataChoice, cut: int) -> FileData:
        size, conflict = self.size_at(choice.until, cut)
        assert conflict is None, "the rules forbid this choice"
        data, pages = self._start(choice)
        for page in pages:
            time = choice.pages.get(page, choice.others)
            data = data.put_leaf(page, self.page_before(page, time))
        return data.fitted(size)

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


def written(op: Op) -> range:
    return pages_of(op.offset, len(op.data)) if op.kind == "write" else range(0)
