"""Pending operations, written and not yet durable: of one file (FilePending), of names (NamesPending).

Both answer two questions fast, because enumerating power-loss states asks them ten thousand times a
second: what is on disk without these operations, and what is on disk with only these.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence

from chaoskit.disk.apply import apply_data
from chaoskit.disk.filedata import PAGE, FileData, Leaf, leaf, pages_of, splice
from chaoskit.disk.image import Change, Image, Link
from chaoskit.disk.ops import Op


class FilePending:
    """The operations on one file's data since its durable content, oldest first."""

    def __init__(self, base: FileData) -> None:
        self.base = base
        self.positions: list[int] = []
        self.ops: list[Op] = []
        self.versions: list[FileData] = []  # after each operation
        self.page_history: dict[int, list[tuple[int, Leaf | None]]] = {}
        self.only_writes = True

    @property
    def current(self) -> FileData:
        return self.versions[-1] if self.versions else self.base

    def add(self, position: int, op: Op, after: FileData) -> None:
        self.positions.append(position)
        self.ops.append(op)
        self.versions.append(after)
        self.only_writes = self.only_writes and op.kind == "write"
        for page in pages_of(op.offset, len(op.data)) if op.kind == "write" else ():
            self.page_history.setdefault(page, []).append((position, after.pages.get(page)))

    def version_before(self, position: int) -> FileData:
        """With every operation before `position` and none from it on."""
        index = bisect_left(self.positions, position)
        return self.versions[index - 1] if index else self.base

    def page_before(self, page: int, position: int) -> Leaf | None:
        history = self.page_history.get(page, [])
        index = bisect_left(history, position, key=lambda step: step[0])
        return history[index - 1][1] if index else self.base.pages.get(page)

    def operation(self, position: int) -> Op:
        return self.ops[bisect_left(self.positions, position)]

    def without(self, lost: Collection[int]) -> FileData:
        if self.only_writes:
            return self._pages_without(lost)
        start = bisect_left(self.positions, min(lost))
        kept = [at for at in self.positions[start:] if at not in lost]
        return self._over(self.version_before(min(lost)), kept)

    def keeping(self, kept: Iterable[int]) -> FileData:
        return self._over(self.base, sorted(kept))

    def _over(self, data: FileData, positions: Sequence[int]) -> FileData:
        for position in positions:
            data = apply_data(data, self.operation(position))
        return data

    def _pages_without(self, lost: Collection[int]) -> FileData:
        """Rebuilds only the pages that the lost writes touched."""
        gone = [self.operation(position) for position in lost]
        data = self.current
        for page in {page for op in gone for page in pages_of(op.offset, len(op.data))}:
            data = data.put_leaf(page, self._page_without(page, lost))
        return FileData(self._size_without(gone, lost), data.pages, data.sum)

    def _page_without(self, page: int, lost: Collection[int]) -> Leaf | None:
        history = self.page_history[page]
        first = next(i for i, (position, _) in enumerate(history) if position in lost)
        if all(position in lost for position, _ in history[first:]):
            return self.page_before(page, history[first][0])
        content = self.base.page(page)
        for position, _ in history:
            if position not in lost:
                op = self.operation(position)
                content = over_page(content, page, op.offset, op.data)
        return leaf(page, content)

    def _size_without(self, gone: Sequence[Op], lost: Collection[int]) -> int:
        size = self.current.size
        if all(op.offset + len(op.data) < size for op in gone):
            return size  # none of the lost writes determines the size
        pairs = zip(self.positions, self.ops, strict=True)
        ends = (op.offset + len(op.data) for at, op in pairs if at not in lost)
        return max(ends, default=0) if self.base.size == 0 else max(self.base.size, *ends, 0)


def over_page(content: bytes, page: int, offset: int, data: bytes) -> bytes:
    """A page's content with the part of a write that falls into it applied."""
    start = max(offset, page * PAGE)
    chunk = data[start - offset : (page + 1) * PAGE - offset]
    return splice(content, start - page * PAGE, chunk)


DIRECTORY_ORDER: Link = (-1, "")  # a pseudo name that every move of a directory touches (R6)


class NamesPending:
    """The pending naming operations, by the names that they touch."""

    def __init__(self) -> None:
        self.touched: dict[int, tuple[Link, ...]] = {}  # position -> names
        self.values: dict[Link, dict[int, int | None]] = {}  # name -> {position: object after it}

    def add(self, position: int, changes: Sequence[Change], moves_directory: bool) -> None:
        links = [(parent, name) for parent, name, _ in changes]
        for parent, name, child in changes:
            self.values.setdefault((parent, name), {})[position] = child
        if moves_directory:
            self.values.setdefault(DIRECTORY_ORDER, {})[position] = None
            links.append(DIRECTORY_ORDER)
        self.touched[position] = tuple(links)

    def settle(self, positions: Iterable[int]) -> None:
        for position in positions:
            for link in self.touched.pop(position):
                del self.values[link][position]
                if not self.values[link]:
                    del self.values[link]

    def of_directory(self, number: int) -> set[int]:
        """The operations that changed an entry of this directory."""
        return {at for at, links in self.touched.items() if any(d == number for d, _ in links)}

    def with_later(self, positions: Iterable[int]) -> set[int]:
        """R5: losing an operation on a name loses the later ones on it, too."""
        return self._closure(positions, later=True)

    def with_earlier(self, positions: Iterable[int]) -> set[int]:
        """R5: keeping an operation on a name keeps the earlier ones on it, too."""
        return self._closure(positions, later=False)

    def _closure(self, positions: Iterable[int], later: bool) -> set[int]:
        found: set[int] = set()
        todo = list(positions)
        reached: dict[Link, int] = {}  # how far each name was followed, so that nothing is visited twice
        while todo:
            position = todo.pop()
            if position in found:
                continue
            found.add(position)
            for link in self.touched[position]:
                todo += self._beyond(link, position, reached.get(link), later)
                far = reached.get(link, position)
                reached[link] = min(far, position) if later else max(far, position)
        return found

    def _beyond(self, link: Link, position: int, reached: int | None, later: bool) -> list[int]:
        if reached is not None and (reached <= position if later else reached >= position):
            return []
        return [at for at in self.values[link] if at != position and (at > position) == later]

    def without(self, lost: Collection[int], durable: Image) -> list[Change]:
        """The entries before the lost operations, which must be closed under R5."""
        return self._entries(lost, durable, lost_is_given=True)

    def keeping(self, kept: Collection[int], durable: Image) -> list[Change]:
        return self._entries(kept, durable, lost_is_given=False)

    def _entries(self, given: Collection[int], durable: Image, lost_is_given: bool) -> list[Change]:
        links = dict.fromkeys(link for position in sorted(given) for link in self.touched[position])
        changes: list[Change] = []
        for parent, name in links:
            if (parent, name) == DIRECTORY_ORDER:
                continue
            child = durable.entry(parent, name)
            for position, after in self.values[parent, name].items():
                if (position in given) != lost_is_given:
                    child = after
            changes.append((parent, name, child))
        return changes
