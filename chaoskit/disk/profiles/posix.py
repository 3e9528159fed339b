"""The posix profile: only what the fsync contract guarantees, nothing that a file system adds.

`power` has the rules R1 to R9. The model keeps four images along the trace: everything (`kill`), only
durable operations (`durable`), all names with durable data (`bare`), all data under durable names
(`nameless`). A state is one of them with a few files or entries changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from chaoskit.disk.apply import apply, entry_changes, initial_image
from chaoskit.disk.image import DirNode, FileNode, Image
from chaoskit.disk.ops import DATA_KINDS, NAME_KINDS, SYNC_KINDS, Op, Trace
from chaoskit.disk.profiles.pending import FilePending, NamesPending
from chaoskit.disk.recipe import Recipe, Tail, latest_of


class PosixModel:
    def __init__(self, trace: Trace) -> None:
        self.at = 0
        self.kill = self.durable = self.bare = self.nameless = initial_image(trace)
        self.files: dict[int, FilePending] = {}
        self.names = NamesPending()
        self._file_of: dict[int, int] = {}  # position of a pending data operation -> file
        self._last = -1  # the latest write

    def advance(self, op: Op) -> None:
        self.begin(op)
        self.finish(op)

    def begin(self, op: Op) -> None:
        position, before = self.at, self.kill
        self.at += 1
        self.kill = apply(before, op)
        if op.kind in DATA_KINDS:
            self._data(position, op)
        elif op.kind in NAME_KINDS:
            self._name(position, op, before)

    def finish(self, op: Op) -> None:
        if op.kind == "sync":
            self._settle_everything()
        elif op.kind in SYNC_KINDS and isinstance(self.kill.nodes.get(op.file), DirNode):
            self._settle_names(self.names.of_directory(op.file))
        elif op.kind in SYNC_KINDS or op.durable:
            self._settle_file(op.file)  # R8

    def _data(self, position: int, op: Op) -> None:
        after = self.kill.data(op.file)
        self.nameless = self.nameless.with_data(op.file, after)
        file = self.files.setdefault(op.file, FilePending(self.durable.data(op.file)))
        file.add(position, op, after)
        self._file_of[position] = op.file
        if op.kind == "write":
            self._last = position

    def _name(self, position: int, op: Op, before: Image) -> None:
        changes = entry_changes(before, op)
        moves = op.kind == "rename" and isinstance(before.nodes.get(op.file), DirNode)
        self.names.add(position, changes, moves)
        self.bare = self.bare.adopt(op.file, self.kill).with_entries(changes)

    def _settle_file(self, number: int) -> None:
        file = self.files.pop(number, None)
        if file is None:
            return
        for position in file.positions:
            del self._file_of[position]
        self.durable = self.durable.with_data(number, file.current)
        self.bare = self.bare.with_data(number, file.current)

    def _settle_names(self, positions: Iterable[int]) -> None:
        settled = self.names.with_earlier(positions)
        changes = self.names.keeping(settled, self.durable)
        for _, _, child in changes:
            if child is not None:
                self.durable = self.durable.adopt(child, self.kill)
                self.nameless = self.nameless.adopt(child, self.kill)
        self.durable = self.durable.with_entries(changes)
        self.nameless = self.nameless.with_entries(changes)
        self.names.settle(settled)

    def _settle_everything(self) -> None:
        self.durable = self.bare = self.nameless = self.kill
        self.files.clear()
        self._file_of.clear()
        self.names = NamesPending()

    def pending(self) -> list[int]:
        return sorted([*self._file_of, *self.names.touched])

    def latest(self, count: int) -> list[int]:
        return latest_of(count, self._file_of, self.names.touched)

    def last_write(self) -> int | None:
        file = self.files.get(self._file_of.get(self._last, -1))
        return self._last if file and file.positions[-1] == self._last else None

    def overwritten(self, count: int) -> int | None:
        del count
        return None  # R9: only the last write is torn

    def unwritten(self, count: int) -> list[int]:
        del count
        return []  # R7: `sizes`

    def reordered(self, count: int) -> list[Recipe]:
        del count
        return []  # R3: `singles`

    def tears(self, position: int) -> list[Recipe]:
        """R9: at a byte, a sector, a page, and just before the end."""
        file = self.files[self._file_of[position]]
        op, before = file.operation(position), file.version_before(position).size
        length = len(op.data)
        cuts = [cut for cut in dict.fromkeys((1, 512, 4096, length - 1)) if 0 < cut < length]
        tails: tuple[Tail, ...] = ("old",) if op.offset + length <= before else ("absent", "zeros")
        return [Recipe("torn", (position,), cut, tail) for cut in cuts for tail in tails]

    def build(self, recipe: Recipe) -> Image:
        if recipe.way == "without":
            return self._without(recipe.positions)
        if recipe.way == "keeping":
            return self._keeping(recipe.positions)
        if recipe.way == "torn":
            return self._torn(recipe)
        if recipe.way == "sizes":
            return self._sizes()
        images = {"kill": self.kill, "nothing": self.durable, "names": self.bare}
        return images.get(recipe.way, self.nameless)

    def _without(self, positions: Collection[int]) -> Image:
        image = self.kill
        for number, lost in self._by_file(positions).items():
            image = image.with_data(number, self.files[number].without(lost))
        lost_names = self.names.with_later(at for at in positions if at not in self._file_of)
        return image.with_entries(self.names.without(lost_names, self.durable))

    def _keeping(self, positions: Collection[int]) -> Image:
        image = self.durable
        for number, kept in self._by_file(positions).items():
            image = image.with_data(number, self.files[number].keeping(kept))
        kept_names = self.names.with_earlier(at for at in positions if at not in self._file_of)
        changes = self.names.keeping(kept_names, self.durable)
        for _, _, child in changes:
            image = image if child is None else image.adopt(child, self.kill)
        return image.with_entries(changes)

    def _by_file(self, positions: Collection[int]) -> dict[int, set[int]]:
        found: dict[int, set[int]] = defaultdict(set)
        for position in positions:
            if position in self._file_of:
                found[self._file_of[position]].add(position)
        return found

    def _sizes(self) -> Image:
        image = self.bare
        for number, file in self.files.items():
            if isinstance(image.nodes.get(number), FileNode):
                image = image.with_data(number, file.base.at_least(file.current.size))
        return image

    def _torn(self, recipe: Recipe) -> Image:
        position = recipe.positions[0]
        file = self.files[self._file_of[position]]
        op = file.operation(position)
        data = file.version_before(position).write(op.offset, op.data[: recipe.cut])
        if recipe.tail == "zeros":
            data = data.at_least(op.offset + len(op.data))
        return self.kill.with_data(op.file, data)

    def lost(self, recipe: Recipe) -> list[int]:
        everything = self.pending()
        if recipe.way == "without":
            names = {at for at in recipe.positions if at not in self._file_of}
            return sorted({*recipe.positions, *self.names.with_later(names)})
        if recipe.way == "keeping":
            names = {at for at in recipe.positions if at not in self._file_of}
            return sorted(set(everything) - {*recipe.positions, *self.names.with_earlier(names)})
        if recipe.way in ("names", "sizes"):
            return sorted(self._file_of)
        if recipe.way == "data":
            return sorted(self.names.touched)
        return {"kill": [], "nothing": everything}.get(recipe.way, list(recipe.positions))
