"""The profile btrfs: a copy-on-write file system with a log for fsync, as measured on a real one.

`power` has the rules B1 to B5. A state is a choice of a commit `m` (names, sizes and the data that was
written back until then), and what the log adds: everything that was synced after `m`.
"""

from __future__ import annotations

from chaoskit.disk.image import DirNode, FileNode, Image
from chaoskit.disk.ops import SYNC_KINDS, Op, Trace
from chaoskit.disk.profiles.inplace import BTRFS
from chaoskit.disk.profiles.journaled import JournaledModel
from chaoskit.disk.recipe import Recipe

NOBODY = -2  # no object has this number


class BtrfsModel(JournaledModel):
    def __init__(self, trace: Trace) -> None:
        super().__init__(trace, BTRFS)
        self._logged: list[tuple[int, int]] = []  # (position after the sync, object)
        self._moves: list[tuple[int, int, int]] = []  # renames and links: position, object, old directory
        self._unnamed: list[tuple[int, int]] = []  # renames and removals: position, object that lost a name
        self._arrivals: dict[int, int] = {}  # renames to another directory: position -> that directory
        self._born: dict[int, int] = {}  # directory -> position
        self._concerns: dict[int, set[int]] = {}  # position -> objects that it changes
        self._changes: dict[int, list[int]] = {}  # the same by object, without syncs

    def begin(self, op: Op) -> None:
        self._concerns[self.at] = {op.file, op.parent, op.parent2}
        if op.kind not in SYNC_KINDS:
            for number in {op.file, op.parent, op.parent2, op.replaced}:
                self._changes.setdefault(number, []).append(self.at)
        super().begin(op)

    def _name(self, position: int, op: Op) -> None:
        super()._name(position, op)
        if op.kind in ("rename", "link"):
            self._moves.append((position, op.file, op.parent if op.kind == "rename" else NOBODY))
        if op.kind == "rename" and op.parent != op.parent2:
            self._arrivals[position] = op.parent2
        if op.kind in ("rename", "unlink"):
            self._unnamed += [(position, op.file), (position, op.replaced)]
        if op.kind == "mkdir":
            self._born[op.file] = position

    def _settle(self, op: Op) -> None:
        """B3: the synced object is in the log, with its data and its names; nothing else is."""
        if op.kind == "sync":
            self._logged, self._moves, self._unnamed, self._born = [], [], [], {}
            super()._settle(op)
            return
        file = self.files.pop(op.file, None)
        if file:
            self.kills = [self._with_data(image, op.file, file.current) for image in self.kills]
            self.bares = [self._with_data(image, op.file, file.current) for image in self.bares]
            self._index_files()
        self._logged.append((self.at, op.file))
        self._metadata = {at: None for at in self._metadata if not self._is_in_log(at, op.file)}

    def _is_in_log(self, position: int, synced: int) -> bool:
        """The directory that a file was moved to has its new name only; the old one is still there (B3)."""
        return synced in self._concerns[position] and self._arrivals.get(position) != synced

    def reordered(self, count: int) -> list[Recipe]:
        """B3: a file that was committed under its old name, and logged under its new one."""
        moved = [at for at in self.latest(count) if at in self._arrivals and at in self._metadata]
        return [*super().reordered(count), *(Recipe("without", (at,)) for at in moved)]

    def recovered(self, image: Image, cut: int) -> Image:
        synced = self._synced(cut)
        if not synced:
            return image
        entries, displaced = self._entries(image, synced, cut), self._displaced(image, synced)
        known = entries + [(at, each) for at, number in synced for each in self._new_above(number, cut, at)]
        last = entries[-1][0]
        names = Names(image, self.kills[last - self.commit])
        for at, number in entries:
            then = self.kills[at - self.commit]
            for other in (other for moved, other in displaced if moved == at):
                image = _displaced_to(image, other, then)
            image = names.replayed(image, number, then)
        for position, number, home in self._moves:
            before = {logged for at, logged in known if at <= position}
            if position < last and before & {number, home}:
                image = _placed(image, number, names.last)  # B4
        return image

    def _synced(self, cut: int) -> list[tuple[int, int]]:
        """B3: what was not changed since the commit, or since it was logged, is not logged."""
        found, since = list[tuple[int, int]](), dict[int, int]()
        for at, number in self._logged:
            if any(since.get(number, cut) <= then < at for then in self._changes.get(number, ())):
                found.append((at, number))
                since[number] = at
        return found

    def _entries(self, committed: Image, synced: list[tuple[int, int]], cut: int) -> list[tuple[int, int]]:
        """B3: an object that lost a name is logged with the directories that it was in, once."""
        found, seen = list[tuple[int, int]](), set[int]()
        for at, number in synced:
            node = committed.nodes.get(number)
            renamed = any(one == number and cut <= then < at for then, one in self._unnamed)
            parents = {parent for parent, _ in node.links} if node and renamed else set()
            found += [(at, number), *((at, parent) for parent in sorted(parents - seen))]
            seen |= {number, *parents}
        return found

    def _displaced(self, committed: Image, synced: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """B3: whoever had the name of a synced object before is logged under its new one."""
        found = list[tuple[int, int]]()
        for at, number in synced:
            node = self.kills[at - self.commit].nodes.get(number)
            for parent, name in node.links if node else ():
                other = committed.entry(parent, name)
                after = self.kills[at - self.commit].nodes.get(other) if other is not None else None
                if other is not None and other != number and after is not None and after.links:
                    found.append((at, other))
        return found

    def _new_above(self, number: int, cut: int, at: int) -> list[int]:
        """The new directories above an object: in the log, without their entries."""
        image, found = self.kills[at - self.commit], list[int]()
        node = image.nodes.get(number)
        while node is not None and node.links:
            number = node.links[0][0]
            if cut <= self._born.get(number, NOBODY) < at:
                found.append(number)
            node = image.nodes.get(number)
        return found


class Names:
    """Replays the log: which names an object gets, and which it loses."""

    def __init__(self, committed: Image, last: Image) -> None:
        self.committed = committed
        self.last = last  # at the last sync

    def replayed(self, image: Image, number: int, then: Image) -> Image:
        """`then`: when the object was logged."""
        image = self._removed(_placed(image, number, then), number)
        node = then.nodes.get(number)
        if isinstance(node, FileNode):
            return image.with_data(number, node.data)
        if isinstance(node, DirNode) and isinstance(image.nodes.get(number), DirNode):
            return self._with_entries_of(image, number, then)
        return image

    def _removed(self, image: Image, number: int) -> Image:
        """A removed object loses the names that are in the log only."""
        node, later = image.nodes.get(number), self.last.nodes.get(number)
        if node is None or later is None or later.links:
            return image
        before = self.committed.nodes.get(number)
        gone = [link for link in node.links if before is None or link not in before.links]
        return image.with_entries([(parent, name, None) for parent, name in gone])

    def _with_entries_of(self, image: Image, number: int, then: Image) -> Image:
        """What was there before stays; its later removal is not in the log."""
        wanted = dict(then.directory(number).entries.values())
        for name, _ in list(image.directory(number).entries.values()):
            if name not in wanted:
                image = image.with_entry(number, name, None)
        for name, child in wanted.items():
            if image.entry(number, name) == child:
                continue
            if isinstance(
                image.nodes.get(child), FileNode
            ):  # its old name is in a directory that is not logged
                image = self._removed(image.with_entry(number, name, child), child)
                continue
            image = self._removed(_placed(image, child, then), child)
            if isinstance(then.nodes.get(child), DirNode):
                image = self._with_entries_of(image, child, then)
        return image


def _displaced_to(image: Image, number: int, source: Image) -> Image:
    """The file has lost its name. It has those of `source` that are in directories which are there: a new
    directory is not logged for its sake."""
    here, node = image.nodes.get(number), source.nodes.get(number)
    assert here is not None
    assert node is not None
    gone = [(parent, name, None) for parent, name in here.links if (parent, name) not in node.links]
    there = [(parent, name, number) for parent, name in node.links if image.nodes.get(parent) is not None]
    return image.with_entries([*gone, *there])


def _placed(image: Image, number: int, source: Image) -> Image:
    """The object under the names that it has in `source`, with the directories above it."""
    node = source.nodes.get(number)
    if node is None:
        return image
    image = image.adopt(number, source)
    here = image.nodes.get(number)
    assert here is not None
    gone = [(parent, name, None) for parent, name in here.links if (parent, name) not in node.links]
    for parent, _ in node.links:
        if image.nodes.get(parent) is None:
            image = _placed(image, parent, source)
    return image.with_entries([*gone, *((parent, name, number) for parent, name in node.links)])
