"""The profiles ext4 and xfs: file systems that journal metadata and write data in place, as measured on real
ones (`tests/realdisk`).

`power` has the rules E1 to E10 and X1 to X6. A state is a choice of a cut `m` in the sequence of metadata
operations (E1), for each file with pending data two times, up to which its new pages have blocks and up to
which these have data (E3), and a time for each page that is overwritten in place (E4) or was written back in
another order than the rest. Every choice
corresponds to one execution of the real file system.

The model keeps two images per position since the last commit: everything (`kills`), and all metadata
without data (`bares`). A state is one of them with a few files changed.
"""

from __future__ import annotations

import msgspec

from chaoskit.disk.apply import apply, initial_image
from chaoskit.disk.filedata import PAGE, FileData, Leaf, leaf, pages_of
from chaoskit.disk.image import DirNode, FileNode, Image
from chaoskit.disk.ops import NAME_KINDS, SYNC_KINDS, Op, Trace, closes_of
from chaoskit.disk.profiles.inplace import NOTHING, DataChoice, OrderedFile, Rules, written
from chaoskit.disk.profiles.pending import over_page
from chaoskit.disk.recipe import Recipe, Tail, Way, latest_of

SECTOR = 512
BIRTHS = ("create", "mkdir", "symlink")


class Choice:
    """A cut in the metadata, and the files whose data differ from the default at that cut."""

    __slots__ = ("cut", "files", "full")

    def __init__(self, cut: int, files: dict[int, DataChoice], full: bool) -> None:
        self.cut = cut
        self.files = files
        self.full = full  # other files: written up to the cut if True, else only what is forced


class JournaledModel:
    def __init__(self, trace: Trace, rules: Rules) -> None:
        self.rules = rules
        self.at = 0
        self.commit = 0  # metadata before this position is durable
        self.kills = [initial_image(trace)]
        self.bares = [self.kills[0]]
        self.files: dict[int, OrderedFile] = {}
        self._metadata: dict[int, None] = {}  # pending naming and reshaping operations, ascending
        self._file_of: dict[int, int] = {}
        self._closes = closes_of(trace)
        self._rewritten: set[int] = set()  # files that were truncated to zero, and not closed since (E7)
        self._changed: dict[int, int] = {}  # object -> the last operation that changed its inode (E2)
        self._reshaped: dict[int, int] = {}  # ... in a way that fdatasync waits for
        self._last = -1  # the latest write
        self.uncleared: dict[int, dict[int, list[Leaf]]] = {}  # file -> page -> what may be there again (X7)

    @property
    def kill(self) -> Image:
        return self.kills[-1]

    def advance(self, op: Op) -> None:
        self.begin(op)
        self.finish(op)

    def begin(self, op: Op) -> None:
        position = self.at
        if op.kind == "punch":
            if op.file in self.files:
                self.files[op.file].punched_until.add(pages_of(op.offset, op.length).stop)
            op = _as_write(op, self.kill.data(op.file).size)
        elif op.kind == "allocate" and not self.rules.sizes_first and self._is_inside(op):
            op = msgspec.structs.replace(op, keep_size=True)  # X2; on ext4 the size on disk grows to its end
        self.kills.append(apply(self.kill, op))
        self.bares.append(self.bares[-1])
        self._close(position)
        self.at += 1
        if op.kind in NAME_KINDS:
            self._name(position, op)
        elif op.kind == "write":
            self._write(position, op)
        elif op.kind in ("truncate", "allocate", "punch") and not self._is_beyond(op):
            self._reshape(position, op)

    def _is_beyond(self, op: Op) -> bool:
        """E2: a hole beyond the end of the file changes nothing that a sync waits for."""
        return op.kind == "punch" and op.offset >= self.kill.data(op.file).size

    def _is_inside(self, op: Op) -> bool:
        return op.offset + op.length <= self.kill.data(op.file).size

    def finish(self, op: Op) -> None:
        if op.kind in SYNC_KINDS or op.durable:
            self._settle(op)

    def _name(self, position: int, op: Op) -> None:
        over = op.kind == "rename" and op.replaced >= 0
        if self.rules.allocates_early and over and op.file in self.files:
            self._flush(op.file, position, position)  # E6
        self.bares[-1] = apply(self.bares[-1], op)
        self._note_metadata(position)
        self._changed |= dict.fromkeys((op.file, op.parent, op.parent2, op.replaced), position)
        born = (op.file,) if op.kind in BIRTHS else ()
        logged = (op.file, op.replaced) if self.rules.logs_inodes else born  # X1
        self._reshaped |= dict.fromkeys((op.parent, op.parent2, *logged), position)

    def _reshape(self, position: int, op: Op) -> None:
        """Truncate, allocate, punch: metadata, without the data of earlier writes (E5), or with it (X5)."""
        end = op.length if op.kind == "truncate" else op.offset + op.length
        beyond = self._sets_size(op) and end > self.bares[-1].data(op.file).size
        if self.rules.writes_back_first and beyond and op.file in self.files:
            self._flush(op.file, position, position)
        if self.rules.clears_later and op.kind == "truncate" and op.length % PAGE:
            self._note_uncleared(op)
        same_size = op.kind == "truncate" and op.length == self.kills[-2].data(op.file).size
        if op.kind != "allocate" or not op.keep_size:  # else it changes nothing that can be read
            self._file(op.file).add(position, op, self.kill.data(op.file))
            self._file_of[position] = op.file
        self.bares[-1] = apply(self.bares[-1], op)
        if op.kind == "punch":
            self._grow_at_once(op)
        self._note_metadata(position)
        self._changed[op.file] = position
        if not same_size:
            self._reshaped[op.file] = position
        if self.rules.allocates_early and op.kind == "truncate" and op.length == 0:
            self._rewritten.add(op.file)

    def _note_uncleared(self, op: Op) -> None:
        """X7: every content that the block had may still be on disk."""
        file, page = self._file(op.file), op.length // PAGE
        contents = [file.base.pages.get(page), *(version.pages.get(page) for version in file.versions)]
        pages = self.uncleared.setdefault(op.file, {})
        pages[page] = [*pages.get(page, ()), *(content for content in contents if content)]

    def _sets_size(self, op: Op) -> bool:
        return op.kind == "truncate" or (op.kind == "allocate" and not op.keep_size)

    def _write(self, position: int, op: Op) -> None:
        file = self._file(op.file)
        size_before = file.current.size
        file.add(position, op, self.kill.data(op.file))
        self._file_of[position] = op.file
        self._last = position
        self._grow_at_once(op)
        reshapes = not file.in_place(op) or op.offset + len(op.data) > size_before
        if reshapes or self.rules.stamps:
            self._changed[op.file] = position
        if reshapes:
            self._reshaped[op.file] = position

    def _grow_at_once(self, op: Op) -> None:
        """E5: the size on disk that the operation leaves at once, before anything is written back."""
        bare, size = self.bares[-1].data(op.file), self.kills[-2].data(op.file).size
        grown = bare.at_least(self._file(op.file).size_at_once(bare, size, op))
        self.bares[-1] = self.bares[-1].with_data(op.file, grown)

    def _file(self, number: int) -> OrderedFile:
        if number not in self.files:
            self.files[number] = OrderedFile(self.bares[-1].data(number), self.rules)
        return self.files[number]

    def _note_metadata(self, position: int) -> None:
        self._metadata[position] = None

    def _close(self, position: int) -> None:
        """E7: the first close after a truncation to zero allocates what was written."""
        for number in self._closes.get(position, ()):
            if number in self._rewritten:
                self._rewritten.discard(number)
                if number in self.files:
                    self._flush(number, position, position)

    def _flush(self, number: int, cause: int, until: int) -> None:
        """From `cause` on, what was written to the file before `until` has blocks; not yet its data. If sizes
        come last, it has data."""
        file = self.files[number]
        file.forced.append((cause, until))
        if self.rules.sizes_first:
            bare = self.bares[-1].data(number).at_least(file.version_before(until).size)
        else:
            bare = file.content(DataChoice(until, {}, NOTHING), cause)
        self.bares[-1] = self.bares[-1].with_data(number, bare)

    def _settle(self, op: Op) -> None:
        """E2: the data of the synced file is durable, and metadata up to the last change of its inode."""
        if op.kind == "sync":
            self._settle_all()
            return
        self._flush_cache(op)
        changes = self._changed if op.kind == "fsync" else self._reshaped
        commit = max(self.commit, changes.get(op.file, -1) + 1)
        self._commit(commit, self.bares[commit - self.commit])
        file = self.files.pop(op.file, None)
        if file:
            self._settle_data(op, file)
        if op.kind != "write":
            self.uncleared.pop(op.file, None)
        self._index_files()

    def _settle_all(self) -> None:
        """E9, X6"""
        in_place = {} if self.rules.sync_flushes else {n: f.in_cache(self.at) for n, f in self.files.items()}
        self.files, self._changed, self._reshaped = {}, {}, {}
        bare = self.kill
        for number, file in in_place.items():
            if file.positions and isinstance(bare.nodes.get(number), FileNode):
                bare = bare.with_data(number, file.base)
        self._commit(self.at, bare)
        self.files = {number: file for number, file in in_place.items() if file.positions}
        self._index_files()

    def _flush_cache(self, op: Op) -> None:
        """X6: the sync of a file flushes the disk's cache, that of a directory only if it has changed. A file
        that was written again stays as it is."""
        if isinstance(self.kill.nodes.get(op.file), DirNode) and op.file not in self._changed:
            return
        for number, file in list(self.files.items()):
            if file.positions[-1] < file.cached_until:
                self.bares = [self._with_data(image, number, file.current) for image in self.bares]
                del self.files[number]
        self._index_files()

    def _with_data(self, image: Image, number: int, data: FileData) -> Image:
        return image.with_data(number, data) if image.nodes.get(number) else image

    def _settle_data(self, op: Op, file: OrderedFile) -> None:
        """A durable write settles its own pages (E10), a sync all of them. From the commit on, the file keeps
        its shape, so that all images can have the same data."""
        data = file.current
        if op.kind == "write":
            rest = file.with_durable(written(op), self._durable_size(op, file))
            data = rest.base
            if rest.positions:
                self.files[op.file] = rest
        self.kills = [*(image.with_data(op.file, data) for image in self.kills[:-1]), self.kill]
        self.bares = [image.with_data(op.file, data) for image in self.bares]

    def _durable_size(self, op: Op, file: OrderedFile) -> FileData:
        """Whole pages are written, so the size may grow to the end of the last one."""
        if self._reshaped.get(op.file) != self.at - 1:
            return file.base
        end = written(op).stop * PAGE
        return self.bares[-1].data(op.file).at_least(min(file.current.size, end))

    def _commit(self, commit: int, bare: Image) -> None:
        """Metadata before `commit` is durable, with the data that is there whatever happens."""
        done = commit - self.commit
        self.kills, self.bares = self.kills[done:], [bare, *self.bares[done + 1 :]]
        self.commit = commit
        self._metadata = {at: None for at in self._metadata if at >= commit}
        self.files = self._unwritten(bare)
        self._index_files()

    def _index_files(self) -> None:
        owners = ((at, number) for number, file in self.files.items() for at in file.positions)
        self._file_of = dict(sorted(owners))

    def _unwritten(self, bare: Image) -> dict[int, OrderedFile]:
        """The files that still have pending data after a commit, based on their new durable content."""
        rest: dict[int, OrderedFile] = {}
        for number, file in self.files.items():
            base = bare.data(number) if bare.nodes.get(number) else file.base
            if base.digest != self.kill.data(number).digest:
                rest[number] = file.committed(base, self.commit)
        return rest

    def pending(self) -> list[int]:
        return sorted({*self._file_of, *self._metadata})

    def latest(self, count: int) -> list[int]:
        return latest_of(count, self._file_of, self._metadata)

    def last_write(self) -> int | None:
        file = self.files.get(self._file_of.get(self._last, -1))
        return self._last if file and file.positions[-1] == self._last else None

    def overwritten(self, count: int) -> int | None:
        """The latest write in place to a file that has grown since, if nothing has overwritten it again."""
        for position in self.latest(count):
            file = self.files.get(self._file_of.get(position, -1))
            if file and file.only_writes and file.in_place(file.operation(position)):
                pages = written(file.operation(position))
                later = position != file.positions[-1]
                return position if later and file.untouched_since(position, pages) else None
        return None

    def unwritten(self, count: int) -> list[int]:
        """The latest writes whose blocks may be allocated without their data, one per file."""
        found = [at for at in self.latest(count) if at in self._file_of]
        newest = {self._file_of[at]: at for at in reversed(found) if self.rules.sizes_first}
        return [at for at in newest.values() if not self._is_in_place(at)]

    def reordered(self, count: int) -> list[Recipe]:
        """E3, X2, B2: a write without an earlier one, and what lies below a write without what lies above."""
        found = list[Recipe]()
        later = dict[int, int]()  # file -> the lowest offset of the later writes among these
        for position in self.latest(count):
            file = self.files.get(self._file_of.get(position, -1))
            if not file or not file.has_other_new_pages(position):
                continue
            op = file.operation(position)
            found.append(Recipe("missing", (position,)))
            if later.get(op.file, op.offset) // PAGE < op.offset // PAGE:
                found.append(Recipe("below", (position,)))
            later[op.file] = min(later.get(op.file, op.offset), op.offset)
        return found

    def _is_in_place(self, position: int) -> bool:
        file = self.files[self._file_of[position]]
        op = file.operation(position)
        return op.kind != "write" or file.in_place(op)

    def tears(self, position: int) -> list[Recipe]:
        """E8: between sectors of what is overwritten in place, or a later page without the first;
        E5, X4: before the first page that has no block."""
        file = self.files[self._file_of[position]]
        op = file.operation(position)
        end = op.offset + len(op.data)
        grows = end > file.version_before(position).size
        if not file.in_place(op) and (self.rules.block_by_block or not op.durable):
            return [Recipe("torn", (position,), cut, "absent") for cut in file.first_edge(position, op)]
        if (op.durable or not self.rules.sizes_first) and (grows or not file.in_place(op)):
            return []  # data comes before the size
        cuts: list[tuple[int, Tail]] = [
            *((cut, "old") for cut in boundaries(op.offset, end, SECTOR)),
            *((cut, "head") for cut in boundaries(op.offset, end, PAGE)),
        ]
        found = [Recipe("torn", (position,), *cut) for cut in cuts]
        if file.in_place(op) and file.has_new_pages():
            found += [Recipe("torn", (position,), *cut, beside="nothing") for cut in cuts[:1]]
            if self.rules.sizes_first:
                found += [Recipe("torn", (position,), *cut, beside="zeros") for cut in cuts[:1]]
        return found

    def build(self, recipe: Recipe) -> Image:
        if recipe.way == "torn":
            return self._torn(recipe)
        choice = self._choice(recipe)
        image = (self.kills if choice.full else self.bares)[choice.cut - self.commit]
        for number, data in choice.files.items():
            if isinstance(image.nodes.get(number), FileNode):
                image = image.with_data(number, self.files[number].content(data, choice.cut))
        return self.recovered(image, choice.cut)

    def recovered(self, image: Image, cut: int) -> Image:
        """What the file system adds when it is mounted, to the metadata before `cut`."""
        del cut
        return image

    def _choice(self, recipe: Recipe) -> Choice:
        if recipe.way == "without":
            return self._without(set(recipe.positions))
        if recipe.way == "keeping":
            return self._keeping(recipe.positions)
        if recipe.way == "zeros":
            (position,) = recipe.positions
            number = self._file_of[position]
            return Choice(self.at, {number: self.files[number].without_data(position)}, full=True)
        if recipe.way in ("missing", "below"):
            (position,) = recipe.positions
            number = self._file_of[position]
            file = self.files[number]
            data = file.missing_pages(position) if recipe.way == "missing" else file.only_below(position)
            return Choice(self.at, {number: data}, full=True)
        cut = self.commit if recipe.way in ("data", "nothing") else self.at
        return Choice(cut, self._files_for(recipe.way), full=recipe.way == "kill")

    def _files_for(self, way: Way) -> dict[int, DataChoice]:
        if way == "sizes":
            return {number: file.without_data(NOTHING) for number, file in self.files.items()}
        if way == "data":
            return {number: file.overwrites_only() for number, file in self.files.items()}
        return {}

    def _without(self, lost: set[int]) -> Choice:
        """A lost name loses all later metadata (E1), and the sizes that depend on it."""
        cut = min((at for at in lost if at in self._metadata), default=self.at)
        files = {number: self.files[number].dropping(lost, cut) for number in self._concerned(lost, cut)}
        return Choice(cut, files, full=True)

    def _concerned(self, lost: set[int], cut: int) -> set[int]:
        """Files that lose something, or that were written after the cut."""
        named = {self._file_of[at] for at in lost if at in self._file_of}
        if cut == self.at:
            return named
        return named | {n for n, file in self.files.items() if file.positions[-1] >= cut}

    def _keeping(self, kept: tuple[int, ...]) -> Choice:
        cut = max([self.commit, *(self._needs(at) for at in kept)])
        files: dict[int, DataChoice] = {}
        for number in {self._file_of[at] for at in kept if at in self._file_of}:
            files[number] = self.files[number].only(kept)
        return Choice(cut, files, full=False)

    def _needs(self, position: int) -> int:
        """The lowest cut at which this operation is visible."""
        file = self.files.get(self._file_of.get(position, -1))
        if position in self._metadata or file is None:
            return position + 1
        op = file.operation(position)
        hidden = op.offset + len(op.data) > file.version_before(position).size
        return position + 1 if hidden or not file.in_place(op) else self.commit

    def _torn(self, recipe: Recipe) -> Image:
        position = recipe.positions[0]
        file = self.files[self._file_of[position]]
        op = file.operation(position)
        end = op.offset + recipe.cut
        if recipe.tail == "absent":
            filled = position + 1 if self.rules.block_by_block else NOTHING
            first = {} if self.rules.block_by_block else {written(op)[0]: position + 1}
            choice = DataChoice(position, first, others=position + 1, filled=filled)
            return self.kill.with_data(op.file, file.content(choice, self.at))
        data = file.content(_beside(file, recipe), self.at) if recipe.beside != "data" else file.current
        if recipe.tail == "head":
            return self.kill.with_data(op.file, _without_pages_before(data, file, position, op, end))
        return self.kill.with_data(op.file, _overwritten_until(data, file, position, op, end))

    def lost(self, recipe: Recipe) -> list[int]:
        if recipe.way == "torn":
            return sorted({*recipe.positions, *self._lost_beside(recipe)})
        choice = self._choice(recipe)
        gone = {position for position in self._metadata if position >= choice.cut}
        for number, file in self.files.items():
            data = choice.files.get(number) or file.default(choice.full, choice.cut)
            gone |= set(file.missing(data, choice.cut))
        return sorted(gone)

    def _lost_beside(self, torn: Recipe) -> list[int]:
        file = self.files[self._file_of[torn.positions[0]]]
        return file.missing(_beside(file, torn), self.at) if torn.beside != "data" else []


def _beside(file: OrderedFile, torn: Recipe) -> DataChoice:
    return file.overwrites_only() if torn.beside == "nothing" else file.without_data(NOTHING)


def _as_write(punch: Op, size: int) -> Op:
    """E5: a hole that covers no page as a whole is zeros that are written, and marked as such (keep_size)."""
    end = min(punch.offset + punch.length, size)
    if end <= punch.offset or -(-punch.offset // PAGE) < end // PAGE:
        return punch
    return msgspec.structs.replace(punch, kind="write", data=bytes(end - punch.offset), keep_size=True)


def boundaries(start: int, end: int, unit: int) -> list[int]:
    """The first and the last multiple of `unit`, and of a page, strictly inside; as lengths."""
    found: list[int] = []
    for step in (unit, PAGE):
        first, last = (start // step + 1) * step, (end - 1) // step * step
        found += [at - start for at in (first, last) if start < at < end]
    return sorted(set(found))


def _without_pages_before(data: FileData, file: OrderedFile, position: int, op: Op, end: int) -> FileData:
    """The write's pages before `end` are old, the others new."""
    for page in pages_of(op.offset, len(op.data)):
        if (page + 1) * PAGE <= end:
            data = data.put_leaf(page, file.page_before(page, position))
    return data


def _overwritten_until(data: FileData, file: OrderedFile, position: int, op: Op, end: int) -> FileData:
    """The write's sectors before `end` are new, the others old; the size is that of the whole write."""
    for page in pages_of(op.offset, len(op.data)):
        if (page + 1) * PAGE > end:
            old = file.page_before(page, position)
            part = op.data[: max(end - op.offset, 0)]
            inside = page * PAGE < end
            content = over_page(old[0] if old else b"", page, op.offset, part) if inside else None
            data = data.put_leaf(page, old if content is None else leaf(page, content))
    return data
