"""The profile btrfs: a copy-on-write file system with a log for fsync, as measured on a real one.

`power` has the rules B1 to B5. A state is a choice of a commit `m` (names, sizes and the data that was
written back until then), and what the log adds: everything that was synced after `m`.
"""

from __future__ import annotations

from chaoskit.disk.image import DirNode, FileNode, Image
from chaoskit.disk.inplace import BTRFS
from chaoskit.disk.journaled import JournaledModel
from chaoskit.disk.ops import Op, Trace

NOBODY = -2  # no object has this number


class BtrfsModel(JournaledModel):
    def __init__(self, trace: Trace) -> None:
        super().__init__(trace, BTRFS)
        self._logged: list[tuple[int, int]] = []  # (position after the sync, object)
        self._moves: list[tuple[int, int, int]] = []  # renames and links: position, object, old directory
        self._concerns: dict[int, set[int]] = {}  # position -> objects that it changes

    def begin(self, op: Op) -> None:
        self._concerns[self.at] = {op.file, op.parent, op.parent2}
        super().begin(op)

    def _name(self, position: int, op: Op) -> None:
        super()._name(position, op)
        if op.kind in ("rename", "link"):
            self._moves.append((position, op.file, op.parent if op.kind == "rename" else NOBODY))

    def _settle(self, op: Op) -> None:
        """B3: the synced object is in the log, with its data and its names; nothing else is."""
        if op.kind == "sync":
            self._logged, self._moves = [], []
            super()._settle(op)
            return
        file = self.files.pop(op.file, None)
        if file:
            self.kills = [self._with_data(image, op.file, file.current) for image in self.kills]
            self.bares = [self._with_data(image, op.file, file.current) for image in self.bares]
            self._index_files()
        self._logged.append((self.at, op.file))
        self._metadata = {at: None for at in self._metadata if op.file not in self._concerns[at]}

    def recovered(self, image: Image, cut: int) -> Image:
        entries = [(at, number) for at, number in self._logged if at > cut]
        if not entries:
            return image
        last = entries[-1][0]
        latest = self.kills[last - self.commit]
        for at, number in entries:
            image = _replayed(image, number, self.kills[at - self.commit], latest)
        for position, number, home in self._moves:
            before = {logged for at, logged in entries if at <= position}
            if position < last and before & {number, home}:
                image = _placed(image, number, latest)  # B4
        return image


def _replayed(image: Image, number: int, then: Image, last: Image) -> Image:
    """`then`: when the object was logged. `last`: at the last sync, with which later removals are logged."""
    image = _removed(_placed(image, number, then), number, last)
    node = then.nodes.get(number)
    if isinstance(node, FileNode):
        return image.with_data(number, node.data)
    if isinstance(node, DirNode) and isinstance(image.nodes.get(number), DirNode):
        return _with_entries_of(image, number, then, last)
    return image


def _removed(image: Image, number: int, last: Image) -> Image:
    node, later = image.nodes.get(number), last.nodes.get(number)
    if node is None or later is None or later.links:
        return image
    return image.with_entries([(parent, name, None) for parent, name in node.links])


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


def _with_entries_of(image: Image, number: int, then: Image, last: Image) -> Image:
    """What was there before stays; its later removal is not in the log."""
    wanted = dict(then.directory(number).entries.values())
    for name, _ in list(image.directory(number).entries.values()):
        if name not in wanted:
            image = image.with_entry(number, name, None)
    for name, child in wanted.items():
        if image.entry(number, name) == child:
            continue
        new = image.nodes.get(child) is None
        image = _removed(_placed(image, child, then), child, last)
        if new and isinstance(then.nodes.get(child), DirNode):
            image = _with_entries_of(image, child, then, last)
    return image
