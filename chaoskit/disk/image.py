"""Image: the content of a directory tree as immutable data.

Objects (files, directories, symbolic links) have the numbers of the trace; names belong to
directories. An object without a name is kept but not visible: after a crash a file may have its data
but not its name. Every change returns a new image that shares the rest with the old one.

A directory's digest is the exclusive or of its entries' digests; an entry's digest covers its name
and everything below it. A change updates the digests of all directories above the changed object. The
digest of an image is that of its root: equal for equal trees, whatever the numbers of their objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b

from chaoskit.disk.filedata import EMPTY, FileData
from chaoskit.disk.intmap import IntMap
from chaoskit.disk.ops import ROOT

Link = tuple[int, str]  # (directory, name)
Change = tuple[int, str, int | None]  # (directory, name, the object that the name now refers to)


class FileNode:
    __slots__ = ("data", "links")

    def __init__(self, data: FileData, links: tuple[Link, ...] = ()) -> None:
        self.data = data
        self.links = links

    def linked(self, links: tuple[Link, ...]) -> FileNode:
        return FileNode(self.data, links)

    def mark(self) -> str:
        # The number of names distinguishes two equal files from one file with two names.
        return f"f{self.data.size}:{self.data.sum:x}:{len(self.links)}"


class DirNode:
    __slots__ = ("entries", "links", "sum")

    def __init__(self, entries: IntMap[Entry], sum_: int = 0, links: tuple[Link, ...] = ()) -> None:
        self.entries = entries
        self.sum = sum_
        self.links = links

    def linked(self, links: tuple[Link, ...]) -> DirNode:
        return DirNode(self.entries, self.sum, links)

    def mark(self) -> str:
        return f"d{self.sum:x}"


class SymlinkNode:
    __slots__ = ("links", "target")

    def __init__(self, target: str, links: tuple[Link, ...] = ()) -> None:
        self.target = target
        self.links = links

    def linked(self, links: tuple[Link, ...]) -> SymlinkNode:
        return SymlinkNode(self.target, links)

    def mark(self) -> str:
        return f"l{self.target}"


Object = FileNode | DirNode | SymlinkNode
Entry = tuple[str, int]  # (name, object)


class NameTable:
    """Maps each name to a small number, the key of its entry; shared by the images of a trace."""

    def __init__(self) -> None:
        self._keys: dict[str, int] = {}

    def key(self, name: str) -> int:
        return self._keys.setdefault(name, len(self._keys))


def entry_digest(name: str, node: Object) -> int:
    text = f"{name}/{node.mark()}".encode("utf-8", "surrogateescape")
    return int.from_bytes(blake2b(text, digest_size=16).digest(), "little")


class Image:
    __slots__ = ("names", "nodes")

    def __init__(self, nodes: IntMap[Object], names: NameTable) -> None:
        self.nodes = nodes
        self.names = names

    def __deepcopy__(self, memo: object) -> Image:
        return self  # immutable: copies of a model share it

    @property
    def digest(self) -> int:
        return self.directory(ROOT).sum

    def directory(self, number: int) -> DirNode:
        node = self.nodes.get(number)
        assert isinstance(node, DirNode), f"object {number} is not a directory"
        return node

    def data(self, number: int) -> FileData:
        node = self.nodes.get(number)
        return node.data if isinstance(node, FileNode) else EMPTY

    def entry(self, parent: int, name: str) -> int | None:
        node = self.nodes.get(parent)
        found = node.entries.get(self.names.key(name)) if isinstance(node, DirNode) else None
        return found[1] if found else None

    def with_node(self, number: int, node: Object) -> Image:
        """Adds an object that has no name yet."""
        return Image(self.nodes.put(number, node), self.names)

    def with_data(self, number: int, data: FileData) -> Image:
        old = self.nodes.get(number)
        if old is None:
            return self.with_node(number, FileNode(data))
        assert isinstance(old, FileNode), f"object {number} is not a file"
        if old.data is data:
            return self
        return Image(_replace(self.nodes, number, old, FileNode(data, old.links)), self.names)

    def with_entry(self, parent: int, name: str, child: int | None) -> Image:
        """Makes the name refer to `child` (which must exist), or removes it."""
        old = self.entry(parent, name)
        if old == child:
            return self
        nodes = self.nodes if old is None else self._unlink(parent, name, old)
        if child is not None:
            nodes = self._link(nodes, parent, name, child)
        return Image(nodes, self.names)

    def with_entries(self, changes: Sequence[Change]) -> Image:
        """Removals before additions, so that no directory ever has two names."""
        image = self
        for parent, name, child in changes:
            if image.entry(parent, name) != child:
                image = image.with_entry(parent, name, None)
        for parent, name, child in changes:
            image = image.with_entry(parent, name, child)
        return image

    def _unlink(self, parent: int, name: str, child: int) -> IntMap[Object]:
        node, home = self.nodes.get(child), self.nodes.get(parent)
        assert node is not None
        assert isinstance(home, DirNode)
        entries = home.entries.put(self.names.key(name), None)
        thinner = DirNode(entries, home.sum ^ entry_digest(name, node), home.links)
        nodes = _replace(self.nodes, parent, home, thinner)
        orphan = node.linked(tuple(link for link in node.links if link != (parent, name)))
        return _replace(nodes, child, node, orphan)

    def _link(self, nodes: IntMap[Object], parent: int, name: str, child: int) -> IntMap[Object]:
        node = nodes.get(child)
        assert node is not None, f"object {child} named {name!r} before it exists"
        # First the number of names, which affects the digests of the object's other entries; then the
        # new entry.
        nodes = _replace(nodes, child, node, node.linked(node.links), extra=(parent, name))
        named = nodes.get(child)
        home = nodes.get(parent) or DirNode(IntMap())
        assert named is not None
        assert isinstance(home, DirNode)
        entries = home.entries.put(self.names.key(name), (name, child))
        fuller = DirNode(entries, home.sum ^ entry_digest(name, named), home.links)
        return _replace(nodes, parent, home, fuller)

    def adopt(self, number: int, source: Image) -> Image:
        """Adds the object from `source`, but empty, unless it already exists."""
        if self.nodes.get(number) is not None:
            return self
        model = source.nodes.get(number)
        if isinstance(model, SymlinkNode):
            return self.with_node(number, SymlinkNode(model.target))
        blank: Object = DirNode(IntMap()) if isinstance(model, DirNode) else FileNode(EMPTY)
        return self.with_node(number, blank)

    def walk(self, number: int = ROOT, path: str = "") -> Iterator[tuple[str, int, Object]]:
        """(path, number, object) of everything below a directory, parents first."""
        for name, child in self.directory(number).entries.values():
            node = self.nodes.get(child)
            assert node is not None
            below = f"{path}/{name}" if path else name
            yield below, child, node
            if isinstance(node, DirNode):
                yield from self.walk(child, below)

    def path(self, number: int) -> str | None:
        """One path of an object, or None if it has no name."""
        parts: list[str] = []
        while number != ROOT:
            node = self.nodes.get(number)
            if node is None or not node.links:
                return None
            number, name = node.links[0]
            parts.append(name)
        return "/".join(reversed(parts))


def _replace(
    nodes: IntMap[Object], number: int, old: Object, new: Object, extra: Link | None = None
) -> IntMap[Object]:
    """Replaces `old` by `new` and updates the digests of all directories above."""
    shared = new.links
    if extra is not None:
        new = new.linked((*shared, extra))
    nodes = nodes.put(number, new)
    for parent, name in shared:
        home = nodes.get(parent)
        assert isinstance(home, DirNode)
        change = entry_digest(name, old) ^ entry_digest(name, new)
        if change:
            above = DirNode(home.entries, home.sum ^ change, home.links)
            nodes = _replace(nodes, parent, home, above)
    return nodes
